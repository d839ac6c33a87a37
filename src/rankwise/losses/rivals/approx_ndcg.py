"""ApproxNDCG: NDCG with ranks counted by sigmoids; plain, and with noise."""

from __future__ import annotations

import torch
from torch import Tensor

from rankwise.checks import check_positive
from rankwise.gains import Gain, gain_function
from rankwise.lists import Lists, PackedLists, compact
from rankwise.losses.base import ListLoss
from rankwise.losses.rivals.dcg import normalised_gains
from rankwise.losses.rivals.weighing import grades_differ
from rankwise.pairs import pair_sums_within
from rankwise.registry import LossRecord
from rankwise.surrogates import Sigmoid

__all__ = ["ApproxNDCGLoss"]


class ApproxNDCGLoss(ListLoss):
    """1 - NDCG with smooth ranks: `1 - sum_i G_i / log2(1 + r_i)`, `r_i = 1 + sum_{j != i} sigmoid(alpha (s_j - s_i))`.

    G are gains over the ideal DCG of the list. In (0, 1); with a large alpha it is 1 - NDCG. Item weights multiply the
    gains (they take no room in the ranking), so inverse propensities can be given as weights. Lists of one grade are
    left out.

    Args:
        alpha: steepness of the sigmoids.
        gain: "exp2" for 2^y - 1, "linear" for y, or a function of grades.
        lists, empty, reduction: see `ListLoss`.

    Example:
        >>> ApproxNDCGLoss(alpha=100.0)(torch.tensor([0.1, 0.9, 0.5]), torch.tensor([1, 3, 0]))
        tensor(0.0172)

    Paper: Qin et al., A general approximation framework for direct optimization of information retrieval measures,
    Information Retrieval 2010.
    """

    label_kind = "grades"

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        gain: Gain = "exp2",
        lists: str = "rows",
        empty: str = "skip",
        reduction: str = "mean",
    ) -> None:
        super().__init__(lists=lists, empty=empty, reduction=reduction)
        self.surrogate = Sigmoid(1 / check_positive("alpha", alpha))
        self.gain = gain_function(gain)

    def per_list(self, packed: PackedLists, group_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        values, valid = packed.map(self._approximate)
        return values, valid

    def _approximate(self, lists: Lists) -> tuple[Tensor, Tensor]:
        gains = normalised_gains(lists, self.gain, None)
        return 1 - self._approximate_ndcg(lists.scores, gains, lists.mask), grades_differ(lists) & (gains > 0).any(1)

    def _approximate_ndcg(self, scores: Tensor, gains: Tensor, mask: Tensor) -> Tensor:
        """(Q,) from (Q, L) each; only items that gain need a rank."""
        places, gaining = compact(gains > 0)
        above = pair_sums_within(scores, places, self.surrogate, anchor_mask=gaining, other_mask=mask)
        # An item counts itself for half, so 1/2 is missing from its rank; log2(1 + rank) >= log2(3/2) in the holes.
        return (gains.gather(1, places) * gaining / torch.log2(above + 1.5)).sum(1)


RECORDS = (
    LossRecord(
        name="approx-ndcg",
        summary="NDCG with ranks counted by sigmoids",
        build=ApproxNDCGLoss,
        role="baseline",
        labels="grades",
        paper="Qin et al., Information Retrieval 2010",
    ),
)
