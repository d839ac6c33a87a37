"""Partial AUC with hinges."""

from __future__ import annotations

from torch import Tensor

from rankwise.checks import check_positive, check_share
from rankwise.lists import Lists, PackedLists
from rankwise.losses.base import ListLoss
from rankwise.losses.two_sides import best, pair_mean, two_sides
from rankwise.registry import LossRecord
from rankwise.surrogates import Hinge

__all__ = ["HingePartialAUCLoss"]


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
        counts = (negatives.size.double() * self.max_fpr * (1 - 1e-12)).ceil().long().clamp_min(1)
        top = best(negatives, counts)
        values = pair_mean(positives, top, Hinge(self.margin)) / self.margin
        return values, (positives.size > 0) & (negatives.size > 0)


RECORDS = (
    LossRecord(
        name="hinge-partial-auc",
        summary="partial AUC over small false positive rates, with hinges",
        build=HingePartialAUCLoss,
        role="baseline",
        paper="Narasimhan and Agarwal, 2017",
    ),
)
