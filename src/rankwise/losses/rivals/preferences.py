"""Sums over all pairs of items of which one has the higher grade: the common part of the pairwise rivals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from rankwise.lists import Lists
from rankwise.ranks import RankedLists, rank
from rankwise.surrogates import Surrogate

__all__ = ["Pairs", "by_grade", "preference_sums"]

# Pairs held at once: about a megabyte in float32.
_CHUNK = 2**18

# Better items of one list taken together: the fewer, the more pairs of equal grade are passed over.
_BETTER = 64


@dataclass(frozen=True)
class Pairs:
    """Some of the pairs: of some lists, some better items with some worse ones, all in order of grade."""

    lists: slice
    better: slice
    worse: slice

    def outer(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """What (Q, L) values say of the better (q, b, 1) and of the worse items (q, 1, w)."""
        return values[self.lists, self.better, None], values[self.lists, None, self.worse]

    def difference(self, values: Tensor) -> Tensor:
        """Return better minus worse, (q, b, w), of (Q, L) values."""
        better, worse = self.outer(values)
        return better - worse

    def add(self, totals: Tensor, slopes: Tensor) -> None:
        """Add slopes (q, b, w) in the differences to the slopes (Q, L) in the values."""
        totals[self.lists, self.better] += slopes.sum(2)
        totals[self.lists, self.worse] -= slopes.sum(1)


PairWeights = Callable[[Pairs], Tensor]


def by_grade(lists: Lists) -> RankedLists:
    """The items of each list in order of grade, best first."""
    return rank(replace(lists, scores=lists.labels.double(), weights=None))


def preference_sums(
    lists: Lists, graded: RankedLists, surrogate: Surrogate, weigh: PairWeights
) -> tuple[Tensor, Tensor]:
    """sum_{i, j: y_i > y_j} w_ij l(s_i - s_j) of each list (Q,), and the sum of w_ij alone (Q,).

    Every such pair is looked at once, in chunks, for its value and its slope: O(Q L) memory. Twice differentiable.

    Args:
        lists: whose scores to compare.
        graded: their items by grade (`by_grade`).
        surrogate: what a pair costs.
        weigh: the weights w (q, b, w) of some pairs, as a new tensor; values it reads are in order of grade.
    """
    scores = lists.scores.gather(1, graded.order)
    totals = scores.new_zeros(len(scores))
    place = torch.arange(scores.shape[1], dtype=torch.int32, device=scores.device)
    end, size = graded.end.int(), graded.size.int()

    def weighted_pairs() -> Iterator[tuple[Pairs, Tensor]]:
        for pairs in _chunks(graded):
            behind = place[pairs.worse] >= end[pairs.lists, pairs.better, None]
            yield pairs, weigh(pairs).mul_(behind & (place[pairs.worse] < size[pairs.lists, None, None]))

    def values_and_slopes(scores: Tensor) -> tuple[Tensor, Tensor]:
        values, slopes = scores.new_zeros(len(scores)), torch.zeros_like(scores)
        for pairs, weights in weighted_pairs():
            difference = pairs.difference(scores)
            totals[pairs.lists] += weights.sum((1, 2))
            values[pairs.lists] += surrogate.value(difference.clone()).mul_(weights).sum((1, 2))
            pairs.add(slopes, surrogate.slope(difference).mul_(weights))
        return values, slopes

    def slopes_along(scores: Tensor, direction: Tensor) -> Tensor:
        changes = torch.zeros_like(scores)
        for pairs, weights in weighted_pairs():
            curvature = surrogate.curvature(pairs.difference(scores)).mul_(weights)
            pairs.add(changes, curvature.mul_(pairs.difference(direction)))
        return changes

    values: Tensor = _OnePass.apply(scores, values_and_slopes, slopes_along)
    return values, totals


def _chunks(graded: RankedLists) -> Iterator[Pairs]:
    """All pairs of a better and a worse item, and as few others as comes easily."""
    lists, length = graded.lists.mask.shape
    if not lists or not length:
        return
    anchors = (graded.end < graded.size[:, None]).sum(1)
    items = max(1, min(int(anchors.max()), _BETTER, _CHUNK // length))
    rows = max(1, _CHUNK // (items * length))
    for row in range(0, lists, rows):
        some = slice(row, row + rows)
        last = int(anchors[some].max())
        for first in range(0, last, items):
            # Nothing before the end of the first item's group is worse than it or any item after it.
            yield Pairs(some, slice(first, min(first + items, last)), slice(int(graded.end[some, first].min()), length))


class _OnePass(torch.autograd.Function):
    """Values (Q,) of scores (Q, L) with the gradient worked out beside them: nothing of size Q x L x L is kept."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, values_and_slopes: Any, slopes_along: Any) -> Tensor:
        values, slopes = values_and_slopes(scores.detach())
        ctx.save_for_backward(scores, slopes)
        ctx.slopes_along = slopes_along
        return values  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        scores, slopes = ctx.saved_tensors
        if torch.is_grad_enabled():
            slopes = _Slopes.apply(scores, slopes, ctx.slopes_along)
        return grad[:, None] * slopes, None, None


class _Slopes(torch.autograd.Function):
    """The slopes (Q, L) that were worked out, as a function of the scores (Q, L)."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, slopes: Tensor, slopes_along: Any) -> Tensor:
        ctx.save_for_backward(scores)
        ctx.slopes_along = slopes_along
        return slopes.clone()

    @staticmethod
    def backward(ctx: Any, direction: Tensor) -> tuple[Tensor, None, None]:
        if torch.is_grad_enabled():
            raise RuntimeError("scores: third derivatives are not supported")
        (scores,) = ctx.saved_tensors
        return ctx.slopes_along(scores, direction), None, None
