"""Baselines for the top of a list: partial AUC, precision@k, greedy top-k hinge."""

from __future__ import annotations

import torch
from torch import Tensor

from rankwise.checks import check_choice, check_k, check_positive, check_share, widen
from rankwise.lists import Lists, PackedLists
from rankwise.losses.base import ListLoss
from rankwise.losses.pap import SHORT_LISTS, top_negatives
from rankwise.losses.sides import Side, best, pair_mean, sort_by_score, two_sides
from rankwise.registry import LossRecord
from rankwise.surrogates import Hinge

__all__ = ["GreedyTopKLoss", "HingePartialAUCLoss", "PrecisionAtKLoss"]


class HingePartialAUCLoss(ListLoss):
    """1 - partial AUC over the false positive rates from 0 to `max_fpr`, with hinges in place of wrong pairs.

        1/(n m) sum_{all positives i, j<=m} (1 + (z_j - p_i) / margin)_+,   m = max(1, ceil(max_fpr * negatives)),

    z_1 >= z_2 >= ... the scores of the negatives. Convex. With m = k in every list it is "avg+" of `PApLoss`; all users
    together as one list (no `query_ids`) are its usual form.

    Args:
        max_fpr: the largest false positive rate, in (0, 1]; 1 is the whole AUC.
        margin: how far apart the scores of a won pair lie.
        lists, empty, reduction: see `ListLoss`. A list without positives or negatives is left out.

    Example:
        >>> import torch
        >>> HingePartialAUCLoss(max_fpr=0.5)(torch.tensor([2.5, 0.0, 1.0, -1.0]), torch.tensor([1, 1, 0, 0]))
        tensor(1.)

    Paper: Narasimhan and Agarwal, Support Vector Algorithms for Optimizing the Partial Area under the ROC Curve, 2017.
    """

    def __init__(
        self,
        max_fpr: float = 0.1,
        *,
        margin: float = 1.0,
        lists: str = "rows",
        empty: str = "skip",
        reduction: str = "mean",
    ) -> None:
        super().__init__(lists=lists, empty=empty, reduction=reduction)
        self.max_fpr = check_share("max_fpr", max_fpr, open_end=False)
        self.margin = check_positive("margin", margin)

    def per_list(self, packed: PackedLists, group_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        values, valid = packed.map(self._of_block)
        return values, valid

    def _of_block(self, lists: Lists) -> tuple[Tensor, Tensor]:
        positives, negatives = two_sides(lists)
        # A whole number times a share is meant to be whole where it is so on paper: .1 x 30 is 3, not 4.
        size = widen(negatives.size)
        slack = max(1e-12, 4 * torch.finfo(size.dtype).eps)
        counts = (size * self.max_fpr * (1 - slack)).ceil().long().clamp_min(1)
        top = best(negatives, counts)
        values = pair_mean(positives, top, Hinge(self.margin)) / self.margin
        return values, (positives.size > 0) & (negatives.size > 0)


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
        if not lists.scores.shape[1] or (valid.device.type == "cpu" and not bool(valid.any())):
            return lists.scores.sum(1) * 0, valid
        k = n if self.k is None else n.clamp_max(self.k)
        top = sort_by_score(best(negatives, k), best_first=True).first(k)
        positives = sort_by_score(positives, best_first=False)
        # (Q, M): column m - 1 stands for m negatives among the first k.
        most = torch.arange(1, top.scores.shape[1] + 1, device=n.device)
        left_over = (n[:, None] - k[:, None] + most).clamp(1, positives.scores.shape[1])
        lowest, _ = _running(positives, left_over - 1)
        highest, weights = _running(top, (most - 1).expand(len(n), -1))
        sums = weights * (1 + (highest - lowest) / self.margin)
        sums = torch.where(top.mask, sums, 0)
        # Fewer than k negatives: m cannot go beyond them, but the sum is still one over k places.
        share = top.size.clamp_min(1) / k.clamp_min(1)
        value = torch.relu(sums.amax(1)) * share / widen(top.weights).sum(1).clamp_min(_least(sums.dtype))
        return value.to(lists.scores.dtype), valid


def _running(side: Side, until: Tensor) -> tuple[Tensor, Tensor]:
    """Weighted means of the first items, up to and with place `until` (Q, M), and what they weigh; float64."""
    weights = widen(side.weights)
    weight = weights.cumsum(1).gather(1, until)
    total = (widen(side.scores) * weights).cumsum(1).gather(1, until)
    return total / weight.clamp_min(_least(weight.dtype)), weight


def _least(dtype: torch.dtype) -> float:
    """Return a weight smaller than that of any item, by which one may divide."""
    return torch.finfo(dtype).tiny


class GreedyTopKLoss(ListLoss):
    """The hinge loss of a classifier on the min(n, k) best positives and the k best negatives of a list.

        1/2 [ 1/b sum_{i<=b} (1 - p_(i))_+ + 1/k sum_{j<=k} (1 + z_j)_+ ],   b = min(n, k), scores in units of `margin`.

    Items are chosen anew by every call, from the scores of the moment; each then counts alone, not in pairs. At least
    1 - pAp@k, as ((1 - p)_+ + (1 + z)_+) / 2 >= 1[p <= z]; not convex where n > k, and shifts of the scores change it.

    Args:
        k: how many items of each kind; None for all negatives.
        margin: how far from 0 the score of a won item lies.
        short_lists: what becomes of a list with fewer than k negatives: "skip" leaves it out, "clip" takes all.
        lists, empty, reduction: see `ListLoss`. A list without positives or negatives is left out as well.

    Example:
        >>> GreedyTopKLoss(k=1)(torch.tensor([2.5, 0.0, 1.0, -1.0]), torch.tensor([1, 1, 0, 0]))
        tensor(1.)
    """

    def __init__(
        self,
        k: int | None = None,
        *,
        margin: float = 1.0,
        short_lists: str = "skip",
        lists: str = "rows",
        empty: str = "skip",
        reduction: str = "mean",
    ) -> None:
        super().__init__(lists=lists, empty=empty, reduction=reduction)
        self.k = check_k(k)
        self.margin = check_positive("margin", margin)
        self.short_lists = check_choice("short_lists", short_lists, SHORT_LISTS)

    def per_list(self, packed: PackedLists, group_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        values, valid = packed.map(self._of_block)
        return values, valid

    def _of_block(self, lists: Lists) -> tuple[Tensor, Tensor]:
        positives, negatives = two_sides(lists)
        top, valid = top_negatives(negatives, self.k, self.short_lists)
        of_positives = self._mean_hinge(best(positives, top.size), -1)
        return (of_positives + self._mean_hinge(top, 1)) / 2, valid & (positives.size > 0)

    def _mean_hinge(self, side: Side, sign: int) -> Tensor:
        hinges = torch.relu(1 + sign * side.scores / self.margin)
        return (hinges * side.weights).sum(1) / side.weight


RECORDS = (
    LossRecord(
        name="hinge-partial-auc",
        summary="partial AUC over small false positive rates, with hinges",
        build=HingePartialAUCLoss,
        role="baseline",
        paper="Narasimhan and Agarwal, 2017",
    ),
    LossRecord(
        name="precision-at-k",
        summary="precision@k by its average surrogate",
        build=PrecisionAtKLoss,
        role="baseline",
        paper="Kar, Narasimhan and Jain, ICML 2015",
    ),
    LossRecord(
        name="greedy-top-k",
        summary="the hinge loss of a classifier, on the top positives and negatives only",
        build=GreedyTopKLoss,
        role="baseline",
        shift_invariant=False,
    ),
)
