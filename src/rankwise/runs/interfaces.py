"""Named tensors by which an exported model is called, one form per input of a problem: rows, lists, images, users."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from rankwise.data import (
    ArrayImages,
    ImagePart,
    ImageSchema,
    InteractionPart,
    InteractionSchema,
    Part,
    SparsePart,
    SparseRows,
    SparseSchema,
    TableSchema,
    TextSchema,
)
from rankwise.data.features import FeatureEncoding
from rankwise.models import ScaledRanker, Scaling

if TYPE_CHECKING:
    from rankwise.runs.run import Run

__all__ = ["Interface", "TableEncoder", "interface_of"]

# Rows, images, users or lists on which an exported model is compared with its run.
CHECKED = 64
LONGEST = 12  # of the synthetic lists
USERS_ONLY = ("matrix-factorisation", "neumf")


class Interface(ABC):
    """The inputs and the output of an exported model, and how the parts of a run become such inputs.

    Args:
        run: the run.
        model: a copy of its model, on the CPU and in evaluation mode.

    Attributes:
        inputs: shape of each input by name; dimensions of any size are words.
        columns: of a table, names along the last dimension of `features`.
        module: takes the inputs in this order and returns one output.
    """

    inputs: dict[str, tuple[str | int, ...]]
    columns: Sequence[str] | None = None
    module: nn.Module
    schema: ClassVar[type[Any]]

    def __init__(self, run: Run, model: nn.Module) -> None:
        self.run, self.model = run, model

    @property
    def output(self) -> str:
        """Return the name of the output: scores or vectors."""
        return self.run.problem.outputs

    def metadata(self) -> dict[str, Any]:
        """Return the schema as plain values."""
        values: dict[str, Any] = self.run.schema.to_json()
        return values

    @abstractmethod
    def synthetic(self, generator: torch.Generator) -> Any:
        """Return a part with random content, without labels."""

    @abstractmethod
    def first(self, part: Any) -> Any:
        """Return the part that holds the first `CHECKED` entries only."""

    @abstractmethod
    def tensors(self, part: Any) -> tuple[Tensor, ...]:
        """Return the inputs for a part."""

    def expected(self, part: Any) -> Tensor:
        """Return the run's own output for a part, in the shape of the exported model's."""
        output = self.run.problem.predict(self.run.model, part)
        assert isinstance(output, Tensor)
        return output


class _ScoreRows(nn.Module):
    def __init__(self, model: nn.Module, encoder: nn.Module) -> None:
        super().__init__()
        self.model, self.encoder = model, encoder

    def forward(self, features: Tensor) -> Tensor:
        scores: Tensor = self.model(self.encoder(features))
        return scores


class Rows(Interface):
    """Rows of a table: `features` (rows, K), one number per column, see `TableEncoder`; their names are `columns`."""

    schema = TableSchema

    def __init__(self, run: Run, model: nn.Module) -> None:
        super().__init__(run, model)
        self.table = TableEncoder(run.schema.encoding)
        self.encoder: nn.Module = nn.Identity() if self.table.changes_nothing else self.table
        self.inputs = {"features": ("rows", len(self.table.columns))}
        self.columns = self.table.columns
        self.module = _ScoreRows(model, self.encoder)

    def synthetic(self, generator: torch.Generator) -> Part:
        return Part(self._features(CHECKED, generator), None)

    def first(self, part: Part) -> Part:
        return part.take(torch.arange(min(CHECKED, len(part))))

    def tensors(self, part: Part) -> tuple[Tensor, ...]:
        return (self.table.decode(part.features[:]),)

    def _features(self, rows: int, generator: torch.Generator) -> Tensor:
        """Return random rows with the means and spreads that the model has learned, missing values among them."""
        drawn = torch.randn(rows, len(self.run.schema.inputs), generator=generator)
        layer = next((each for each in self.model.modules() if isinstance(each, Scaling)), None)
        if layer is not None:
            drawn = layer.mean + drawn / torch.where(layer.factor > 0, layer.factor, 1.0)
            if layer.kind == "log":
                drawn = drawn.sign() * drawn.abs().expm1()
            if layer.median is not None:
                drawn[torch.rand(drawn.shape, generator=generator) < 0.1] = torch.nan
        return self.table.make_consistent(drawn, generator)


class _ScoreLists(_ScoreRows):
    def forward(self, features: Tensor, mask: Tensor) -> Tensor:  # type: ignore[override]
        assert isinstance(self.model, ScaledRanker)
        scores: Tensor = self.model.model(self.model.scaling(self.encoder(features)), mask=mask)
        return scores


class Lists(Rows):
    """Lists of rows, for a model that sees whole lists: `features` (lists, items, D) and `mask` (lists, items), False
    where there is no item; the scores of those are 0."""

    def __init__(self, run: Run, model: nn.Module) -> None:
        super().__init__(run, model)
        self.inputs = {"features": ("lists", "items", len(self.table.columns)), "mask": ("lists", "items")}
        self.module = _ScoreLists(model, self.encoder)

    def synthetic(self, generator: torch.Generator) -> Part:
        lengths = torch.randint(1, LONGEST + 1, (CHECKED,), generator=generator)
        query_ids = torch.repeat_interleave(torch.arange(CHECKED), lengths)
        return Part(self._features(len(query_ids), generator), None, query_ids)

    def first(self, part: Part) -> Part:
        return part.take(torch.isin(self._ids(part), self._ids(part).unique()[:CHECKED]).nonzero().squeeze(1))

    def tensors(self, part: Part) -> tuple[Tensor, ...]:
        index = self._index(part)
        features = self.table.decode(part.features[:])[index]
        return torch.where(index[:, :, None] < 0, 0.0, features), index >= 0

    def expected(self, part: Part) -> Tensor:
        index = self._index(part)
        return super().expected(part)[index].masked_fill(index < 0, 0)

    def _index(self, part: Part) -> Tensor:
        """Return the rows of each list (lists, items), -1 where there is none."""
        _, list_of_row, lengths = self._ids(part).unique(return_inverse=True, return_counts=True)
        rows = list_of_row.argsort(stable=True).split(lengths.tolist())
        return pad_sequence(list(rows), batch_first=True, padding_value=-1)

    def _ids(self, part: Part) -> Tensor:
        assert part.query_ids is not None
        return part.query_ids


class _ScoreImages(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        outputs: Tensor = self.model(images.float() / 255)
        return outputs


class Images(Interface):
    """Images as bytes: `images` (images, C, size, size) uint8, resized, cropped and inverted as the schema says."""

    schema = ImageSchema

    def __init__(self, run: Run, model: nn.Module) -> None:
        super().__init__(run, model)
        self.inputs = {"images": ("images", *run.schema.shape)}
        self.module = _ScoreImages(model)

    def synthetic(self, generator: torch.Generator) -> ImagePart:
        # Squares of equal bytes have more contrast left after a convolution than noise has.
        channels, size, _ = self.run.schema.shape
        squares = torch.randint(256, (CHECKED, channels, 4, 4), generator=generator, dtype=torch.uint8)
        images = squares.repeat_interleave(-(-size // 4), 2).repeat_interleave(-(-size // 4), 3)[..., :size, :size]
        return ImagePart(ArrayImages(images), torch.arange(CHECKED), None)

    def first(self, part: ImagePart) -> ImagePart:
        return part.take(torch.arange(min(CHECKED, len(part))))

    def tensors(self, part: ImagePart) -> tuple[Tensor, ...]:
        return (torch.stack([part.picture(index) for index in range(len(part))]),)


class Words(Interface):
    """Sparse examples as dense rows: `features` (rows, D)."""

    schema = SparseSchema

    def __init__(self, run: Run, model: nn.Module) -> None:
        super().__init__(run, model)
        if run.schema.longest is not None:
            raise ValueError("run: expected a model of counts of words to export, got one of texts (xml-cnn)")
        self.inputs = {"features": ("rows", run.schema.features)}
        self.module = _ScoreRows(model, nn.Identity())

    def synthetic(self, generator: torch.Generator) -> SparsePart:
        return SparsePart(_random_rows(self.run.schema.features, generator), None)

    def first(self, part: SparsePart) -> SparsePart:
        return replace(part, features=part.features.take(torch.arange(min(CHECKED, len(part)))), targets=None)

    def tensors(self, part: SparsePart) -> tuple[Tensor, ...]:
        return (part.features.dense(),)


class _ScoreHistories(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, history: Tensor) -> Tensor:
        scores: Tensor = self.model(history)
        return scores


class Histories(Interface):
    """Histories of users: `history` (users, items), 1 for what a user chose before and 0 elsewhere, the items in the
    order of the schema. The names of the users are left out, which the model does not need."""

    schema = InteractionSchema

    def __init__(self, run: Run, model: nn.Module) -> None:
        super().__init__(run, model)
        self.inputs = {"history": ("users", len(run.schema.items))}
        self.module = _ScoreHistories(model)

    def metadata(self) -> dict[str, Any]:
        return {name: value for name, value in super().metadata().items() if name != "users"}

    def synthetic(self, generator: torch.Generator) -> InteractionPart:
        rows = _random_rows(len(self.run.schema.items), generator)
        users = torch.arange(CHECKED) % len(self.run.schema.users)
        return InteractionPart(rows, None, users, tuple(map(str, range(CHECKED))), self.run.schema.items)

    def first(self, part: InteractionPart) -> InteractionPart:
        kept = torch.arange(min(CHECKED, len(part)))
        names = part.user_names[: len(kept)]
        return replace(part, known=part.known.take(kept), wanted=None, users=part.users[kept], user_names=names)

    def tensors(self, part: InteractionPart) -> tuple[Tensor, ...]:
        return (part.known.dense(),)


class _ScoreUsers(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, users: Tensor) -> Tensor:
        scores: Tensor = self.model(users)
        return scores


class Users(Histories):
    """Users that the model has a vector for: `users` (users,), their index among the schema's `users`."""

    def __init__(self, run: Run, model: nn.Module) -> None:
        super().__init__(run, model)
        self.inputs = {"users": ("users",)}
        self.module = _ScoreUsers(model)

    def metadata(self) -> dict[str, Any]:
        return Interface.metadata(self)

    def tensors(self, part: InteractionPart) -> tuple[Tensor, ...]:
        return (part.users,)


def interface_of(run: Run, model: nn.Module) -> Interface:
    """Return the interface of a run's model; raise an error for a kind that cannot be exported."""
    if run.problem.outputs == "boxes":
        raise ValueError(
            f"export: expected a run that gives scores or vectors, got {run.problem.kind}: the number of its boxes, "
            "chosen by non-maximum suppression outside the model, differs from image to image; run.predict gives them"
        )
    if isinstance(run.schema, TextSchema):
        raise ValueError("export: expected a run whose model takes numbers, got text-search; run.search and run.embed")
    if isinstance(model, ScaledRanker):
        return Lists(run, model)
    if isinstance(run.schema, InteractionSchema) and run.problem.model.name in USERS_ONLY:  # type: ignore[attr-defined]
        return Users(run, model)
    return next(each for each in (Rows, Images, Words, Histories) if isinstance(run.schema, each.schema))(run, model)


def _random_rows(width: int, generator: torch.Generator) -> SparseRows:
    """Return `CHECKED` rows of ones, up to 20 in each."""
    columns = torch.randint(width, (CHECKED, min(20, width)), generator=generator)
    rows = torch.arange(CHECKED)[:, None].expand_as(columns)
    return SparseRows.of_pairs(rows.flatten(), columns.flatten(), height=CHECKED, width=width)


class TableEncoder(nn.Module):
    """Turn K numbers per row, one for each column, into the D inputs of a model.

    A category is given as the index of its value among the known ones, -1 for any other. A date is three columns: days
    since 1970, month and weekday. NaN is a missing number.

    Args:
        encoding: of the table.

    Attributes:
        columns: names of the K columns.
        source: (D,) the column of each input.
        origin: (D,) subtracted first; float64 if there is any, as float32 cannot hold such columns.
        code: (D,) of an input of a category, the index of its value; NaN elsewhere.
        missing: (D,) whether an input is 1 for missing cells.

    Example:
        >>> encoder = TableEncoder(FeatureEncoding(("size", "site"), {"site": ("left", "right")}, indicators=("size",)))
        >>> encoder.columns, encoder(torch.tensor([[2.5, 1.0], [torch.nan, -1.0]])).tolist()
        (['size', 'site'], [[2.5, 0.0, 0.0, 1.0], [nan, 1.0, 0.0, 0.0]])
    """

    source: Tensor
    origin: Tensor
    code: Tensor
    missing: Tensor

    def __init__(self, encoding: FeatureEncoding) -> None:
        super().__init__()
        names, origins, codes, missing = zip(*_inputs(encoding), strict=True)
        self.columns = list(dict.fromkeys(names))
        index = {name: number for number, name in enumerate(self.columns)}
        dtype = torch.float64 if encoding.origins else torch.float32
        self.register_buffer("source", torch.tensor([index[name] for name in names]))
        self.register_buffer("origin", torch.tensor(origins, dtype=dtype))
        self.register_buffer("code", torch.tensor(codes, dtype=dtype))
        self.register_buffer("missing", torch.tensor(missing))

    @property
    def changes_nothing(self) -> bool:
        """Return whether the inputs are the columns as they are."""
        return bool(self.code.isnan().all() and not self.missing.any() and not self.origin.any())

    def forward(self, columns: Tensor) -> Tensor:
        """Encode columns (..., K) as inputs (..., D)."""
        cells = columns.index_select(-1, self.source)
        values = torch.where(self.code.isnan(), cells - self.origin, (cells == self.code).to(cells.dtype))
        return torch.where(self.missing, cells.isnan().to(cells.dtype), values).float()

    def decode(self, inputs: Tensor) -> Tensor:
        """Return the columns (N, K) that inputs (N, D) come from."""
        columns = torch.full((len(inputs), len(self.columns)), -1, dtype=self.origin.dtype)
        for index, source in enumerate(self.source.tolist()):
            if not self.code[index].isnan():
                columns[inputs[:, index] == 1, source] = self.code[index]
            elif not self.missing[index]:
                columns[:, source] = inputs[:, index].to(columns.dtype) + self.origin[index]
        return columns

    def make_consistent(self, inputs: Tensor, generator: torch.Generator) -> Tensor:
        """Return random inputs (N, D) as a table has them: one value or none of each category, missing cells marked."""
        inputs = inputs.clone()
        for column in range(len(self.columns)):
            own = self.source == column
            values = (own & ~self.code.isnan()).nonzero().squeeze(1)
            drawn = torch.randint(-1, max(1, len(values)), (len(inputs), 1), generator=generator)
            inputs[:, values] = (drawn == torch.arange(len(values))).float()
            if bool((own & self.missing).any()):
                (number,) = (own & ~self.missing).nonzero().squeeze(1).tolist()
                inputs[:, own & self.missing] = inputs[:, number, None].isnan().float()
        return inputs


def _inputs(encoding: FeatureEncoding) -> Iterator[tuple[str, float, float, bool]]:
    """Yield the column, origin, code and whether it marks missing cells, of each input."""
    for name in encoding.names:
        if name in encoding.categories:
            yield from ((name, 0.0, float(code), False) for code in range(len(encoding.categories[name])))
            continue
        marked = name in encoding.indicators
        own = encoding.inputs_of(name)
        for value in own[: len(own) - marked]:
            yield value, encoding.origins.get(name, 0.0) if value == name else 0.0, torch.nan, False
        if marked:
            yield name, 0.0, torch.nan, True
