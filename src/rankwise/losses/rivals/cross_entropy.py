"""Binary cross entropy, plain and balanced."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from rankwise.lists import Lists, PackedLists
from rankwise.losses.base import ListLoss
from rankwise.losses.rivals.weighing import item_weights, weighted_mean

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
    """Binary cross entropy of logits, half from the mean over positives and half from the mean over negatives.

    A list of one kind only counts with that kind.

    Example:
        >>> import torch
        >>> BalancedCrossEntropyLoss()(torch.tensor([0.0, 0.0, 0.0]), torch.tensor([1, 0, 0]))
        tensor(0.6931)
    """

    def per_list(self, packed: PackedLists, group_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        values, valid = packed.map(_balanced)
        return values, valid


def _balanced(lists: Lists) -> tuple[Tensor, Tensor]:
    losses, weights = _item_losses(lists), item_weights(lists)
    positive = weights * (lists.labels == 1)
    of_positives, any_positive = weighted_mean(losses, positive)
    of_negatives, any_negative = weighted_mean(losses, weights - positive)
    kinds = any_positive.to(losses.dtype) + any_negative
    return (of_positives + of_negatives) / kinds.clamp_min(1), kinds > 0


def _item_losses(lists: Lists) -> Tensor:
    return binary_cross_entropy_with_logits(lists.scores, lists.labels.to(lists.scores.dtype), reduction="none")
