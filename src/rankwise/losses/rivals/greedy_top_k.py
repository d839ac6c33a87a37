"""The hinge loss of a classifier, on the items at the top only."""

from __future__ import annotations

import torch
from torch import Tensor

from rankwise.checks import check_choice, check_k, check_positive
from rankwise.lists import Lists, PackedLists
from rankwise.losses.base import ListLoss
from rankwise.losses.pap import SHORT_LISTS, top_negatives
from rankwise.losses.two_sides import Side, best, two_sides
from rankwise.registry import LossRecord

__all__ = ["GreedyTopKLoss"]


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
        name="greedy-top-k",
        summary="the hinge loss of a classifier, on the top positives and negatives only",
        build=GreedyTopKLoss,
        role="baseline",
        shift_invariant=False,
    ),
)
