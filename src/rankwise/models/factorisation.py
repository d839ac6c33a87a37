"""Recommendation by vectors of users and items: matrix factorisation, and NeuMF with a network on top."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from rankwise.models.rows import fully_connected

__all__ = ["MatrixFactorisation", "NeuMF", "items_beside"]


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


class NeuMF(nn.Module):
    """Neural matrix factorisation: `w . [p_u * q_i, MLP([p'_u, q'_i])]`, the two parts with vectors of their own.

    Args:
        users, items: how many there are.
        dimensions: the length of all vectors.
        hidden: widths of the layers of the network on the pair of vectors, at least one.

    Example:
        >>> model = NeuMF(users=10, items=50, dimensions=8, hidden=(16, 8))
        >>> model(torch.tensor([3, 4]), torch.tensor([[7, 0], [1, 2]])).shape, model(torch.tensor([3])).shape
        (torch.Size([2, 2]), torch.Size([1, 50]))

    Paper: He et al., Neural collaborative filtering, WWW 2017.
    """

    def __init__(self, users: int, items: int, *, dimensions: int = 64, hidden: Sequence[int] = (128, 64, 32)) -> None:
        super().__init__()
        if not hidden:
            raise ValueError("hidden: expected at least one width, got none")
        self.product_users, self.product_items = nn.Embedding(users, dimensions), nn.Embedding(items, dimensions)
        self.network_users, self.network_items = nn.Embedding(users, dimensions), nn.Embedding(items, dimensions)
        for table in (self.product_users, self.product_items, self.network_users, self.network_items):
            nn.init.normal_(table.weight, std=dimensions**-0.5)
        # The first layer on [p', q'] is the sum of one on p' and one on q': no pair has to be put together for it.
        self.enter_user, self.enter_item = (
            nn.Linear(dimensions, hidden[0]),
            nn.Linear(dimensions, hidden[0], bias=False),
        )
        self.network = fully_connected(hidden[0], hidden[1:], 1)
        self.product_weights = nn.Parameter(torch.ones(dimensions))

    def forward(self, users: Tensor, items: Tensor | None = None) -> Tensor:
        """Scores of users (B,) for items (B,) or (B, K), in their shape; without items for all items, (B, items)."""
        own = self.product_users(users) * self.product_weights
        entered = self.enter_user(self.network_users(users))[:, None]
        if items is None:
            products = own @ self.product_items.weight.T
            entered = entered + self.enter_item(self.network_items.weight)
        else:
            beside = items_beside(users, items)
            products = (own[:, None] * self.product_items(beside)).sum(2)
            entered = entered + self.enter_item(self.network_items(beside))
        scores: Tensor = products + self.network(relu(entered)).squeeze(2)
        return scores if items is None else scores.view(items.shape)
