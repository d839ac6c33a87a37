"""The positives and the negatives of lists, and the best few of either."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rankwise.lists import Lists, find_chosen
from rankwise.pairs import pair_sums
from rankwise.sorting import argsort
from rankwise.surrogates import Surrogate

__all__ = ["Side", "best", "in_order", "pair_mean", "two_sides"]


@dataclass(frozen=True)
class Side:
    """Some items of each list.

    Attributes:
        scores: (Q, M); mask: (Q, M) False where there is no item.
        weights: (Q, M) item weights, 1 for every item where none are given, 0 outside the mask.
    """

    scores: Tensor
    mask: Tensor
    weights: Tensor

    @property
    def size(self) -> Tensor:
        """(Q,) how many items."""
        return self.mask.sum(1)

    @property
    def weight(self) -> Tensor:
        """(Q,) what they weigh in all, 1 where there are none: safe to divide by."""
        total = self.weights.sum(1)
        return torch.where(total > 0, total, 1)

    def only(self, mask: Tensor) -> Side:
        """Those that are in `mask` (Q, M) as well."""
        return Side(self.scores, self.mask & mask, self.weights * mask)

    def first(self, counts: Tensor) -> Side:
        """The first `counts` (Q,) of each list."""
        width = self.scores.shape[1]
        if counts.device.type == "cpu":
            width = min(int(counts.max()) if len(counts) else 0, width)
        slots = torch.arange(width, device=counts.device)
        return Side(self.scores[:, :width], self.mask[:, :width], self.weights[:, :width]).only(slots < counts[:, None])

    def highest(self) -> Tensor:
        """(Q,) best score, detached; 0 where there is nothing."""
        if not self.scores.shape[1]:
            return self.scores.new_zeros(len(self.scores))
        found = self.scores.detach().masked_fill(~self.mask, -torch.inf).amax(1)
        return torch.where(self.mask.any(1), found, 0)

    def mean(self) -> Tensor:
        """(Q,) weighted mean score, 0 where there is nothing."""
        return (self.scores * self.weights).sum(1) / self.weight


def two_sides(lists: Lists) -> tuple[Side, Side]:
    """The items of label 1, put together at the front, and those of label 0, left where they stand."""
    dtype = lists.scores.dtype
    chosen = lists.mask & (lists.labels == 1)
    negative = lists.mask ^ chosen
    places, mask = find_chosen(chosen)
    if lists.weights is None:
        positive_weights, negative_weights = mask.to(dtype), negative.to(dtype)
    else:
        positive_weights = lists.weights.gather(1, places).to(dtype) * mask
        negative_weights = lists.weights.to(dtype) * negative
    positives = Side(lists.scores.gather(1, places), mask, positive_weights)
    return positives, Side(lists.scores, negative, negative_weights)


def best(side: Side, counts: Tensor, most: int | None = None) -> Side:
    """Return the `counts` (Q,) items of the highest scores of each list, in any order; all, if there are fewer.

    `most` is the largest of the counts, if the host knows it.
    """
    width = side.scores.shape[1] if most is None else min(most, side.scores.shape[1])
    if counts.device.type == "cpu":
        if bool((counts >= side.size).all()):
            return side
        width = min(int(counts.max()), width)
    order = side.scores.detach().masked_fill(~side.mask, -torch.inf).topk(width, dim=1).indices
    return _take(side, order).first(counts)


def in_order(side: Side, *, best_first: bool) -> Side:
    """The items of each list sorted by score."""
    return _take(side, argsort(-side.scores if best_first else side.scores, side.mask))


def pair_mean(positives: Side, negatives: Side, surrogate: Surrogate) -> Tensor:
    """(Q,) the weighted mean of l(p_i - z_j) over all pairs of a positive i and a negative j, in O(n log n)."""
    sums = pair_sums(
        positives.scores,
        negatives.scores,
        surrogate,
        weights=negatives.weights,
        anchor_mask=positives.mask,
        other_mask=negatives.mask,
    )
    return (sums * positives.weights).sum(1) / (positives.weight * negatives.weight)


def _take(side: Side, order: Tensor) -> Side:
    scores, mask, weights = (values.gather(1, order) for values in (side.scores, side.mask, side.weights))
    return Side(scores, mask, weights)
