"""What the rivals that aim at NDCG share: gains over the ideal DCG, and discounts."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from rankwise.lists import Lists

__all__ = ["discounts", "normalised_gains"]


def discounts(length: int, k: int | None, like: Tensor) -> Tensor:
    """(length,) 1 / log2(p + 1) at the positions p = 1, 2, ..., and 0 beyond k; float64, where `like` is."""
    places = torch.arange(1, length + 1, dtype=torch.float64, device=like.device)
    worth = 1 / torch.log2(places + 1)
    return worth if k is None else worth * (places <= k)


def normalised_gains(lists: Lists, gain: Callable[[Tensor], Tensor], k: int | None) -> Tensor:
    """(Q, L) what each item would add to NDCG@k at the first place: its gain over the ideal DCG@k of its list.

    Item weights multiply the gains. Zero where there is no item, and all through lists in which nothing gains.
    """
    gains = gain(lists.labels).masked_fill(~lists.mask, 0)
    if lists.weights is not None:
        gains = gains * lists.weights
    ideal = gains.sort(1, descending=True).values @ discounts(gains.shape[1], k, gains)
    return (gains / ideal.masked_fill(ideal <= 0, 1)[:, None]).to(lists.scores.dtype)
