"""Focal loss: cross entropy that cares less for items already right."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import softplus

from rankwise.checks import check_choice, check_positive, check_share
from rankwise.lists import Lists, PackedLists
from rankwise.losses.base import ListLoss
from rankwise.losses.rivals.weighing import item_weights, weighted_mean
from rankwise.registry import LossRecord

__all__ = ["FocalLoss"]


class FocalLoss(ListLoss):
    """Cross entropy of logits with each item weighed by how wrong it is; averaged over the items of each list.

        a (1 - p)^gamma (-log p),

    p the probability given to the true label, a = alpha for positives and 1 - alpha for negatives.

    Args:
        gamma: how fast the weight falls as an item becomes right; 0 is cross entropy.
        alpha: the weight of positives, in (0, 1).
        per: "item" takes the mean over items; "positive" divides the sum over items by the number of positives (at
            least 1), as detectors do, where nearly all items are easy negatives.
        lists, empty, reduction: see `ListLoss`.

    Example:
        >>> FocalLoss()(torch.tensor([0.0, -4.0]), torch.tensor([1, 0]))
        tensor(0.0217)

    Paper: Lin et al., Focal Loss for Dense Object Detection, ICCV 2017.
    """

    def __init__(
        self,
        gamma: float = 2.0,
        alpha: float = 0.25,
        *,
        per: str = "item",
        lists: str = "rows",
        empty: str = "skip",
        reduction: str = "mean",
    ) -> None:
        super().__init__(lists=lists, empty=empty, reduction=reduction)
        self.gamma = check_positive("gamma", gamma, zero=True)
        self.alpha = check_share("alpha", alpha)
        self.per = check_choice("per", per, ("item", "positive"))

    def per_list(self, packed: PackedLists, group_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        values, valid = packed.map(self._block_values)
        return values, valid

    def _block_values(self, lists: Lists) -> tuple[Tensor, Tensor]:
        positive = lists.labels == 1
        towards_truth = torch.where(positive, lists.scores, -lists.scores)
        # log p = -softplus(-z) and log (1 - p) = -softplus(z): no logarithm of 0.
        losses = torch.exp(-self.gamma * softplus(towards_truth)) * softplus(-towards_truth)
        losses, weights = losses * torch.where(positive, self.alpha, 1 - self.alpha), item_weights(lists)
        if self.per == "item":
            return weighted_mean(losses, weights)
        return (losses * weights).sum(1) / (weights * positive).sum(1).clamp_min(1), weights.sum(1) > 0


RECORDS = (
    LossRecord(
        name="focal",
        summary="cross entropy that cares less for items already right",
        build=FocalLoss,
        role="baseline",
        shift_invariant=False,
        paper="Lin et al., ICCV 2017",
        advice="very many easy negatives (detection)",
    ),
)
