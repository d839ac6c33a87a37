"""AP-loss: average precision descended by an error-driven update instead of a derivative."""

from __future__ import annotations

import torch
from torch import Tensor

from rankwise.checks import check_positive
from rankwise.lists import Lists, PackedLists
from rankwise.losses.base import ListLoss
from rankwise.losses.links import Link
from rankwise.losses.rivals.error_driven import pair_updates
from rankwise.losses.rivals.given_gradient import with_gradient
from rankwise.losses.rivals.soft_ranks import soft_ranks
from rankwise.losses.sides import split_sides
from rankwise.registry import LossRecord
from rankwise.surrogates import PiecewiseStep

__all__ = ["APLoss"]


class APLoss(ListLoss):
    """1 - AP, whose gradient is not a derivative: every pair moves by what it costs.

    A positive i and a negative j cost L_ij = H_ij / rank_i, where H_ij = H(s_i - s_j) is the step from 1 to 0 along a
    line over [-delta, delta], and rank_i = 1 + sum of H over all other items. The value is the mean over the positives
    of sum_j L_ij; the "gradient" of a positive is -sum_j L_ij / n+, that of a negative sum_i L_ij / n+. So a pair that
    is badly wrong, where the step is flat, still moves.

    Args:
        delta: half the width of the step; positives this much above a negative have won.
        link: how scores are changed first, see `AUPRCLoss`; the paper takes logits as they are.
        lists, empty, reduction: see `ListLoss`.

    Example:
        >>> scores = torch.tensor([3.0, -3.0, 0.0], requires_grad=True)
        >>> value = APLoss()(scores, torch.tensor([1, 1, 0]))
        >>> value.backward()
        >>> value.item(), scores.grad
        (0.16666..., tensor([ 0.0000, -0.1667,  0.1667]))

    Paper: Chen et al., Towards Accurate One-Stage Object Detection with AP-Loss, CVPR 2019, without the interpolated
    precision.
    """

    remembers = ()

    def __init__(
        self,
        delta: float = 1.0,
        *,
        link: str = "none",
        lists: str = "rows",
        empty: str = "skip",
        reduction: str = "mean",
    ) -> None:
        super().__init__(lists=lists, empty=empty, reduction=reduction)
        self.step = PiecewiseStep(check_positive("delta", delta))
        self.link = Link(link)

    def per_list(self, packed: PackedLists, group_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        values, valid = self.link(packed, group_ids).map(self._block_values)
        return values, valid

    def _block_values(self, lists: Lists) -> tuple[Tensor, Tensor]:
        sides = split_sides(lists)
        with torch.no_grad():
            above, rank = soft_ranks(lists, sides, self.step)
            gradient = pair_updates(lists, sides, self.step, sides.share / rank)
        values = (above / rank * sides.share).sum(1)
        reason = "its gradient is an update of pairs, not a derivative"
        return with_gradient(values, lists.scores, gradient, type(self).__name__, reason), sides.valid


RECORDS = (
    LossRecord(
        name="ap-loss",
        summary="average precision by error-driven updates",
        build=APLoss,
        role="baseline",
        paper="Chen et al., CVPR 2019",
        advice="detection; badly wrong pairs still move",
    ),
)
