"""Models of rows of numbers: networks, alone or several together, layers that scale features or join those of a column,
and a ranker over whole lists.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rankwise.checks import check_choice, check_ids, check_same_shape
from rankwise.lists import pack

if TYPE_CHECKING:
    from rankwise.data.mapped import FeatureRows

__all__ = [
    "MISSING",
    "NUMBER",
    "SCALINGS",
    "Columns",
    "ContextAwareRanker",
    "MLPEmbedder",
    "MLPScorer",
    "Members",
    "ScaledRanker",
    "Scaling",
    "fit_scaling",
    "fully_connected",
    "reset_last_layer",
    "scaled",
    "squash",
    "unsquash",
]


class MLPScorer(nn.Module):
    """One raw score (logit) per row.

    Args:
        inputs: D, the numbers in a row.
        hidden: the widths of the hidden layers.
        dropout: before the last layer, while training.

    Example:
        >>> import torch
        >>> MLPScorer(64, hidden=(16,))(torch.rand(5, 64)).shape
        torch.Size([5])
    """

    def __init__(self, inputs: int, *, hidden: Sequence[int] = (64,), dropout: float = 0.0) -> None:
        super().__init__()
        self.layers = fully_connected(inputs, hidden, 1, dropout=dropout)

    def forward(self, features: Tensor) -> Tensor:
        """Map rows (N, D) to scores (N,)."""
        return cast(Tensor, self.layers(features)).squeeze(-1)


class MLPEmbedder(nn.Module):
    """One vector per row.

    Args:
        inputs: D, the numbers in a row.
        outputs: d, the numbers in a vector.
        hidden: the widths of the hidden layers.
        normalise: vectors of length 1, so that their products are cosines; otherwise as the last layer gives them.

    Example:
        >>> import torch
        >>> vectors = MLPEmbedder(64, 32)(torch.rand(5, 64))
        >>> vectors.shape, bool(torch.allclose(vectors.norm(dim=1), torch.ones(5)))
        (torch.Size([5, 32]), True)
    """

    def __init__(self, inputs: int, outputs: int, *, hidden: Sequence[int] = (64,), normalise: bool = True) -> None:
        super().__init__()
        self.layers = fully_connected(inputs, hidden, outputs)
        self.normalise = normalise

    def forward(self, features: Tensor) -> Tensor:
        """Map rows (N, D) to vectors (N, d)."""
        vectors = cast(Tensor, self.layers(features))
        return functional.normalize(vectors, dim=1) if self.normalise else vectors


def fully_connected(inputs: int, hidden: Sequence[int], outputs: int, *, dropout: float = 0.0) -> nn.Sequential:
    """Return linear layers with ReLU between them, and dropout before the last if asked for."""
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [nn.Linear(inputs, width), nn.ReLU()]
        inputs = width
    if dropout:
        layers.append(nn.Dropout(dropout))
    return nn.Sequential(*layers, nn.Linear(inputs, outputs))


SCALINGS = ("standard", "log", "none")
# Cells whose statistics are computed at once.
_CELLS = 1 << 25


class Scaling(nn.Module):
    """Subtract the mean of each feature and divide by its standard deviation; a constant feature becomes 0.

    A new layer changes nothing; `fit` learns from data.

    Args:
        width: D, the number of features.
        kind: "standard"; "log" takes sign(x) log(1 + |x|) first, for counts and other long tails; "none".
        fill_missing: whether missing values (NaN) become the median of their feature.

    Example:
        >>> layer = Scaling(2, fill_missing=True).fit(torch.tensor([[1.0, 5.0], [3.0, 5.0]]))
        >>> layer(torch.tensor([[3.0, 5.0], [torch.nan, 9.0]]))
        tensor([[1., 0.],
                [0., 0.]])
    """

    mean: Tensor
    factor: Tensor
    median: Tensor | None

    def __init__(self, width: int, kind: str = "standard", *, fill_missing: bool = False) -> None:
        super().__init__()
        self.kind = check_choice("kind", kind, SCALINGS)
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("factor", torch.ones(width))
        self.register_buffer("median", torch.zeros(width) if fill_missing else None)

    @torch.no_grad()
    def fit(self, features: FeatureRows) -> Scaling:
        """Learn median, mean and standard deviation from the rows (N, D) of the training part, by blocks of columns."""
        rows, width = features.shape
        step = max(1, _CELLS // max(1, rows))
        for first in range(0, width, step):
            columns = slice(first, first + step)
            block = features[:, columns] if isinstance(features, Tensor) else features.read(slice(None), columns)
            for number, feature in enumerate(block.unbind(1), start=first):
                self._fit_column(number, feature.contiguous())
        return self

    def _fit_column(self, number: int, feature: Tensor) -> None:
        if self.median is not None:
            self.median[number] = float(np.nanmedian(feature.numpy(force=True)))
        if self.kind == "none":
            return
        shaped = self._shape(feature, number)
        low, high = (float(each) for each in shaped.aminmax())
        centred = shaped.double()
        mean = centred.mean()
        centred -= mean
        spread = float((centred @ centred / len(centred)).sqrt())
        # Rounding leaves a constant feature with a spread that is tiny beside its size.
        constant = spread <= 1e-7 * max(-low, high, 1e-30)
        self.mean[number] = mean
        self.factor[number] = 0.0 if constant else 1 / spread

    def forward(self, features: Tensor) -> Tensor:
        """Scale rows (N, D)."""
        return (self._shape(features) - self.mean) * self.factor

    def invert(self, scaled: Tensor, columns: Tensor) -> Tensor:
        """Return what scaled values (n,) of columns (n,) were before; columns of constants have no answer."""
        values = scaled / self.factor[columns].to(scaled) + self.mean[columns].to(scaled)
        return values.sign() * values.abs().expm1() if self.kind == "log" else values

    def fill(self, features: Tensor) -> Tensor:
        """Return rows (N, D) with the medians instead of missing values, if they are to be filled in."""
        return self._fill(features, slice(None))

    def extra_repr(self) -> str:
        return f"{len(self.mean)}, kind={self.kind!r}"

    def _shape(self, features: Tensor, columns: slice | int = slice(None)) -> Tensor:
        features = self._fill(features, columns)
        return features.sign() * features.abs().log1p() if self.kind == "log" else features

    def _fill(self, features: Tensor, columns: slice | int) -> Tensor:
        if self.median is None:
            return features
        return torch.where(features.isnan(), self.median[columns].to(features.dtype), features)


# Squashed features stay below this.
_BOUND = 3.0


def squash(scaled: Tensor) -> Tensor:
    """Squash scaled features into (-3, 3): a value far out counts for little more than one at 3 spreads."""
    return scaled / (1 + (scaled / _BOUND).square()).sqrt()


def unsquash(squashed: Tensor) -> Tensor:
    """Return what was squashed; infinity from 3 on."""
    return squashed / (1 - (squashed / _BOUND).square()).clamp_min(0).sqrt()


def scaled(model: nn.Module, width: int, kind: str, *, fill_missing: bool = False) -> nn.Module:
    """Return the model behind a `Scaling` layer; the model itself if nothing is to be scaled or filled in."""
    needed = check_choice("scaling", kind, SCALINGS) != "none" or fill_missing
    return nn.Sequential(Scaling(width, kind, fill_missing=fill_missing), model) if needed else model


def fit_scaling(model: nn.Module, features: FeatureRows) -> None:
    """Fit the `Scaling` layers of a model to the rows (N, D) of the training part."""
    for layer in model.modules():
        if isinstance(layer, Scaling):
            layer.fit(features)


class ScaledRanker(nn.Module):
    """Put a `Scaling` layer before a model of rows and their lists, `model(features, query_ids)`.

    Args:
        model: the model.
        width, kind, fill_missing: see `Scaling`.
    """

    def __init__(self, model: nn.Module, width: int, kind: str, *, fill_missing: bool = False) -> None:
        super().__init__()
        self.scaling = Scaling(width, kind, fill_missing=fill_missing)
        self.model = model

    def forward(self, features: Tensor, query_ids: Tensor | None = None) -> Tensor:
        """Score rows (N, D) in their lists (N,)."""
        scores: Tensor = self.model(self.scaling(features), query_ids)
        return scores


@torch.no_grad()
def reset_last_layer(model: nn.Module, seed: int = 0) -> None:
    """Draw the weights of the last linear layer anew, in the way torch first did; the same in every process.

    Args:
        model: with at least one `nn.Linear`.
        seed: decides the weights; torch's random state is neither read nor changed.
    """
    layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
    if not layers:
        raise ValueError("model: expected a linear layer to reset, got none")
    last = layers[-1]
    bound = 1 / math.sqrt(last.in_features)
    generator = torch.Generator().manual_seed(seed)
    for parameter in (last.weight, last.bias):
        if parameter is not None:
            drawn = torch.rand(parameter.shape, generator=generator) * 2 * bound - bound
            parameter.copy_(drawn)


class ContextAwareRanker(nn.Module):
    """Transformer encoder over the items of each list, without positional encoding: their order does not matter.

    Args:
        inputs: D, the number of features.
        dimensions: width of the encoder.
        layers: number of encoder layers; heads: attention heads of each; feedforward: width of its feedforward part.
        dropout: dropout rate of the encoder in training.

    Example:
        >>> ranker = ContextAwareRanker(5, dimensions=16, feedforward=32).eval()
        >>> features, query_ids = torch.rand(6, 5), torch.tensor([7, 7, -1, 7, -1, 7])
        >>> ranker(features, query_ids).shape
        torch.Size([6])

    Paper: Pobrotyn et al., Context-aware learning to rank with self-attention, 2020.
    """

    def __init__(
        self,
        inputs: int,
        *,
        dimensions: int = 96,
        layers: int = 2,
        heads: int = 2,
        feedforward: int = 384,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.enter = nn.Linear(inputs, dimensions)
        layer = nn.TransformerEncoderLayer(
            dimensions, heads, feedforward, dropout, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, layers, norm=nn.LayerNorm(dimensions), enable_nested_tensor=False)
        self.leave = nn.Linear(dimensions, 1)

    def forward(self, features: Tensor, query_ids: Tensor | None = None, *, mask: Tensor | None = None) -> Tensor:
        """Return the scores, one per row.

        Args:
            features: (N, D) rows, or (Q, L, D) padded lists.
            query_ids: (N,) which list each row belongs to, in any order; None if all rows are one list.
            mask: (Q, L) for padded lists, False where there is no item; those score 0.
        """
        if features.ndim == 3:
            everything = torch.ones(features.shape[:2], dtype=torch.bool, device=features.device)
            return self._score_lists(features, everything if mask is None else mask)
        if features.ndim != 2:
            raise ValueError(f"features: expected (N, D) or (Q, L, D), got shape {tuple(features.shape)}")
        if query_ids is None:
            return self._score_lists(features[None], torch.ones_like(features[None, :, 0], dtype=torch.bool))[0]
        ids = check_ids("query_ids", query_ids)
        check_same_shape("query_ids", ids, "one id per row", features.shape[:1])
        rows = torch.arange(len(features), device=features.device)
        # The numbers of the rows travel as labels; what is packed as scores does not matter.
        blocks = pack(torch.zeros(len(rows), device=rows.device), rows, query_ids=ids).blocks
        scores = [self._score_lists(features[block.labels], block.mask)[block.mask] for block in blocks]
        return torch.cat(scores)[torch.cat([block.labels[block.mask] for block in blocks]).argsort()]

    def _score_lists(self, features: Tensor, mask: Tensor) -> Tensor:
        # A list without items would attend to nothing, which is undefined; let it see its padding instead.
        hidden = mask.logical_not() & mask.any(1, keepdim=True)
        inside = self.encoder(self.enter(features), src_key_padding_mask=hidden)
        scores: Tensor = self.leave(inside).squeeze(-1)
        return scores.masked_fill(~mask, 0)


class Members(nn.Module):
    """M fully connected scorers with C outputs each; no hidden layer makes them linear.

    Args:
        members: M; inputs: D, the numbers in a row; outputs: C.
        hidden: the widths of the hidden layers.
        generator: decides the initial weights; by default torch's random state does.

    Example:
        >>> members = Members(3, 8, 1, hidden=(16,), generator=torch.Generator().manual_seed(0))
        >>> members(torch.rand(5, 8, dtype=torch.float64)).shape
        torch.Size([3, 5, 1])
    """

    def __init__(
        self,
        members: int,
        inputs: int,
        outputs: int,
        *,
        hidden: Sequence[int],
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.members = members
        widths = (inputs, *hidden, outputs)
        self.weights = nn.ParameterList()
        self.biases = nn.ParameterList()
        for wide, narrow in pairwise(widths):
            bound = wide**-0.5
            shapes = (members, wide, narrow), (members, 1, narrow)
            weight, bias = (torch.rand(shape, generator=generator, dtype=torch.float64) for shape in shapes)
            self.weights.append(nn.Parameter((2 * weight - 1) * bound))
            self.biases.append(nn.Parameter((2 * bias - 1) * bound))

    def forward(self, features: Tensor) -> Tensor:
        """Map rows (B, D) for all members, or (M, B, D) for each, to scores (M, B, C)."""
        values = features
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            values = torch.matmul(torch.relu(values) if layer else values, weight) + bias
        return values


# Codes of inputs that are no value of a category: a number, and the mark of a missing cell.
NUMBER, MISSING = -1, 0


class Columns(nn.Module):
    """Join the inputs of each column of a table to one number, as trees like them; NaN where a cell is missing.

    A split on a column with missing cells or with many categories then takes one decision instead of several.

    Args:
        codes: for each of D inputs its column and its code: `NUMBER`; `MISSING` if it is 1 where the cell is missing;
            otherwise the code, from 1, of the category that it is 1 for.

    Example:
        A number, the mark of its missing cells, and a category with two values.

        >>> columns = Columns([(0, NUMBER), (0, MISSING), (1, 1), (1, 2)])
        >>> columns(torch.tensor([[5.0, 0, 0, 1], [6.0, 1, 1, 0], [7.0, 0, 0, 0]]))
        tensor([[5., 2.],
                [nan, 1.],
                [7., nan]])
    """

    numbers: Tensor
    marks: Tensor
    values: Tensor
    weights: Tensor

    def __init__(self, codes: Sequence[tuple[int, int]]) -> None:
        super().__init__()
        numbers = [entry for entry, (_, code) in enumerate(codes) if code == NUMBER]
        marks = {column: entry for entry, (column, code) in enumerate(codes) if code == MISSING}
        values = [entry for entry, (_, code) in enumerate(codes) if code > MISSING]
        categories = list(dict.fromkeys(codes[entry][0] for entry in values))
        weights = torch.zeros(len(values), len(categories))
        for row, entry in enumerate(values):
            column, code = codes[entry]
            weights[row, categories.index(column)] = code
        # Numbers without a mark take the 0 behind the last input.
        marked = [marks.get(codes[entry][0], len(codes)) for entry in numbers]
        for name, indices in (("numbers", numbers), ("marks", marked), ("values", values)):
            self.register_buffer(name, torch.tensor(indices, dtype=torch.int64), persistent=False)
        self.register_buffer("weights", weights, persistent=False)
        self.width = len(numbers) + len(categories)

    def forward(self, inputs: Tensor, scaled: Tensor | None = None) -> Tensor:
        """Map inputs (N, D) to columns (N, C): numbers, then the codes of categories.

        Args:
            inputs: (N, D) without NaN.
            scaled: (N, D) what numbers are to be instead.
        """
        numbers = (inputs if scaled is None else scaled).index_select(1, self.numbers)
        absent = functional.pad(inputs, (0, 1)).index_select(1, self.marks) > 0
        codes = inputs.index_select(1, self.values) @ self.weights.to(inputs)
        return torch.cat([numbers.masked_fill(absent, torch.nan), codes.masked_fill(codes < 1, torch.nan)], 1)
