"""DR loss: rank the hard positives above the hard negatives of a list, each kind by one weighted mean."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import softplus

from rankwise.checks import check_positive
from rankwise.lists import Lists, PackedLists
from rankwise.losses.base import ListLoss
from rankwise.losses.baselines.shared import item_weights
from rankwise.registry import LossRecord

__all__ = ["DistributionalRankingLoss"]


class DistributionalRankingLoss(ListLoss):
    """Distributional ranking (DR) loss: one comparison of a list's hard positives with its hard negatives.

        softplus(L (P- - P+ + margin)) / L,

    where P- is the mean probability p = sigmoid(s) of the negatives, weighted by exp(p / negative_temperature),
    and P+ that of the positives, weighted by exp(-p / positive_temperature). A low temperature looks at the hardest
    items only, so a million easy negatives do not outweigh a few hard ones. Time O(n) for a list of n items.

    A list without positives has P+ = 1, one without negatives P- = 0, as in detection, where many images show nothing.

    Args:
        positive_temperature, negative_temperature: the paper's lambda+ and lambda-.
        margin: the wanted difference of P+ and P-.
        sharpness: L, how near the smooth loss is to the hinge max(0, P- - P+ + margin).
        lists, empty, reduction: see `ListLoss`.

    The defaults are those of the authors' code, which multiplies the loss by 4 to balance it with the loss of the
    boxes.

    Example:
        >>> loss = DistributionalRankingLoss()
        >>> loss(torch.tensor([3.0, -3.0]), torch.tensor([1, 0])), loss(torch.tensor([-3.0, 3.0]), torch.tensor([1, 0]))
        (tensor(0.0141), tensor(1.4052))

    Paper: Qian et al., DR Loss: Improving Object Detection by Distributional Ranking, CVPR 2020.
    """

    def __init__(
        self,
        *,
        positive_temperature: float = 1.0,
        negative_temperature: float = 0.1 / math.log(3.5),
        margin: float = 0.5,
        sharpness: float = 6.0,
        lists: str = "rows",
        empty: str = "skip",
        reduction: str = "mean",
    ) -> None:
        super().__init__(lists=lists, empty=empty, reduction=reduction)
        self.positive_temperature = check_positive("positive_temperature", positive_temperature)
        self.negative_temperature = check_positive("negative_temperature", negative_temperature)
        self.margin = check_positive("margin", margin, zero=True)
        self.sharpness = check_positive("sharpness", sharpness)

    def per_list(self, packed: PackedLists, group_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        values, valid = packed.map(self._block_values)
        return values, valid

    def _block_values(self, lists: Lists) -> tuple[Tensor, Tensor]:
        weights = item_weights(lists)
        positives = weights * (lists.labels == 1)
        negatives = weights - positives
        probabilities = torch.sigmoid(lists.scores)
        # 1 - P+ of the probabilities 1 - p, so that a list without positives has P+ = 1.
        missed = _hard_mean(1 - probabilities, positives, self.positive_temperature)
        above = _hard_mean(probabilities, negatives, self.negative_temperature)
        gap = self.sharpness * (above + missed - 1 + self.margin)
        return softplus(gap) / self.sharpness, (weights > 0).any(1)


def _hard_mean(values: Tensor, weights: Tensor, temperature: float) -> Tensor:
    """Compute the mean of values (Q, L) with weights times exp(value / temperature), (Q,); 0 for lists without any."""
    if not values.shape[1]:
        return values.sum(1)
    present = weights > 0
    highest = values.detach().masked_fill(~present, -torch.inf).amax(1, keepdim=True)
    exponent = ((values - highest) / temperature).masked_fill(~present, -torch.inf)
    shares = weights * torch.exp(exponent.masked_fill(~present.any(1, keepdim=True), -torch.inf))
    return (shares * values).sum(1) / shares.sum(1).clamp_min(torch.finfo(values.dtype).tiny)


RECORDS = (
    LossRecord(
        name="distributional-ranking",
        aliases=("dr-loss",),
        summary="hard positives above hard negatives, for lists with very many easy negatives (detection)",
        build=DistributionalRankingLoss,
        role="baseline",
        shift_invariant=False,
        paper="Qian et al., CVPR 2020 (DR loss)",
    ),
)
