"""An add-on that pulls stragglers towards their own kind, for any loss."""

from __future__ import annotations

import torch
from torch import Tensor

from rankwise.checks import check_positive
from rankwise.lists import Lists, PackedLists
from rankwise.losses.base import ListLoss
from rankwise.losses.links import Link
from rankwise.registry import LossRecord

__all__ = ["SemiVariance"]


class SemiVariance(ListLoss):
    """Penalises positives below the mean positive and negatives above the mean negative of each list.

        positive / n+ * sum over s_i < mu+ of (s_i - mu+)^2  +  negative / n- * sum over s_j > mu- of (s_j - mu-)^2

    Add it to a loss with `Combined(loss, SemiVariance(3, 15))`. Linked scores about 1e19 apart give an infinite value
    in float32, and still their gradient.

    Args:
        positive: weight of the first sum; negative: weight of the second.
        link: as in the loss it is added to, see `AUPRCLoss`.
        lists, empty, reduction: see `ListLoss`.

    Example:
        >>> SemiVariance(1.0, 1.0)(torch.tensor([0.8, 0.4, 0.1, 0.3]), torch.tensor([1, 1, 0, 0]))
        tensor(0.0250)

    Paper: Wen et al., NeurIPS 2022, equation (9).
    """

    remembers = ()

    def __init__(
        self,
        positive: float = 1.0,
        negative: float = 5.0,
        *,
        link: str = "scale",
        lists: str = "rows",
        empty: str = "skip",
        reduction: str = "mean",
    ) -> None:
        super().__init__(lists=lists, empty=empty, reduction=reduction)
        self.positive = check_positive("positive", positive, zero=True)
        self.negative = check_positive("negative", negative, zero=True)
        self.link = Link(link)

    def per_list(self, packed: PackedLists, group_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        values, valid = self.link(packed, group_ids).map(self._block_values)
        return values, valid

    def _block_values(self, lists: Lists) -> tuple[Tensor, Tensor]:
        items = lists.mask.to(lists.scores.dtype) if lists.weights is None else lists.weights.to(lists.scores.dtype)
        positives = items * (lists.labels == 1)
        negatives = items - positives
        spread = self.positive * _half_variance(-lists.scores, positives)
        spread = spread + self.negative * _half_variance(lists.scores, negatives)
        return spread, (positives.sum(1) > 0) & (negatives.sum(1) > 0)


def _half_variance(scores: Tensor, weights: Tensor) -> Tensor:
    """Mean square of how far scores lie above their weighted mean, (Q, L) to (Q,)."""
    if not scores.shape[1]:
        return scores.sum(1)
    share = weights / weights.sum(1, keepdim=True).clamp_min(torch.finfo(scores.dtype).tiny)
    # From the highest score, so that the mean of equal scores is exactly theirs, however large.
    highest = scores.detach().masked_fill(weights == 0, -torch.inf).amax(1, keepdim=True)
    depths = scores - highest.masked_fill(highest.isinf(), 0)
    above = (depths - (depths * share).sum(1, keepdim=True)).clamp_min(0)
    # Roots of the shares, not shares: what is 0 there must be 0 before it is squared, not infinity times 0.
    return (above * share.sqrt()).square().sum(1)


RECORDS = (
    LossRecord(
        name="semi-variance",
        summary="add-on: pulls low positives and high negatives towards the mean of their kind",
        build=SemiVariance,
        role="paper",
        paper="Wen et al., NeurIPS 2022, equation (9)",
    ),
)
