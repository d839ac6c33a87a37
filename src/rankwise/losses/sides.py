"""Positives and negatives of lists as separate padded tensors, and the best few of either."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from rankwise.checks import on_host
from rankwise.lists import Lists, anchors_that_count, count, take
from rankwise.pairs import pair_sums
from rankwise.sorting import argsort, filled, numbers
from rankwise.surrogates import Surrogate

__all__ = ["Side", "best", "pair_mean", "sort_by_score", "two_sides"]


@dataclass(frozen=True)
class Side:
    """Positives or negatives of each list.

    Attributes:
        scores: (Q, M); mask: (Q, M) False in the padding.
        given: (Q, M) item weights, 0 in the padding; None if every item counts once.
        ranked: whether the items are known to be sorted by score, best first.
    """

    scores: Tensor
    mask: Tensor
    given: Tensor | None = None
    ranked: bool = False

    @cached_property
    def size(self) -> Tensor:
        """Return the number of items of each list, (Q,)."""
        return count(self.mask)

    @cached_property
    def weights(self) -> Tensor:
        """Return the item weights (Q, M), 1 for every item if none are given, 0 in the padding."""
        return self.mask.to(self.scores.dtype) if self.given is None else self.given

    @cached_property
    def weight(self) -> Tensor:
        """Return the sum of weights of each list, (Q,), or 1 instead of 0, safe to divide by."""
        if self.given is None:
            return self.size.clamp_min(1)
        total = self.given.sum(1)
        return torch.where(total > 0, total, 1)

    def with_scores(self, scores: Tensor) -> Side:
        """Return the same items with other scores (Q, M)."""
        side = replace(self, scores=scores)
        if "size" in vars(self):
            side.__dict__["size"] = self.size
        return side

    def only(self, mask: Tensor) -> Side:
        """Return the items that are also in `mask` (Q, M)."""
        return Side(self.scores, self.mask & mask, None if self.given is None else self.given * mask)

    def first(self, counts: Tensor) -> Side:
        """Return the first `counts` (Q,) items of each list."""
        width = self.scores.shape[1]
        if on_host(counts):
            width = min(int(counts.max()) if len(counts) else 0, width)
        given = None if self.given is None else self.given[:, :width]
        return Side(self.scores[:, :width], self.mask[:, :width], given).only(
            numbers(width, counts.device) < counts[:, None]
        )

    def highest(self) -> Tensor:
        """Return the best score of each list, (Q,), detached; any finite number for empty lists."""
        if not self.scores.shape[1]:
            return self.scores.new_zeros(len(self.scores))
        if self.ranked:
            return self.scores.detach()[:, 0]
        return self.detached().amax(1).nan_to_num(neginf=0.0)

    def detached(self) -> Tensor:
        """Return the scores without gradient, -inf in the padding."""
        scores = self.scores.detach()
        return torch.where(self.mask, scores, filled((), -torch.inf, scores.dtype, scores.device))

    def mean(self) -> Tensor:
        """Compute the weighted mean score of each list, (Q,); 0 for empty lists."""
        return (self.scores * self.weights).sum(1) / self.weight


def two_sides(lists: Lists) -> tuple[Side, Side]:
    """Return the items of label 1, compacted, and those of label 0 as a mask of the lists."""
    index, mask = lists.positives
    negative = lists.mask ^ lists.relevant
    positive_weights = negative_weights = None
    if lists.weights is not None:
        weights = lists.weights.to(lists.scores.dtype)
        positive_weights, negative_weights = take(weights, index) * mask, weights * negative
    return Side(take(lists.scores, index), mask, positive_weights), Side(lists.scores, negative, negative_weights)


def best(side: Side, counts: Tensor | int, most: int | None = None) -> Side:
    """Return the `counts` (Q,) items of highest score of each list, in any order, or all if there are fewer.

    `most` is the largest of the counts, if the host knows it.
    """
    most = counts if isinstance(counts, int) else most
    width = side.scores.shape[1] if most is None else min(most, side.scores.shape[1])
    if on_host(side.mask):
        if bool((side.size <= counts).all()):
            return side
        width = width if isinstance(counts, int) else min(int(counts.max()), width)
    taken = _take(side, side.detached().topk(width, dim=1).indices, ranked=True)
    return taken if isinstance(counts, int) else taken.first(counts)


def sort_by_score(side: Side, *, best_first: bool, counts: Tensor | None = None, most: int | None = None) -> Side:
    """Sort the items of each list by score; take the first `counts` (Q,), at most its size and `most`. None: all."""
    order = argsort(-side.scores if best_first else side.scores, side.mask)
    if most is None and counts is not None and on_host(counts):
        most = int(counts.max()) if len(counts) else 0
    return _take(side, order[:, :most], counts, ranked=best_first)


def pair_mean(positives: Side, negatives: Side, surrogate: Surrogate) -> Tensor:
    """Compute the weighted mean of l(p_i - z_j) over all positives i and negatives j, (Q,), in O(n log n)."""
    sums = pair_sums(
        positives.scores,
        negatives.scores,
        surrogate,
        weights=negatives.given,
        anchor_mask=anchors_that_count(None, positives.mask),
        other_mask=negatives.mask,
    )
    total = (sums * (positives.mask if positives.given is None else positives.given)).sum(1)
    if positives.given is None and negatives.given is None:
        return total / (positives.size * negatives.size).clamp_min(1)
    return total / (positives.weight * negatives.weight)


def _take(side: Side, order: Tensor, counts: Tensor | None = None, *, ranked: bool) -> Side:
    """Return the items at the indices (Q, M), with the padding last; the first `counts` (Q,) of them, None: all."""
    counts = side.size if counts is None else counts
    mask = numbers(order.shape[1], order.device) < counts[:, None]
    given = None if side.given is None else side.given.gather(1, order) * mask
    return Side(side.scores.gather(1, order), mask, given, ranked)
