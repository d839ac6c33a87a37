"""EASE: the best linear item-item weights without self-similarity, in closed form."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rankwise.checks import check_positive

__all__ = ["EASE"]


class EASE(nn.Module):
    """`S = X B`, B the minimiser of `|X - X B|^2 + regularisation |B|^2` with a diagonal of zeros.

    With `P = (X^T X + regularisation I)^-1` it is `B[i, j] = -P[i, j] / P[j, j]` off the diagonal. One Cholesky
    factorisation: O(items^3) time, 16 items^2 bytes.

    Args:
        items: how many there are.
        regularisation: lambda; the larger, the less rare items are trusted.

    Example:
        >>> history = torch.tensor([[1, 1, 0], [1, 1, 0], [0, 1, 1]])
        >>> model = EASE(items=3, regularisation=0.5).fit(history)
        >>> model(torch.tensor([[1, 0, 0]])).argmax()
        tensor(1)

    Paper: Steck, Embarrassingly shallow autoencoders for sparse data, WWW 2019.
    """

    weights: Tensor

    def __init__(self, items: int, *, regularisation: float = 1000.0) -> None:
        super().__init__()
        self.regularisation = check_positive("regularisation", regularisation)
        self.register_buffer("weights", torch.zeros(items, items))

    @torch.no_grad()
    def fit(self, history: Tensor) -> EASE:
        """Find B from the histories of all users (U, items), dense or sparse, 1 where a user has had the item."""
        items = len(self.weights)
        if history.ndim != 2 or history.shape[1] != items:
            raise ValueError(f"history: expected (U, {items}), got {tuple(history.shape)}")
        if history.layout != torch.strided:
            history = history.to_sparse_coo()
        gram = self.weights.new_zeros(items, items, dtype=torch.float64)
        for first in range(0, len(history), _USERS):
            part = _rows(history, first, first + _USERS).to(self.weights.dtype)
            # Counts are whole numbers, exact in float32 as long as a chunk has fewer than 2^24 users.
            gram += part.T @ part
        gram.diagonal().add_(self.regularisation)
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(gram))
        weights = inverse / -inverse.diagonal()
        self.weights.copy_(weights.fill_diagonal_(0))
        return self

    def forward(self, history: Tensor) -> Tensor:
        """Scores (B, items) of all items from histories (B, items)."""
        return history.to(self.weights.dtype) @ self.weights


# Users whose histories are made dense at once.
_USERS = 4096


def _rows(history: Tensor, first: int, last: int) -> Tensor:
    if history.layout == torch.strided:
        return history[first:last]
    rows = torch.arange(first, min(last, len(history)), device=history.device)
    return history.index_select(0, rows).to_dense()
