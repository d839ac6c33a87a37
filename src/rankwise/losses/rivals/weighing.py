"""What items weigh within their list, and whether the list has an order to learn."""

from __future__ import annotations

import torch
from torch import Tensor

from rankwise.lists import Lists

__all__ = ["grades_differ", "item_weights", "log_shares", "log_weights", "relative_weights", "weighted_mean"]


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
    if lists.weights is None and bool(lists.mask.all()):
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
    if not bool(lists.mask[:, 0].all()):
        first = lists.labels.gather(1, lists.mask.int().argmax(1, keepdim=True))
    return ((lists.labels != first) & lists.mask).any(1)
