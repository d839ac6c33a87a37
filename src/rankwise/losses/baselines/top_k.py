"""Baselines that train the top of a list: partial AUC, precision@k, greedy top-k hinge."""

from __future__ import annotations

import torch
from torch import Tensor

from rankwise.checks import check_choice, check_k, check_positive, check_share, on_host, widen
from rankwise.lists import Lists, PackedLists
from rankwise.losses.base import ListLoss
from rankwise.losses.pap import SHORT_LISTS, top_negatives
from rankwise.losses.sides import Side, best, pair_mean, sort_by_score, two_sides
from rankwise.registry import LossRecord
from rankwise.surrogates import Hinge

__all__ = ["GreedyTopKLoss", "HingePartialAUCLoss", "PrecisionAtKLoss"]


class HingePartialAUCLoss(ListLoss):
    """Loss for partial AUC over false positive rates from 0 to `max_fpr`: hinge losses of pairs.

        1/(n m) sum_{all positives i, j<=m} (1 + (z_j - p_i) / margin)_+,   m = max(1, ceil(max_fpr * negatives)),

    where z_1 >= z_2 >= ... are the scores of the negatives. Convex. With m = k in every list it is "avg+" of `PApLoss`.
    Usually all users together form one list (no `query_ids`).

    Args:
        max_fpr: the largest false positive rate, in (0, 1]; 1 is the whole AUC.
        margin: score difference at which the loss of a pair is 0.
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
        values, valid = packed.map(self._block_values)
        return values, valid

    def _block_values(self, lists: Lists) -> tuple[Tensor, Tensor]:
        positives, negatives = two_sides(lists)
        # Products that are whole numbers in exact arithmetic must not be rounded up: .1 x 30 is 3, not 4.
        size = widen(negatives.size)
        slack = max(1e-12, 4 * torch.finfo(size.dtype).eps)
        counts = (size * self.max_fpr * (1 - slack)).ceil().long().clamp_min(1)
        top = best(negatives, counts)
        values = pair_mean(positives, top, Hinge(self.margin)) / self.margin
        return values, (positives.size > 0) & (negatives.size > 0)


class PrecisionAtKLoss(ListLoss):
    """Loss for precision@k: the "average" surrogate of Kar et al., an upper bound of 1 - precision@k.

    With n positives in a list and k at most n: if m negatives are among the first k, n - k + m positives are not. This
    costs

        sum_{j<=m} (1 + z_j - mean of the n - k + m lowest positives),

    where z_1 >= z_2 >= ... are the scores of the negatives, in units of `margin`. The loss is the largest such sum over
    m = 0, ..., k, divided by k. Convex; computed by sorting, in O(n log n).

    Args:
        k: the k of precision@k, at most the number of positives n; None for n itself (R-precision).
        margin: score difference at which the loss of a pair is 0.
        lists, empty, reduction: see `ListLoss`. A list without positives or negatives is left out.

    Item weights multiply the terms of the sums; k, m and n are numbers of items.

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
        values, valid = packed.map(self._block_values)
        return values, valid

    def _block_values(self, lists: Lists) -> tuple[Tensor, Tensor]:
        positives, negatives = two_sides(lists)
        n, valid = positives.size, (positives.size > 0) & (negatives.size > 0)
        if not lists.scores.shape[1] or (on_host(valid) and not bool(valid.any())):
            return lists.scores.sum(1) * 0, valid
        k = n if self.k is None else n.clamp_max(self.k)
        top = sort_by_score(best(negatives, k), best_first=True).first(k)
        positives = sort_by_score(positives, best_first=False)
        # (Q, M): column m - 1 is the case of m negatives among the first k.
        most = torch.arange(1, top.scores.shape[1] + 1, device=n.device)
        left_over = (n[:, None] - k[:, None] + most).clamp(1, positives.scores.shape[1])
        lowest, _ = _running(positives, left_over - 1)
        highest, weights = _running(top, (most - 1).expand(len(n), -1))
        sums = weights * (1 + (highest - lowest) / self.margin)
        sums = torch.where(top.mask, sums, 0)
        # With fewer than k negatives, m is at most their number, but the sum is still divided by k.
        share = top.size.clamp_min(1) / k.clamp_min(1)
        value = torch.relu(sums.amax(1)) * share / widen(top.weights).sum(1).clamp_min(_least(sums.dtype))
        return value.to(lists.scores.dtype), valid


def _running(side: Side, until: Tensor) -> tuple[Tensor, Tensor]:
    """Compute weighted means and total weights of the items up to index `until` (Q, M), inclusive, in float64."""
    weights = widen(side.weights)
    weight = weights.cumsum(1).gather(1, until)
    total = (widen(side.scores) * weights).cumsum(1).gather(1, until)
    return total / weight.clamp_min(_least(weight.dtype)), weight


def _least(dtype: torch.dtype) -> float:
    """Return a divisor smaller than the weight of any item."""
    return torch.finfo(dtype).tiny


class GreedyTopKLoss(ListLoss):
    """Hinge loss of a classifier on the min(n, k) best positives and the k best negatives of a list.

        1/2 [ 1/b sum_{i<=b} (1 - p_(i))_+ + 1/k sum_{j<=k} (1 + z_j)_+ ],   b = min(n, k), scores in units of `margin`.

    Every call chooses the items by their current scores; each then counts by itself, not in pairs. At least 1 - pAp@k,
    as ((1 - p)_+ + (1 + z)_+) / 2 >= 1[p <= z]; not convex if n > k, and not invariant to shifts of the scores.

    Args:
        k: number of items of each kind; None for all negatives.
        margin: distance of a score from 0 at which the loss of the item is 0.
        short_lists: treatment of lists with fewer than k negatives: "skip" leaves them out, "clip" takes all.
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
        values, valid = packed.map(self._block_values)
        return values, valid

    def _block_values(self, lists: Lists) -> tuple[Tensor, Tensor]:
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
