"""Users and items as vectors: matrix factorisation."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

__all__ = ["MatrixFactorisation", "items_beside"]


class MatrixFactorisation(nn.Module):
    """The score of an item for a user: `p_u . q_i + b_i`.

    Args:
        users, items: how many there are.
        dimensions: the length of the vectors p and q.
        item_bias: whether items have a bias b. (One per user would not change the user's ranking.)
        spread: standard deviation of the vectors at the start, times 1 / sqrt(dimensions).

    Example:
        >>> model = MatrixFactorisation(users=10, items=50, dimensions=8)
        >>> model(torch.tensor([3, 4])).shape, model(torch.tensor([3]), torch.tensor([[7, 0]])).shape
        (torch.Size([2, 50]), torch.Size([1, 2]))

    Paper: Koren, Bell and Volinsky, Matrix factorization techniques for recommender systems, IEEE Computer 2009.
    """

    def __init__(
        self, users: int, items: int, *, dimensions: int = 64, item_bias: bool = True, spread: float = 1.0
    ) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(users, dimensions), nn.Embedding(items, dimensions)
        self.bias = nn.Parameter(torch.zeros(items)) if item_bias else None
        for table in (self.users, self.items):
            nn.init.normal_(table.weight, std=spread * dimensions**-0.5)

    def forward(self, users: Tensor, items: Tensor | None = None) -> Tensor:
        """Scores.

        Args:
            users: (B,).
            items: (B,) one item for each user, (B, K) several; None scores all items by one matrix product.

        Returns:
            The shape of `items`, or (B, number of items).
        """
        vectors: Tensor = self.users(users)
        if items is None:
            scores = vectors @ self.items.weight.T
            return scores if self.bias is None else scores + self.bias
        beside = items_beside(users, items)
        scores = (vectors[:, None] * cast(Tensor, self.items(beside))).sum(2)
        return (scores if self.bias is None else scores + self.bias[beside]).view(items.shape)


def items_beside(users: Tensor, items: Tensor) -> Tensor:
    """Items (B,) or (B, K) for users (B,), as (B, K)."""
    if users.ndim != 1 or items.ndim not in (1, 2) or len(items) != len(users):
        raise ValueError(
            f"items: expected one (B,) or several (B, K) for each of the users {tuple(users.shape)}, "
            f"got {tuple(items.shape)}"
        )
    return items if items.ndim == 2 else items[:, None]
