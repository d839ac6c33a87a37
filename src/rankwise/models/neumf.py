"""NeuMF: a product of vectors and a network on vectors, side by side."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from rankwise.models.factorisation import items_beside
from rankwise.models.mlp import fully_connected

__all__ = ["NeuMF"]


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
