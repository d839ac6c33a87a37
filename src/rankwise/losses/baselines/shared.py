"""Weights, gains and order of grades, as several baselines use them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from rankwise.checks import wide_dtype, widen
from rankwise.lists import Lists, surely_all
from rankwise.ranks import RankedLists, rank

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
    """(Q, L) the weights of the items, 1 where none are given and 0 where there is no item."""
    return (lists.mask if lists.weights is None else lists.weights).to(lists.scores.dtype)


def relative_weights(lists: Lists) -> Tensor:
    """The same with a mean of 1 over the items of each list, so that the unit of the weights does not matter."""
    weights = item_weights(lists)
    if lists.weights is None:
        return weights
    total = weights.sum(1, keepdim=True).clamp_min(torch.finfo(weights.dtype).tiny)
    return weights * (lists.mask.sum(1, keepdim=True) / total)


def log_weights(lists: Lists) -> Tensor:
    """(Q, L) what to add to the scores so that their exponentials are weighted; holes come out as good as 0."""
    # A quarter of the range leaves room to add scores to it.
    least = torch.finfo(lists.scores.dtype).min / 4
    if lists.weights is None:
        return torch.zeros_like(lists.scores).masked_fill_(~lists.mask, least)
    return relative_weights(lists).log_().clamp_min_(least)


def log_shares(lists: Lists) -> Tensor:
    """(Q, L) s_i - log sum_j w_j exp(s_j), with the relative weights w of the items."""
    if lists.weights is None and lists.full:
        return torch.log_softmax(lists.scores, 1)
    return lists.scores - torch.logsumexp(lists.scores + log_weights(lists), 1, keepdim=True)


def weighted_mean(values: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Weighted mean of each list (Q,), 0 where there is nothing, and where there is something."""
    total = weights.sum(1)
    return (values * weights).sum(1) / total.clamp_min(torch.finfo(values.dtype).tiny), total > 0


def grades_differ(lists: Lists) -> Tensor:
    """(Q,) which lists have items of different grades; the others have no order to learn."""
    if not lists.mask.shape[1]:
        return lists.mask.any(1)
    first = lists.labels[:, :1]
    if not surely_all(lists.mask[:, 0]):
        first = lists.labels.gather(1, lists.mask.int().argmax(1, keepdim=True))
    return ((lists.labels != first) & lists.mask).any(1)


def discounts(length: int, k: int | None, like: Tensor) -> Tensor:
    """Return 1 / log2(p + 1) at the positions p = 1, 2, ..., and 0 beyond k: (length,), on the device of `like`."""
    places = torch.arange(1, length + 1, dtype=wide_dtype(like.device), device=like.device)
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


def by_grade(lists: Lists) -> RankedLists:
    """The items of each list in order of grade, best first."""
    return rank(replace(lists, scores=widen(lists.labels), weights=None))
