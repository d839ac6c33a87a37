"""Positives and negatives of lists as separate padded tensors, and the best few of either."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rankwise.checks import on_host
from rankwise.lists import Lists, find_chosen, take
from rankwise.pairs import pair_sums
from rankwise.sorting import argsort
from rankwise.surrogates import Surrogate

__all__ = ["Side", "best", "pair_mean", "sort_by_score", "two_sides"]


@dataclass(frozen=True)
class Side:
    """Positives or negatives of each list.

    Attributes:
        scores: (Q, M); mask: (Q, M) False in the padding.
        weights: (Q, M) item weights, 1 for every item if none are given, 0 in the padding.
    """

    scores: Tensor
    mask: Tensor
    weights: Tensor

    @property
    def size(self) -> Tensor:
        """Return the number of items of each list, (Q,)."""
        return self.mask.sum(1)

    @property
    def weight(self) -> Tensor:
        """Return the sum of weights of each list, (Q,), or 1 instead of 0, safe to divide by."""
        total = self.weights.sum(1)
        return torch.where(total > 0, total, 1)

    def only(self, mask: Tensor) -> Side:
        """Return the items that are also in `mask` (Q, M)."""
        return Side(self.scores, self.mask & mask, self.weights * mask)

    def first(self, counts: Tensor) -> Side:
        """Return the first `counts` (Q,) items of each list."""
        width = self.scores.shape[1]
        if on_host(counts):
            width = min(int(counts.max()) if len(counts) else 0, width)
        index = torch.arange(width, device=counts.device)
        return Side(self.scores[:, :width], self.mask[:, :width], self.weights[:, :width]).only(index < counts[:, None])

    def highest(self) -> Tensor:
        """Return the best score of each list, (Q,), detached; 0 for empty lists."""
        if not self.scores.shape[1]:
            return self.scores.new_zeros(len(self.scores))
        largest = self.scores.detach().masked_fill(~self.mask, -torch.inf).amax(1)
        return torch.where(self.mask.any(1), largest, 0)

    def mean(self) -> Tensor:
        """Compute the weighted mean score of each list, (Q,); 0 for empty lists."""
        return (self.scores * self.weights).sum(1) / self.weight


def two_sides(lists: Lists) -> tuple[Side, Side]:
    """Return the items of label 1, compacted, and those of label 0 as a mask of the lists."""
    dtype = lists.scores.dtype
    chosen = lists.mask & (lists.labels == 1)
    negative = lists.mask ^ chosen
    index, mask = find_chosen(chosen)
    if lists.weights is None:
        positive_weights, negative_weights = mask.to(dtype), negative.to(dtype)
    else:
        positive_weights = take(lists.weights, index).to(dtype) * mask
        negative_weights = lists.weights.to(dtype) * negative
    positives = Side(take(lists.scores, index), mask, positive_weights)
    return positives, Side(lists.scores, negative, negative_weights)


def best(side: Side, counts: Tensor, most: int | None = None) -> Side:
    """Return the `counts` (Q,) items of highest score of each list, in any order, or all if there are fewer.

    `most` is the largest of the counts, if the host knows it.
    """
    width = side.scores.shape[1] if most is None else min(most, side.scores.shape[1])
    if on_host(counts):
        if bool((counts >= side.size).all()):
            return side
        width = min(int(counts.max()), width)
    order = side.scores.detach().masked_fill(~side.mask, -torch.inf).topk(width, dim=1).indices
    return _take(side, order).first(counts)


def sort_by_score(side: Side, *, best_first: bool) -> Side:
    """Sort the items of each list by score."""
    return _take(side, argsort(-side.scores if best_first else side.scores, side.mask))


def pair_mean(positives: Side, negatives: Side, surrogate: Surrogate) -> Tensor:
    """Compute the weighted mean of l(p_i - z_j) over all positives i and negatives j, (Q,), in O(n log n)."""
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
