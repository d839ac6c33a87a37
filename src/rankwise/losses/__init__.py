"""Losses whose value falls as a ranking metric rises. Each is an ordinary `nn.Module`; any torch optimiser will do."""

from __future__ import annotations

from typing import Any

from rankwise.losses.auprc import AUPRCLoss
from rankwise.losses.base import ListLoss
from rankwise.losses.combined import Combined
from rankwise.losses.embedding import EmbeddingLoss
from rankwise.losses.priors import GroupPrior, Prior, PriorSchedule, class_prior, data_prior
from rankwise.losses.rivals import BalancedCrossEntropyLoss, CrossEntropyLoss
from rankwise.losses.semi_variance import SemiVariance
from rankwise.registry import LossRecord, Registry

__all__ = [
    "LOSSES",
    "AUPRCLoss",
    "BalancedCrossEntropyLoss",
    "Combined",
    "CrossEntropyLoss",
    "EmbeddingLoss",
    "GroupPrior",
    "ListLoss",
    "Prior",
    "PriorSchedule",
    "SemiVariance",
    "class_prior",
    "create_loss",
    "data_prior",
]

LOSSES: Registry[LossRecord] = Registry("loss")
LOSSES.add(
    LossRecord(
        name="auprc",
        aliases=("soprc",),
        summary="average precision (area under the precision-recall curve), from batches of any composition",
        build=AUPRCLoss,
        paper="Wen et al., NeurIPS 2022 (SOPRC)",
    )
)
LOSSES.add(
    LossRecord(
        name="semi-variance",
        summary="add-on: pulls low positives and high negatives towards the mean of their kind",
        build=SemiVariance,
        paper="Wen et al., NeurIPS 2022, equation (9)",
    )
)
LOSSES.add(
    LossRecord(
        name="cross-entropy",
        aliases=("ce",),
        summary="rival: binary cross entropy of logits",
        build=CrossEntropyLoss,
        shift_invariant=False,
    )
)
LOSSES.add(
    LossRecord(
        name="balanced-cross-entropy",
        aliases=("balanced-ce",),
        summary="rival: binary cross entropy with positives and negatives weighing the same",
        build=BalancedCrossEntropyLoss,
        shift_invariant=False,
    )
)


def create_loss(name: str, **options: Any) -> Any:
    """A loss by its registered name or alias; `options` are those of its class.

    Example:
        >>> type(create_loss("soprc", prior=0.05)).__name__
        'AUPRCLoss'
    """
    return LOSSES.get(name).build(**options)
