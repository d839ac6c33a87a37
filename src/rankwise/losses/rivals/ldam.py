"""LDAM: cross entropy with a wider margin for the rarer kind."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import softplus

from rankwise.checks import check_positive
from rankwise.lists import Lists, PackedLists
from rankwise.losses.base import ListLoss
from rankwise.losses.links import Link
from rankwise.losses.rivals.counts import check_counts, counts_of
from rankwise.losses.rivals.weighing import item_weights, weighted_mean
from rankwise.registry import LossRecord

__all__ = ["LDAMLoss"]


class LDAMLoss(ListLoss):
    """Cross entropy in which an item must win by the margin of its kind; averaged over the items of each list.

        log(1 + exp(-scale (z - margin))),   margin = max_margin (n_rarer / n)^(1/4),

    z the score of a positive or minus the score of a negative, n the number of items of its kind.

    Args:
        max_margin: the margin of the rarer kind.
        scale: what scores are multiplied by after the margin is taken off; made for scores in [-1, 1].
        counts: (negatives, positives) of the data set; None takes those of each list.
        link: how scores come to [-1, 1], see `AUPRCLoss`; the paper's are cosines (`link="none"`).
        lists, empty, reduction: see `ListLoss`.

    Example:
        >>> loss = LDAMLoss(counts=(10_000, 1))
        >>> loss(torch.tensor([0.7, -0.7]), torch.tensor([1, 0]))
        tensor(0.0214)

    Paper: Cao et al., Learning Imbalanced Datasets with Label-Distribution-Aware Margin Loss, NeurIPS 2019; its two
    classes share one score here.
    """

    remembers = ()

    def __init__(
        self,
        max_margin: float = 0.5,
        scale: float = 30.0,
        *,
        counts: tuple[int, int] | None = None,
        link: str = "tanh",
        lists: str = "rows",
        empty: str = "skip",
        reduction: str = "mean",
    ) -> None:
        super().__init__(lists=lists, empty=empty, reduction=reduction)
        self.max_margin = check_positive("max_margin", max_margin, zero=True)
        self.scale = check_positive("scale", scale)
        self.counts = check_counts(counts)
        self.link = Link(link)

    def per_list(self, packed: PackedLists, group_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        values, valid = self.link(packed, group_ids).map(self._block_values)
        return values, valid

    def _block_values(self, lists: Lists) -> tuple[Tensor, Tensor]:
        own, rarer = counts_of(lists, self.counts)
        margins = self.max_margin * (rarer / own) ** 0.25
        towards_truth = torch.where(lists.labels == 1, lists.scores, -lists.scores)
        return weighted_mean(softplus(-self.scale * (towards_truth - margins)), item_weights(lists))


RECORDS = (
    LossRecord(
        name="ldam",
        summary="cross entropy with a wider margin for the rarer kind",
        build=LDAMLoss,
        role="baseline",
        shift_invariant=False,
        paper="Cao et al., NeurIPS 2019",
        advice="long-tailed classes; pass the `counts` of the data",
    ),
)
