"""What AP losses estimate, without the slack of their smooth surrogates: counts in place of them."""

from __future__ import annotations

from torch import Tensor, isnan, zeros_like

from rankwise.lists import PackedLists
from rankwise.losses import AUPRCLoss, ListLoss, Prior
from rankwise.metrics import create_metric
from rankwise.metrics.metric import measure_lists

__all__ = ["BatchAP", "ExactAUPRC"]


class BatchAP(ListLoss):
    """One minus the average precision of what is in the batch: the plain AP loss. It has no gradient.

    Example:
        >>> import torch
        >>> BatchAP()(torch.tensor([.9, .8, .7, .6]), torch.tensor([1, 0, 1, 0]))
        tensor(0.1667, dtype=torch.float64)
    """

    def per_list(self, packed: PackedLists, group_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        values, _ = measure_lists(packed, [create_metric("ap")])
        return (1 - values["ap"]).nan_to_num(0.0), ~isnan(values["ap"])


class ExactAUPRC(AUPRCLoss):
    """The estimate of 1 - AUPRC that SOPRC makes from a batch, with counts instead of surrogates. It has no gradient.

    The mean over the positives i of `x / (1 + x)`, `x = (1 - prior) / prior * FPR_i / TPR_i`, FPR_i the share of the
    batch's negatives at or above i, TPR_i the share of positives above it, itself counted.

    Args:
        prior, recall, update_rate, reduction: see `AUPRCLoss`. With `prior="batch"` and `recall="batch"` it is one
            minus the average precision of the batch, where positives are not tied.

    Example:
        >>> import torch
        >>> exact = ExactAUPRC("batch", recall="batch")
        >>> exact(torch.tensor([.9, .8, .7, .6]), torch.tensor([1, 0, 1, 0]))
        tensor(0.1667)
    """

    def __init__(
        self,
        prior: float | str | Tensor | Prior,
        *,
        recall: str = "quantiles",
        update_rate: float = 0.1,
        reduction: str = "mean",
    ) -> None:
        super().__init__(prior, recall=recall, update_rate=update_rate, link="none", reduction=reduction)
        self.precision_surrogate = AtMostZero()
        self.recall_surrogate = BelowZero()


class AtMostZero:
    """1[x <= 0]."""

    pieces = None

    def value(self, x: Tensor) -> Tensor:
        return (x <= 0).to(x.dtype)

    def slope(self, x: Tensor) -> Tensor:
        return zeros_like(x)

    def curvature(self, x: Tensor) -> Tensor:
        return zeros_like(x)


class BelowZero(AtMostZero):
    """1[x < 0]."""

    def value(self, x: Tensor) -> Tensor:
        return (x < 0).to(x.dtype)
