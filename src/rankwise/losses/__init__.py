"""Losses whose value falls as a ranking metric rises. Each is an ordinary `nn.Module`; any torch optimiser will do."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from rankwise.losses.auprc import AUPRCLoss
from rankwise.losses.base import ListLoss
from rankwise.losses.catalogue import RECORDS
from rankwise.losses.combined import Combined
from rankwise.losses.embedding import EmbeddingLoss
from rankwise.losses.late_memory import LateMemoryLoss
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
from rankwise.registry import LossRecord, Registry, nearest

__all__ = [
    "LOSSES",
    "AUPRCLoss",
    "BalancedCrossEntropyLoss",
    "Combined",
    "CrossEntropyLoss",
    "EmbeddingLoss",
    "GroupPrior",
    "LateMemoryLoss",
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


def create_loss(name: str, *, add: Sequence[Mapping[str, Any]] = (), **options: Any) -> Any:
    """A loss by its registered name or alias.

    Args:
        name: see `rankwise list losses`.
        add: losses to be added to it, each as a mapping with its name and options (see `Combined`).
        options: those of its class.

    Example:
        >>> type(create_loss("soprc", prior=0.05)).__name__
        'AUPRCLoss'
        >>> type(create_loss("soprc", add=[{"name": "semi-variance", "positive": 3}])).__name__
        'Combined'
    """
    build = LOSSES.get(name).build
    known = inspect.signature(build).parameters
    for option in options:
        if option not in known:
            raise ValueError(f"loss {name!r} has no option {option!r}{nearest(option, known)}")
    loss = build(**options)
    return Combined(loss, *(create_loss(**each) for each in add)) if add else loss
