"""Precision@k, by its average surrogate."""

from __future__ import annotations

import torch
from torch import Tensor

from rankwise.checks import check_k, check_positive
from rankwise.lists import Lists, PackedLists
from rankwise.losses.base import ListLoss
from rankwise.losses.two_sides import Side, best, in_order, two_sides
from rankwise.registry import LossRecord

__all__ = ["PrecisionAtKLoss"]


class PrecisionAtKLoss(ListLoss):
    """1 - precision@k, bounded from above by the "average" surrogate of Kar et al.

    With n positives in a list and k cut to n: suppose m negatives stand among the first k. They and the n - k + m
    positives that are left over cost

        sum_{j<=m} (1 + z_j - mean of the n - k + m lowest positives),

    z_1 >= z_2 >= ... the scores of the negatives, in units of `margin`. The loss is the largest such sum over
    m = 0, ..., k, divided by k. Convex; sorted, so O(n log n).

    Args:
        k: the k of precision@k, cut to the number of positives n; None for n itself (R-precision).
        margin: how far apart the scores of a won pair lie.
        lists, empty, reduction: see `ListLoss`. A list without positives or negatives is left out.

    Item weights weigh the terms of the sums; k, m and n are numbers of items.

    Example:
        >>> PrecisionAtKLoss(k=1)(torch.tensor([2.5, 0.0, 1.0, -1.0]), torch.tensor([1, 1, 0, 0]))
        tensor(0.7500)

    Paper: Kar, Narasimhan and Jain, Surrogate Functions for Maximizing Precision at the Top, ICML 2015.
    """

    def __init__(
        self,
        k: int | None = None,
        *,
        margin: float = 1.0,
        lists: str = "rows",
        empty: str = "skip",
        reduction: str = "mean",
    ) -> None:
        super().__init__(lists=lists, empty=empty, reduction=reduction)
        self.k = check_k(k)
        self.margin = check_positive("margin", margin)

    def per_list(self, packed: PackedLists, group_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        values, valid = packed.map(self._of_block)
        return values, valid

    def _of_block(self, lists: Lists) -> tuple[Tensor, Tensor]:
        positives, negatives = two_sides(lists)
        n, valid = positives.size, (positives.size > 0) & (negatives.size > 0)
        if not bool(valid.any()):
            return lists.scores.sum(1) * 0, valid
        k = n if self.k is None else n.clamp_max(self.k)
        top = in_order(best(negatives, k), best_first=True).first(k)
        positives = in_order(positives, best_first=False)
        # (Q, M): column m - 1 stands for m negatives among the first k.
        most = torch.arange(1, top.scores.shape[1] + 1, device=n.device)
        left_over = (n[:, None] - k[:, None] + most).clamp(1, positives.scores.shape[1])
        lowest, _ = _running(positives, left_over - 1)
        highest, weights = _running(top, (most - 1).expand(len(n), -1))
        sums = weights * (1 + (highest - lowest) / self.margin)
        sums = torch.where(top.mask, sums, 0)
        # Fewer than k negatives: m cannot go beyond them, but the sum is still one over k places.
        share = top.size.clamp_min(1) / k.clamp_min(1)
        return (torch.relu(sums.amax(1)) * share / top.weights.double().sum(1).clamp_min(1e-300)).to(
            lists.scores.dtype
        ), valid


def _running(side: Side, until: Tensor) -> tuple[Tensor, Tensor]:
    """Weighted means of the first items, up to and with place `until` (Q, M), and what they weigh; float64."""
    weights = side.weights.double()
    weight = weights.cumsum(1).gather(1, until)
    total = (side.scores.double() * weights).cumsum(1).gather(1, until)
    return total / weight.clamp_min(1e-300), weight


RECORDS = (
    LossRecord(
        name="precision-at-k",
        summary="precision@k by its average surrogate",
        build=PrecisionAtKLoss,
        role="baseline",
        paper="Kar, Narasimhan and Jain, ICML 2015",
    ),
)
