"""Losses whose value falls as a ranking metric rises. Each is an ordinary `nn.Module`; any torch optimiser will do."""

from __future__ import annotations

from typing import Any

from rankwise.losses.auprc import AUPRCLoss
from rankwise.losses.base import ListLoss
from rankwise.losses.catalogue import RECORDS
from rankwise.losses.combined import Combined
from rankwise.losses.embedding import EmbeddingLoss
from rankwise.losses.listwise import ListwiseCELoss
from rankwise.losses.ndcg import NDCGLoss
from rankwise.losses.pap import PApLoss
from rankwise.losses.pap_margins import PApMargins, pap_margins
from rankwise.losses.priors import GroupPrior, Prior, PriorSchedule, class_prior, data_prior
from rankwise.losses.rivals import BalancedCrossEntropyLoss, CrossEntropyLoss
from rankwise.losses.semi_variance import SemiVariance
from rankwise.losses.stable_ap import StableAPLoss
from rankwise.losses.statistics import ListStatistics
from rankwise.losses.switch import SwitchLoss
from rankwise.losses.top_k_ndcg import TopKNDCGLoss
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
    "ListStatistics",
    "ListwiseCELoss",
    "NDCGLoss",
    "PApLoss",
    "PApMargins",
    "Prior",
    "PriorSchedule",
    "SemiVariance",
    "StableAPLoss",
    "SwitchLoss",
    "TopKNDCGLoss",
    "class_prior",
    "create_loss",
    "data_prior",
    "pap_margins",
]

LOSSES: Registry[LossRecord] = Registry("loss")
for _record in RECORDS:
    LOSSES.add(_record)


def create_loss(name: str, **options: Any) -> Any:
    """A loss by its registered name or alias; `options` are those of its class.

    Example:
        >>> type(create_loss("soprc", prior=0.05)).__name__
        'AUPRCLoss'
    """
    return LOSSES.get(name).build(**options)
