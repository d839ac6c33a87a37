"""Binary cross entropy, plain and balanced."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from rankwise.checks import check_share
from rankwise.lists import Lists, PackedLists
from rankwise.losses.base import ListLoss
from rankwise.losses.rivals.counts import check_counts, counts_of
from rankwise.losses.rivals.weighing import item_weights, weighted_mean
from rankwise.registry import LossRecord

__all__ = ["BalancedCrossEntropyLoss", "CrossEntropyLoss"]


class CrossEntropyLoss(ListLoss):
    """Binary cross entropy of logits, averaged over the items of each list.

    Example:
        >>> import torch
        >>> CrossEntropyLoss()(torch.tensor([0.0, 0.0]), torch.tensor([1, 0]))
        tensor(0.6931)
    """

    itemwise = True

    def per_list(self, packed: PackedLists, group_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        values, valid = packed.map(lambda lists: weighted_mean(_item_losses(lists), item_weights(lists)))
        return values, valid


class BalancedCrossEntropyLoss(ListLoss):
    """Binary cross entropy of logits, the items of a kind weighing less the more there are of it.

    A weighted mean over the items of each list: an item of a kind (positive or negative) with n items weighs

        (1 - beta) / (1 - beta^n),

    the inverse of the kind's effective number. With beta = 1 that is 1 / n: half of the loss comes from the positives
    and half from the negatives. Towards 0 it becomes plain cross entropy. A list of one kind counts with that kind.

    Args:
        beta: in (0, 1]; the paper tries .9, .99, .999 and .9999.
        counts: (negatives, positives) of the data set; None takes those of each list.
        lists, empty, reduction: see `ListLoss`.

    Example:
        >>> import torch
        >>> BalancedCrossEntropyLoss()(torch.tensor([0.0, 0.0, 0.0]), torch.tensor([1, 0, 0]))
        tensor(0.6931)

    Paper: Cui et al., Class-Balanced Loss Based on Effective Number of Samples, CVPR 2019, equation (6).
    """

    def __init__(
        self,
        beta: float = 1.0,
        *,
        counts: tuple[int, int] | None = None,
        lists: str = "rows",
        empty: str = "skip",
        reduction: str = "mean",
    ) -> None:
        super().__init__(lists=lists, empty=empty, reduction=reduction)
        self.beta = check_share("beta", beta, open_end=False)
        self.counts = check_counts(counts)

    def per_list(self, packed: PackedLists, group_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        values, valid = packed.map(self._block_values)
        return values, valid

    def _block_values(self, lists: Lists) -> tuple[Tensor, Tensor]:
        weights = item_weights(lists)
        if self.beta == 1 and self.counts is None:
            # By weight and not by number, so that an item of weight 2 is that item twice.
            positive = weights * (lists.labels == 1)
            return weighted_mean(_item_losses(lists), _share(positive) + _share(weights - positive))
        counts, _ = counts_of(lists, self.counts)
        effective = counts if self.beta == 1 else (1 - self.beta**counts) / (1 - self.beta)
        return weighted_mean(_item_losses(lists), weights / effective)


def _item_losses(lists: Lists) -> Tensor:
    return binary_cross_entropy_with_logits(lists.scores, lists.labels.to(lists.scores.dtype), reduction="none")


def _share(weights: Tensor) -> Tensor:
    """Each weight over the sum of its list."""
    return weights / weights.sum(1, keepdim=True).clamp_min(torch.finfo(weights.dtype).tiny)


RECORDS = (
    LossRecord(
        name="cross-entropy",
        aliases=("ce",),
        summary="binary cross entropy of logits",
        build=CrossEntropyLoss,
        role="baseline",
        shift_invariant=False,
        advice="the first thing to try; gives probabilities",
    ),
    LossRecord(
        name="balanced-cross-entropy",
        aliases=("balanced-ce",),
        summary="binary cross entropy with positives and negatives weighing the same",
        build=BalancedCrossEntropyLoss,
        role="baseline",
        shift_invariant=False,
        advice="few positives, batches drawn like the data",
    ),
    LossRecord(
        name="class-balanced-cross-entropy",
        aliases=("class-balanced-ce",),
        summary="binary cross entropy weighed by the effective number of each kind",
        build=partial(BalancedCrossEntropyLoss, 0.999),
        role="baseline",
        shift_invariant=False,
        paper="Cui et al., CVPR 2019",
        advice="between plain and balanced; pass the `counts` of the data",
    ),
)
