"""Linear models in closed form: EASE for items, ridge regression for labels; a blend of one with a trained model."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from rankwise.checks import check_count, check_positive

__all__ = ["EASE", "Blend", "Ridge", "fit_list_regression", "standardise"]

# Rows that are made dense at once.
_ROWS = 4096


class _Solved(nn.Module):
    """A linear model of some columns of its input, with weights that `fit` solves for.

    There are no weights before. Loading a state gives the buffers the shapes that it has.
    """

    weights: Tensor
    columns: Tensor

    def __init__(self, inputs: int, most: int | None) -> None:
        super().__init__()
        self.inputs = check_count("inputs", inputs)
        self.most = inputs if most is None else min(inputs, check_count("most", most))
        self.register_buffer("weights", torch.zeros(0, 0))
        self.register_buffer("columns", torch.zeros(0, dtype=torch.int64))

    @property
    def fitted(self) -> bool:
        """Return whether there are weights."""
        return len(self.columns) > 0

    def _keep(self, counts: Tensor) -> None:
        """Keep the columns with the highest counts (inputs,), in their order; of equal ones the first."""
        self.columns = counts.argsort(descending=True, stable=True)[: self.most].sort().values

    def _kept(self, rows: Tensor) -> Tensor:
        return rows if len(self.columns) == self.inputs else rows[:, self.columns]

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        for name, buffer in (("weights", self.weights), ("columns", self.columns)):
            given = state_dict.get(prefix + name)
            if isinstance(given, Tensor) and given.shape != buffer.shape:
                setattr(self, name, buffer.new_empty(given.shape))
        super()._load_from_state_dict(state_dict, prefix, *rest)
        if len(self.columns) and not 0 <= int(self.columns.min()) <= int(self.columns.max()) < self.inputs:
            raise RuntimeError(f"columns: expected 0 to {self.inputs - 1}, got others")


class EASE(_Solved):
    """`S = X B`, B the minimiser of `sum_u w_u |x_u - x_u B|^2 + regularisation |B|^2` with a diagonal of zeros.

    With `P = (X^T diag(w) X + regularisation I)^-1` it is `B[i, j] = -P[i, j] / P[j, j]` off the diagonal. One Cholesky
    factorisation: O(items^3) time, 24 items^2 bytes. Above `most` items only the most popular are scored, all others
    get 0.

    Args:
        items: how many there are.
        regularisation: lambda; the larger, the less rare items are trusted.
        user_power: users with n items weigh `w = n^-user_power`; 0 is EASE of the paper, 1/2 lets users with long
            histories count less.
        popularity_power: the scores of an item that p users have chosen are divided by `p^popularity_power`.
        most: the largest number of items; None has no limit.

    Example:
        >>> history = torch.tensor([[1, 1, 0], [1, 1, 0], [0, 1, 1]])
        >>> model = EASE(items=3, regularisation=0.5).fit(history)
        >>> model(torch.tensor([[1, 0, 0]])).argmax()
        tensor(1)

    Paper: Steck, Embarrassingly shallow autoencoders for sparse data, WWW 2019.
    """

    def __init__(
        self,
        items: int,
        *,
        regularisation: float = 1000.0,
        user_power: float = 0.0,
        popularity_power: float = 0.0,
        most: int | None = None,
    ) -> None:
        super().__init__(items, most)
        self.regularisation = check_positive("regularisation", regularisation)
        self.user_power = check_positive("user_power", user_power, zero=True)
        self.popularity_power = check_positive("popularity_power", popularity_power, zero=True)

    @torch.no_grad()
    def fit(self, history: Tensor) -> EASE:
        """Find B from the histories of all users (U, items), dense or sparse, 1 where a user has had the item."""
        return self.solve(self.gram(history))

    @torch.no_grad()
    def gram(self, history: Tensor) -> Tensor:
        """Return `X^T diag(w) X` of the items that are kept, float64; choose these items.

        It depends on neither regularisation nor popularity_power, so that several can be tried with `solve`.
        """
        if history.ndim != 2 or history.shape[1] != self.inputs:
            raise ValueError(f"history: expected (U, {self.inputs}), got {tuple(history.shape)}")
        history = history.to_sparse_coo().coalesce()
        self.popularity = _sums(history, 0)
        self._keep(self.popularity)
        lengths = _sums(history, 1).to(self.weights.dtype)
        # Only kept columns are made dense: a catalogue may be far larger than what is kept.
        kept = history if len(self.columns) == self.inputs else history.index_select(1, self.columns).coalesce()
        gram = self.weights.new_zeros(len(self.columns), len(self.columns), dtype=torch.float64)
        for first in range(0, len(history), _ROWS):
            part = _rows(kept, first).to(self.weights.dtype)
            users = lengths[first : first + _ROWS, None].clamp_min(1).pow(-self.user_power)
            # Unweighted counts are whole numbers, exact in float32 as a chunk has fewer than 2^24 users.
            gram += torch.sparse.mm(part.T.to_sparse(), part * users)
        return gram

    @torch.no_grad()
    def solve(self, gram: Tensor) -> EASE:
        """Find B from what `gram` returned."""
        gram = gram.clone()
        gram.diagonal().add_(self.regularisation)
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(gram))
        divisor = self.popularity[self.columns].clamp_min(1).pow(self.popularity_power)
        weights = inverse / (-inverse.diagonal() * divisor)
        self.weights = weights.fill_diagonal_(0).to(self.weights.dtype).contiguous()
        return self

    def forward(self, history: Tensor) -> Tensor:
        """Return the scores (B, items) of all items from histories (B, items)."""
        history = history.to(self.weights.dtype)
        if len(self.columns) == self.inputs:
            return history @ self.weights
        scores = torch.zeros_like(history)
        scores[:, self.columns] = history[:, self.columns] @ self.weights
        return scores


class Ridge(_Solved):
    """`S = x W`, x the rows brought to length 1, W the minimiser of `sum_r w_r |y_r - x_r W|^2 + regularisation |W|^2`.

    A row with n labels weighs `w = n^-1/2`, so that those with many do not decide alone. One Cholesky factorisation:
    O(features^3) time. Above `most` features only the most frequent are used.

    Args:
        features: D; labels: L, how many there are.
        regularisation: lambda.
        most: the largest number of features; None has no limit.

    Example:
        >>> rows = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
        >>> model = Ridge(2, 2, regularisation=0.1).fit(rows, torch.tensor([[1, 0], [0, 1], [1, 1]]))
        >>> model(torch.tensor([[3.0, 1.0]])).argmax()
        tensor(0)
    """

    def __init__(self, features: int, labels: int, *, regularisation: float = 1.0, most: int | None = None) -> None:
        super().__init__(features, most)
        self.labels = check_count("labels", labels)
        self.regularisation = check_positive("regularisation", regularisation)

    @torch.no_grad()
    def fit(self, rows: Tensor, labels: Tensor) -> Ridge:
        """Find W from rows (N, D) and labels (N, L), 0 or 1, both dense or sparse."""
        return self.solve(*self.products(rows, labels))

    @torch.no_grad()
    def products(self, rows: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return `X^T diag(w) X` and `X^T diag(w) Y` of the features that are kept, float64; choose these features."""
        rows, labels = (
            each if each.layout == torch.strided else each.to_sparse_coo().coalesce() for each in (rows, labels)
        )
        used = self.weights.new_zeros(self.inputs, dtype=torch.float64)
        for first in range(0, len(rows), _ROWS):
            used += (_rows(rows, first) != 0).sum(0)
        self._keep(used)
        width = len(self.columns)
        gram = self.weights.new_zeros(width, width, dtype=torch.float64)
        targets = self.weights.new_zeros(width, self.labels, dtype=torch.float64)
        for first in range(0, len(rows), _ROWS):
            part = self._kept(self._unit(_rows(rows, first)))
            wanted = _rows(labels, first).to(part.dtype)
            weighted = (part * wanted.sum(1, keepdim=True).clamp_min(1).rsqrt()).T.to_sparse()
            gram += torch.sparse.mm(weighted, part)
            targets += torch.sparse.mm(weighted, wanted)
        return gram, targets

    @torch.no_grad()
    def solve(self, gram: Tensor, targets: Tensor) -> Ridge:
        """Find W from what `products` returned."""
        gram = gram.clone()
        gram.diagonal().add_(self.regularisation)
        solved = torch.cholesky_solve(targets, torch.linalg.cholesky(gram))
        self.weights = solved.to(self.weights.dtype).contiguous()
        return self

    def forward(self, rows: Tensor) -> Tensor:
        """Return the scores (B, L) of all labels from rows (B, D)."""
        if not self.fitted:
            return rows.new_zeros(len(rows), self.labels)
        return self._kept(self._unit(rows)) @ self.weights

    def _unit(self, rows: Tensor) -> Tensor:
        return normalize(rows.to(self.weights.dtype), dim=1)


class Blend(nn.Module):
    """`share standardise(T) + (1 - share) standardise(C)`, T the scores of a trained model, C those of a solved one.

    In training mode, and as long as the solved model is not fitted, the scores are those of the trained model alone: it
    is trained apart.

    Args:
        trained: inputs to scores (B, N).
        solved: an `EASE` or a `Ridge`, the same inputs to scores (B, N).

    Example:
        >>> history = (torch.rand(30, 8) < 0.4).float()
        >>> model = Blend(nn.Linear(8, 8), EASE(8, regularisation=5.0).fit(history)).eval()
        >>> model(history).shape
        torch.Size([30, 8])
    """

    share: Tensor

    def __init__(self, trained: nn.Module, solved: EASE | Ridge) -> None:
        super().__init__()
        self.trained, self.solved = trained, solved
        self.register_buffer("share", torch.tensor(0.5))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the scores (B, N) of the same inputs by both models, mixed."""
        scores: Tensor = self.trained(inputs)
        if self.training or not self.solved.fitted:
            return scores
        return torch.lerp(standardise(self.solved(inputs)), standardise(scores), self.share)


def standardise(scores: Tensor) -> Tensor:
    """Return scores (B, N) minus the mean of their row, over its standard deviation; equal scores become 0.

    Example:
        >>> standardise(torch.tensor([[1.0, 3.0], [2.0, 2.0]]))
        tensor([[-1.,  1.],
                [ 0.,  0.]])
    """
    centred = scores - scores.mean(1, keepdim=True)
    spread = centred.square().mean(1, keepdim=True).sqrt()
    return centred / torch.where(spread > 0, spread, 1.0)


def _sums(matrix: Tensor, axis: int) -> Tensor:
    """Return the sums of a sparse matrix along an axis, float64."""
    zeros = torch.zeros(matrix.shape[1 - axis], dtype=torch.float64, device=matrix.device)
    return zeros.index_add_(0, matrix.indices()[1 - axis], matrix.values().double())


def _rows(matrix: Tensor, first: int) -> Tensor:
    """Return a chunk of rows, dense."""
    if matrix.layout == torch.strided:
        return matrix[first : first + _ROWS]
    rows = torch.arange(first, min(first + _ROWS, len(matrix)), device=matrix.device)
    return matrix.index_select(0, rows).to_dense()


# The penalty of `fit_list_regression` for each row.
_SHRINKAGE = 0.3


def fit_list_regression(rows: Tensor, gains: Tensor, queries: Tensor, weights: Tensor) -> Tensor:
    """Return the coefficients (D,) of a ridge regression of gains (N,) on rows (N, D), within lists.

    Rows and gains are differences from the mean of their list, as nothing else decides the order of a list.

    Args:
        rows: (N, D) of about the same spread in each column; gains: (N,).
        queries: (N,) the list of each row; weights: (N,) above 0.

    Example:
        >>> rows, queries = torch.randn(300, 2, generator=torch.Generator().manual_seed(0)), torch.arange(300) // 10
        >>> fit_list_regression(rows, 5 * queries + 1.4 * rows[:, 0], queries, torch.ones(300)).round(decimals=1)
        tensor([1., 0.], dtype=torch.float64)
    """
    lists, weights = queries.unique(return_inverse=True)[1], weights.double()
    total: Tensor = lists.bincount(weights)[:, None]

    def within_lists(values: Tensor) -> Tensor:
        sums = total.new_zeros(len(total), values.shape[1]).index_add_(0, lists, values * weights[:, None])
        centred: Tensor = (values - (sums / total)[lists]) * weights.sqrt()[:, None]
        return centred

    inputs, targets = within_lists(rows.double()), within_lists(gains.double()[:, None])
    penalty = _SHRINKAGE * weights.sum()
    count, width = inputs.shape
    # Of two systems with the same solution the smaller one.
    if count < width:
        kernel = inputs @ inputs.T + penalty * torch.eye(count, dtype=inputs.dtype, device=inputs.device)
        solved = inputs.T @ torch.linalg.solve(kernel, targets)
    else:
        gram = inputs.T @ inputs + penalty * torch.eye(width, dtype=inputs.dtype, device=inputs.device)
        solved = torch.linalg.solve(gram, inputs.T @ targets)
    coefficients: Tensor = solved[:, 0]
    return coefficients
