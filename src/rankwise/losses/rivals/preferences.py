"""Sums over all pairs of items of which one has the higher grade: the common part of the pairwise rivals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rankwise.lists import Lists
from rankwise.losses.rivals.one_pass import one_pass
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


PairWeights = Callable[[Pairs], Tensor]


def by_grade(lists: Lists) -> RankedLists:
    """The items of each list in order of grade, best first."""
    return rank(replace(lists, scores=lists.labels.double(), weights=None))


def preference_sums(
    lists: Lists, graded: RankedLists, surrogate: Surrogate, weigh: PairWeights
) -> tuple[Tensor, Tensor]:
    """sum_{i, j: y_i > y_j} w_ij l(s_i - s_j) of each list (Q,), and the sum of w_ij alone (Q,).

    Every such pair is looked at once, in chunks: O(Q L) memory.

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

    def values_and_slopes(scores: Tensor) -> tuple[Tensor, Tensor]:
        values, slopes = scores.new_zeros(len(scores)), torch.zeros_like(scores)
        for pairs in _chunks(graded):
            behind = place[pairs.worse] >= end[pairs.lists, pairs.better, None]
            weights = weigh(pairs).mul_(behind & (place[pairs.worse] < size[pairs.lists, None, None]))
            better, worse = pairs.outer(scores)
            difference = better - worse
            totals[pairs.lists] += weights.sum((1, 2))
            values[pairs.lists] += surrogate.value(difference.clone()).mul_(weights).sum((1, 2))
            slope = surrogate.slope(difference).mul_(weights)
            slopes[pairs.lists, pairs.better] += slope.sum(2)
            slopes[pairs.lists, pairs.worse] -= slope.sum(1)
        return values, slopes

    return one_pass(scores, values_and_slopes), totals


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
