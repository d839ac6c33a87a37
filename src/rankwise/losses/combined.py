"""The sum of several losses on the same lists."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from rankwise.lists import PackedLists
from rankwise.losses.base import ListLoss

__all__ = ["Combined"]


class Combined(ListLoss):
    """The sum of losses over the same lists, for add-ons such as `SemiVariance`.

    Args:
        losses: two or more list losses; the first says how lists are laid out and reduced.

    A list counts if it counts for the first loss; an add-on that is not defined there adds nothing.

    Example:
        >>> from rankwise.losses import AUPRCLoss, SemiVariance
        >>> loss = Combined(AUPRCLoss(), SemiVariance(3, 15))
        >>> bool(loss(torch.tensor([0.9, 0.1, 0.2]), torch.tensor([1, 0, 0])) >= 0)
        True
    """

    remembers = ()

    def __init__(self, *losses: ListLoss) -> None:
        if len(losses) < 2 or not all(isinstance(loss, ListLoss) for loss in losses):
            raise TypeError(f"losses: expected two or more list losses, got {[type(x).__name__ for x in losses]}")
        first = losses[0]
        super().__init__(lists=first.lists, empty=first.empty, reduction=first.reduction)
        if any(loss.label_kind != first.label_kind for loss in losses):
            raise ValueError(f"losses: expected one kind of labels, got {sorted({x.label_kind for x in losses})}")
        self.label_kind = first.label_kind
        self.losses = nn.ModuleList(losses)

    def per_list(self, packed: PackedLists, group_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        first, *others = (cast(ListLoss, loss) for loss in self.losses)
        values, valid = first.per_list(packed, group_ids)
        for loss in others:
            extra, defined = loss.per_list(packed, group_ids)
            values = values + torch.where(defined, extra, 0)
        return values, valid
