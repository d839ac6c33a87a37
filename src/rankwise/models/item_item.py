"""Recommendation by the items of a history: a trained scorer of low rank."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout

from rankwise.checks import check_count, check_same_shape

__all__ = ["ItemItemScorer", "shared_history"]


class ItemItemScorer(nn.Module):
    """`S = x W1 W2 - x diag(W1 W2) + b`, x the history over the square root of its length.

    The second term takes out what an item says of itself, so every item is scored by the OTHER items of the history
    (leave-one-out): what is learnt on the items of a history holds for new ones. There is no vector per user; a new
    user needs a history only.

    Args:
        items: how many there are.
        rank: of W1 W2.
        input_dropout: the share of the history that is left out at random while training.
        base: weights (items, items) that are kept as they are and added to W1 W2, such as those of `EASE`; what is
            learned then corrects them. Their diagonal is not used either.

    Example:
        >>> model = ItemItemScorer(items=50, rank=8).eval()
        >>> history = torch.zeros(2, 50)
        >>> history[0, [3, 7]], history[1, 4] = 1, 1
        >>> model(history).shape
        torch.Size([2, 50])
    """

    base: Tensor | None

    def __init__(self, items: int, *, rank: int = 128, input_dropout: float = 0.5, base: Tensor | None = None) -> None:
        super().__init__()
        check_count("rank", rank)
        if base is not None:
            check_same_shape("base", base, "(items, items)", (items, items))
            base = base.detach().clone().fill_diagonal_(0)
        self.register_buffer("base", base)
        self.input_dropout = input_dropout
        # Either factor alone at zero would make the other's gradient zero; this start is small, not zero.
        self.reads = nn.Parameter(torch.randn(items, rank) * rank**-0.5 * 0.1)
        self.writes = nn.Parameter(torch.randn(rank, items) * rank**-0.5 * 0.1)
        self.bias = nn.Parameter(torch.zeros(items))

    def forward(self, history: Tensor) -> Tensor:
        """Scores (B, items) of all items from histories (B, items), 1 where a user has had the item and 0 elsewhere."""
        shared = dropout(shared_history(history, self.reads), self.input_dropout, self.training)
        itself = (self.reads * self.writes.T).sum(1)
        scores = torch.addmm(self.bias, shared @ self.reads, self.writes) - shared * itself
        return scores if self.base is None else torch.addmm(scores, shared, self.base)

    @torch.no_grad()
    def start_from(self, item_weights: Tensor) -> None:
        """Begin as the best approximation of rank `rank` of given weights (items, items), as EASE finds them."""
        left, values, right = torch.linalg.svd(item_weights.to(self.reads.dtype), full_matrices=False)
        rank = min(self.reads.shape[1], len(values))
        root = values[:rank].sqrt()
        self.reads[:, :rank] = left[:, :rank] * root
        self.writes[:rank] = root[:, None] * right[:rank]


def shared_history(history: Tensor, like: Tensor) -> Tensor:
    """Histories (B, items) over the square root of their length, so that long ones do not shout; empty ones stay 0."""
    if history.ndim != 2 or history.shape[1] != len(like):
        raise ValueError(f"history: expected (B, {len(like)}), got {tuple(history.shape)}")
    history = history.to(like.dtype)
    return history * history.sum(1, keepdim=True).clamp_min(1).rsqrt()
