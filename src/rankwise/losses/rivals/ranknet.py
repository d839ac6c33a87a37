"""RankNet: every pair of items with different grades, by the logistic loss."""

from __future__ import annotations

import torch
from torch import Tensor

from rankwise.checks import check_positive
from rankwise.lists import Lists, PackedLists
from rankwise.losses.base import ListLoss
from rankwise.losses.rivals.preferences import Pairs, by_grade, preference_sums
from rankwise.losses.rivals.weighing import item_weights
from rankwise.registry import LossRecord
from rankwise.surrogates import Logistic

__all__ = ["RankNetLoss"]


class RankNetLoss(ListLoss):
    """The mean over all pairs of items with y_i > y_j of `log(1 + exp(-sigma (s_i - s_j)))`.

    At least 0; log 2 for constant scores. A pair weighs the product of its items' weights. Lists of one grade have no
    pair and are left out. Memory: O(Q L), the pairs are never held together.

    Args:
        sigma: steepness; the scores are multiplied by it.
        lists, empty, reduction: see `ListLoss`.

    Example:
        >>> RankNetLoss()(torch.tensor([0.0, 0.0, 0.0]), torch.tensor([2, 0, 1]))
        tensor(0.6931)

    Paper: Burges et al., Learning to rank using gradient descent, ICML 2005.
    """

    label_kind = "grades"

    def __init__(
        self, *, sigma: float = 1.0, lists: str = "rows", empty: str = "skip", reduction: str = "mean"
    ) -> None:
        super().__init__(lists=lists, empty=empty, reduction=reduction)
        self.surrogate = Logistic(1 / check_positive("sigma", sigma))

    def per_list(self, packed: PackedLists, group_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        values, valid = packed.map(self._mean_over_pairs)
        return values, valid

    def _mean_over_pairs(self, lists: Lists) -> tuple[Tensor, Tensor]:
        graded = by_grade(lists)
        weights = item_weights(lists).gather(1, graded.order)

        def weigh(pairs: Pairs) -> Tensor:
            better, worse = pairs.outer(weights)
            return better * worse

        sums, totals = preference_sums(lists, graded, self.surrogate, weigh)
        return sums / totals.clamp_min(torch.finfo(sums.dtype).tiny), totals > 0


RECORDS = (
    LossRecord(
        name="ranknet",
        summary="logistic loss of all pairs of different grades",
        build=RankNetLoss,
        role="baseline",
        labels="grades",
        paper="Burges et al., ICML 2005",
    ),
)
