"""Regression of what items are worth, one by one."""

from __future__ import annotations

from torch import Tensor

from rankwise.checks import check_choice
from rankwise.gains import gain_function
from rankwise.lists import Lists, PackedLists
from rankwise.losses.base import ListLoss
from rankwise.losses.rivals.weighing import item_weights, weighted_mean
from rankwise.registry import LossRecord

__all__ = ["SquaredErrorLoss"]


class SquaredErrorLoss(ListLoss):
    """The weighted mean over the items of a list of `(s_i - t_i)^2`. Float64, whatever the scores are.

    Args:
        target: t, what a score should be: the "grades" y, or their "gains" 2^y - 1.
        lists, empty, reduction: see `ListLoss`.

    Example:
        >>> import torch
        >>> SquaredErrorLoss(target="gains")(torch.tensor([2.0, 0.0]), torch.tensor([2, 0]))
        tensor(0.5000, dtype=torch.float64)

    Paper: Cossock and Zhang, Subset ranking using regression, COLT 2006.
    """

    label_kind = "grades"

    def __init__(
        self, target: str = "grades", *, lists: str = "rows", empty: str = "skip", reduction: str = "mean"
    ) -> None:
        super().__init__(lists=lists, empty=empty, reduction=reduction)
        self.target = check_choice("target", target, ("grades", "gains"))

    def per_list(self, packed: PackedLists, group_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        gain = gain_function("exp2" if self.target == "gains" else "linear")

        def mean_square(lists: Lists) -> tuple[Tensor, Tensor]:
            # Squares of large float32 numbers leave its range.
            return weighted_mean((lists.scores.double() - gain(lists.labels)).square(), item_weights(lists).double())

        values, valid = packed.map(mean_square)
        return values, valid


RECORDS = (
    LossRecord(
        name="squared-error",
        aliases=("mse",),
        summary="squared distance of scores from grades or gains, item by item",
        build=SquaredErrorLoss,
        role="baseline",
        labels="grades",
        shift_invariant=False,
        paper="Cossock and Zhang, COLT 2006",
    ),
)
