"""Weights, gains and sorting by grade that several baselines share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from rankwise.checks import widen
from rankwise.lists import Lists, surely_all
from rankwise.ranks import RankedLists, rank
from rankwise.sorting import once_on_device

__all__ = [
    "by_grade",
    "discounts",
    "grades_differ",
    "item_weights",
    "log_shares",
    "log_weights",
    "normalised_gains",
    "relative_weights",
    "weighted_mean",
]


def item_weights(lists: Lists) -> Tensor:
    """Return the weights of the items, (Q, L): 1 if none are given, 0 in the padding."""
    return (lists.mask if lists.weights is None else lists.weights).to(lists.scores.dtype)


def relative_weights(lists: Lists) -> Tensor:
    """Return the item weights scaled to a mean of 1 in each list, so that only their ratios matter."""
    weights = item_weights(lists)
    if lists.weights is None:
        return weights
    total = weights.sum(1, keepdim=True).clamp_min(torch.finfo(weights.dtype).tiny)
    return weights * (lists.mask.sum(1, keepdim=True) / total)


def log_weights(lists: Lists) -> Tensor:
    """Return the logarithms of the relative weights, (Q, L), to add to scores; in the padding a very low number."""
    # A quarter of the lowest number, so that adding scores does not overflow.
    least = torch.finfo(lists.scores.dtype).min / 4
    if lists.weights is None:
        return torch.zeros_like(lists.scores).masked_fill_(~lists.mask, least)
    return relative_weights(lists).log_().clamp_min_(least)


def log_shares(lists: Lists) -> Tensor:
    """Compute s_i - log sum_j w_j exp(s_j), (Q, L), with the relative weights w of the items."""
    if lists.weights is None and lists.full:
        return torch.log_softmax(lists.scores, 1)
    return lists.scores - torch.logsumexp(lists.scores + log_weights(lists), 1, keepdim=True)


def weighted_mean(values: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the weighted mean of each list (Q,), 0 for empty lists, and the mask (Q,) of lists that have items."""
    total = weights.sum(1)
    return (values * weights).sum(1) / total.clamp_min(torch.finfo(values.dtype).tiny), total > 0


def grades_differ(lists: Lists) -> Tensor:
    """Return the mask (Q,) of lists with items of different grades; the others have nothing to rank."""
    if not lists.mask.shape[1]:
        return lists.mask.any(1)
    if lists.full:
        low, high = torch.aminmax(lists.labels, dim=1)
        return low < high
    first = lists.labels[:, :1]
    if not surely_all(lists.mask[:, 0]):
        first = lists.labels.gather(1, lists.mask.int().argmax(1, keepdim=True))
    return ((lists.labels != first) & lists.mask).any(1)


@once_on_device
def discounts(length: int, k: int | None, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return 1 / log2(p + 1) at the positions p = 1, 2, ..., and 0 beyond k: (length,)."""
    positions = torch.arange(1, length + 1, dtype=dtype, device=device)
    discount = 1 / torch.log2(positions + 1)
    return discount if k is None else discount * (positions <= k)


def normalised_gains(lists: Lists, gain: Callable[[Tensor], Tensor], k: int | None, *, weighted: bool = True) -> Tensor:
    """Divide the gain of each item by the ideal DCG@k of its list, (Q, L): its NDCG@k at the first position.

    If `weighted`, item weights multiply the gains. The result is 0 in the padding, and in lists without a gain.
    """
    gains = gain(lists.labels)
    if not lists.full:
        gains = gains.masked_fill(~lists.mask, 0)
    if weighted and lists.weights is not None:
        gains = gains * lists.weights
    ideal = gains.sort(1, descending=True).values @ discounts(gains.shape[1], k, gains.dtype, gains.device)
    return (gains / ideal.clamp_min(torch.finfo(ideal.dtype).tiny)[:, None]).to(lists.scores.dtype)


def by_grade(lists: Lists) -> RankedLists:
    """Sort the items of each list by grade, best first."""
    return rank(replace(lists, scores=widen(lists.labels), weights=None))
