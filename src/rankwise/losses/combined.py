"""Losses composed of list losses: their sum, or one after the other."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from rankwise.checks import check_count
from rankwise.lists import PackedLists
from rankwise.losses.base import CountsSteps, ListLoss

__all__ = ["SumLoss", "SwitchLoss"]


class SumLoss(ListLoss):
    """Sum of losses over the same lists, for add-ons such as `SemiVarianceLoss`.

    Args:
        losses: two or more list losses; `lists`, `empty` and `reduction` are those of the first.

    A list counts if it counts for the first loss; an add-on that is undefined on it adds 0.

    Example:
        >>> from rankwise.losses import AUPRCLoss, SemiVarianceLoss
        >>> loss = SumLoss(AUPRCLoss(), SemiVarianceLoss(3, 15))
        >>> bool(loss(torch.tensor([0.9, 0.1, 0.2]), torch.tensor([1, 0, 0])) >= 0)
        True
    """

    remembers = ()
    state_by_list = True  # beside that of the parts

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


class SwitchLoss(CountsSteps, ListLoss):
    """Warm-up: one loss for a number of training steps, another one after them.

    A step is a call in training mode. The count is a buffer, so a resumed training switches at the same step.

    Args:
        first: the loss to start with, such as `ListwiseCELoss()`; its `lists`, `empty` and `reduction` apply.
        second: the loss after them; for the same kind of labels.
        after: training steps with the first loss.

    Example:
        >>> from rankwise.losses import ListwiseCELoss, NDCGLoss
        >>> loss = SwitchLoss(ListwiseCELoss(), NDCGLoss(), after=1)
        >>> scores, labels = torch.tensor([0.0, 0.0]), torch.tensor([1, 0])
        >>> [round(float(loss(scores, labels)), 2), round(float(loss(scores, labels)), 2)]
        [0.69, 0.37]
        >>> loss.switched
        True
    """

    remembers = ()
    state_by_list = True  # beside that of the parts

    def __init__(self, first: ListLoss, second: ListLoss, after: int) -> None:
        for name, loss in (("first", first), ("second", second)):
            if not isinstance(loss, ListLoss):
                raise TypeError(f"{name}: expected a list loss, got {type(loss).__name__}")
        if first.label_kind != second.label_kind:
            raise ValueError(f"second: expected a loss of {first.label_kind} labels, got {second.label_kind}")
        check_count("after", after, least=0)
        super().__init__(lists=first.lists, empty=first.empty, reduction=first.reduction)
        self.label_kind = first.label_kind
        self.losses = nn.ModuleList([first, second])
        self.after = after
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))

    @property
    def switched(self) -> bool:
        """Return whether the next call uses the second loss."""
        return self.steps >= self.after

    def per_list(self, packed: PackedLists, group_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        loss = cast(ListLoss, self.losses[int(self.switched)])
        values, valid = loss.per_list(packed, group_ids)
        if self.training:
            self.advance()
        return values, valid
