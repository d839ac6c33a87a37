"""Pair sums of piecewise polynomial surrogates by one sort, prefix sums and binary searches.

Scores become depths below the best other, in units of the surrogate's scale: D_j = (max b - b_j) / scale for the
others, E_i = (max b - a_i) / scale for the anchors, so that X = (a_i - b_j) / scale = D_j - E_i. With the others sorted
by depth, the pieces of the surrogate of anchor i apply to ranges of sorted indices:

    [0, tail)                          X < tail_end: the tail polynomial in X
    [tail, cell) and [cell, stop)      tail_end <= X < tail_end + 1: the middle polynomial in U = X - tail_end
    [stop, L)                          0

The tail uses prefix sums of D. They start at the best other, so an anchor's sum contains only others above it, and
outliers far below cause no cancellation. The middle uses prefix sums of the fractional part of D instead, its range
split where the integer part changes: those sums stay small for scores of any range.

The gradients for the others use the same ranges in reverse: each anchor adds its coefficients at the ends of its
ranges, and a cumulative sum from the deepest other upwards gives every other its total. All in float64.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rankwise.checks import widen
from rankwise.sorting import argsort
from rankwise.surrogates import Pieces

__all__ = ["SortedPairs", "sort_pairs"]


@dataclass(frozen=True)
class SortedPairs:
    """Anchors and sorted others of each list, with the ends of the anchors' ranges among the others.

    Attributes:
        depths: (Q, L) D, ascending; weights: (Q, L) or None, in the same order; order: (Q, L) the sorting permutation.
        anchors: (Q, A) E.
        tail, cell, stop: (Q, A) ends of the ranges.
    """

    depths: Tensor
    weights: Tensor | None
    order: Tensor
    anchors: Tensor
    tail: Tensor
    cell: Tensor
    stop: Tensor
    pieces: Pieces

    def tensors(self) -> tuple[Tensor | None, ...]:
        """Return all fields but the pieces, in the order of the constructor."""
        return self.depths, self.weights, self.order, self.anchors, self.tail, self.cell, self.stop

    def sums(self) -> tuple[Tensor, Tensor]:
        """Compute the sums of values and of slopes over the others, both (Q, A); the slopes add little time."""
        c0, c1, c2 = self.pieces.tail
        depth = self.anchors
        n0, n1 = self._until(self.tail, 0, self.depths), self._until(self.tail, 1, self.depths)
        value = (c0 - c1 * depth + c2 * depth * depth) * n0 + (c1 - 2 * c2 * depth) * n1
        slope = (c1 - 2 * c2 * depth) * n0 + 2 * c2 * n1
        if c2:
            value += c2 * self._until(self.tail, 2, self.depths)
        if self.pieces.middle is not None:
            b0, b1, b2 = self.pieces.middle
            fraction = self.depths.frac()
            ends = torch.cat([self.tail, self.cell, self.stop], 1)
            sums = [self._until(ends, power, fraction).chunk(3, 1) for power in range(3)]
            for part, shift in enumerate(self._shifts()):
                m0, m1, m2 = (at[part + 1] - at[part] for at in sums)
                value += (b0 + b1 * shift + b2 * shift * shift) * m0 + (b1 + 2 * b2 * shift) * m1 + b2 * m2
                slope += (b1 + 2 * b2 * shift) * m0 + 2 * b2 * m1
        return value, slope / self.pieces.scale

    def gradients(self, grad: Tensor, need_weights: bool) -> tuple[Tensor, Tensor | None]:
        """Compute the gradients for the others and, if needed, for their weights, both (Q, L) in unsorted order."""
        grad = widen(grad)
        _, c1, c2 = self.pieces.tail
        constant = [(self.tail, grad * (c1 - 2 * c2 * self.anchors))]
        slope = self.depths * self._spread([(self.tail, 2 * c2 * grad)]) if c2 else None
        if self.pieces.middle is not None:
            _, b1, b2 = self.pieces.middle
            constant += self._middle_ranges([grad * (b1 + 2 * b2 * shift) for shift in self._shifts()])
            in_middle = self._spread([(self.stop, 2 * b2 * grad), (self.tail, -2 * b2 * grad)])
            slope = in_middle.mul_(self.depths.frac())
        slopes = self._spread(constant)
        if slope is not None:
            slopes += slope
        slopes /= -self.pieces.scale
        if self.weights is not None:
            slopes *= self.weights
        return self._unsorted(slopes), self._unsorted(self._values(grad)) if need_weights else None

    def _values(self, grad: Tensor) -> Tensor:
        """Compute sum_i grad_i l(a_i - b_j) for the sorted others j."""
        c0, c1, c2 = self.pieces.tail
        depth = self.anchors
        values = self._spread([(self.tail, grad * (c0 - c1 * depth + c2 * depth * depth))])
        values += self.depths * self._spread([(self.tail, grad * (c1 - 2 * c2 * depth))])
        if c2:
            values += self.depths**2 * self._spread([(self.tail, c2 * grad)])
        if self.pieces.middle is not None:
            b0, b1, b2 = self.pieces.middle
            fraction = self.depths.frac()
            low, high = self._shifts()
            for power, coefficients in enumerate(
                (
                    [b0 + b1 * low + b2 * low * low, b0 + b1 * high + b2 * high * high],
                    [b1 + 2 * b2 * low, b1 + 2 * b2 * high],
                    [torch.full_like(low, b2), torch.full_like(low, b2)],
                )
            ):
                values += fraction**power * self._spread(self._middle_ranges([grad * c for c in coefficients]))
        return values

    def _shifts(self) -> tuple[Tensor, Tensor]:
        """Return the offset from the fractional part of D to U, in the range up to `cell` and in the one after it."""
        start = self.anchors + self.pieces.tail_end
        low = start.floor() - start
        return low, low + 1

    def _middle_ranges(self, coefficients: list[Tensor]) -> list[tuple[Tensor, Tensor]]:
        """Return the range ends for one coefficient on [tail, cell) and another on [cell, stop)."""
        before, after = coefficients
        return [(self.stop, after), (self.cell, before - after), (self.tail, -before)]

    def _until(self, ends: Tensor, power: int, base: Tensor) -> Tensor:
        """Return the sum of weights * base^power over the first `ends` others."""
        if power == 0 and self.weights is None:
            return widen(ends)
        terms = base if power == 1 else base * base
        if self.weights is not None:
            terms = self.weights if power == 0 else terms * self.weights
        sums = torch.empty(len(base), base.shape[1] + 1, dtype=base.dtype, device=base.device)
        sums[:, 0] = 0
        torch.cumsum(terms, 1, out=sums[:, 1:])
        return sums.gather(1, ends)

    def _spread(self, ends: list[tuple[Tensor, Tensor]]) -> Tensor:
        """Sum, for each other, the coefficients whose range end lies beyond it: (Q, L)."""
        length = self.depths.shape[1]
        starts = torch.zeros(len(self.depths), length + 1, dtype=self.depths.dtype, device=self.depths.device)
        for end, coefficient in ends:
            starts.scatter_add_(1, length - end, coefficient)
        return starts[:, :length].cumsum(1).flip(1)

    def _unsorted(self, values: Tensor) -> Tensor:
        return torch.empty_like(values).scatter_(1, self.order, values)


def sort_pairs(anchors: Tensor, others: Tensor, weights: Tensor | None, pieces: Pieces) -> SortedPairs:
    """Sort the others of each list by depth and compute the anchors' ranges among them."""
    order = argsort(-others)
    depths = widen(others.gather(1, order))
    best = depths[:, :1].clone()
    depths = depths.sub_(best).div_(-pieces.scale)
    depth = (best - widen(anchors)) / pieces.scale if others.shape[1] else widen(torch.zeros_like(anchors))
    start = depth + pieces.tail_end
    tail = torch.searchsorted(depths, start)
    if pieces.middle is None:
        cell = stop = tail
    else:
        # For scores so large that start + 1 == start in floating point, equal scores still belong to the middle.
        end = torch.maximum(start + 1, start.nextafter(torch.full_like(start, torch.inf)))
        stop = torch.searchsorted(depths, end)
        cell = torch.searchsorted(depths, start.floor() + 1).clamp_(tail, stop)
    sorted_weights = None if weights is None else widen(weights.gather(1, order))
    return SortedPairs(depths, sorted_weights, order, depth, tail, cell, stop, pieces)
