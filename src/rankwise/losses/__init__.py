"""Losses whose value falls as a ranking metric rises. Each is an ordinary `nn.Module`; any torch optimiser will do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rankwise.losses import auprc, listwise, ndcg, pap, semi_variance, stable_ap, top_k_ndcg
from rankwise.losses.auprc import AUPRCLoss
from rankwise.losses.base import ListLoss
from rankwise.losses.combined import Combined
from rankwise.losses.embedding import EmbeddingLoss
from rankwise.losses.late_memory import LateMemoryLoss
from rankwise.losses.listwise import ListwiseCELoss
from rankwise.losses.ndcg import NDCGLoss
from rankwise.losses.pap import PApLoss
from rankwise.losses.pap_margins import PApMargins, pap_margins
from rankwise.losses.priors import GroupPrior, Prior, PriorSchedule, class_prior, data_prior
from rankwise.losses.rivals import (
    BalancedCrossEntropyLoss,
    CrossEntropyLoss,
    ap_loss,
    approx_ndcg,
    blackbox_ap,
    bpr,
    cross_entropy,
    fast_ap,
    focal,
    greedy_top_k,
    gumbel_approx_ndcg,
    histogram_ap,
    lambdaloss,
    ldam,
    listmle,
    listnet,
    metric_learning,
    neural_ndcg,
    pairwise_auroc,
    partial_auc,
    pointwise,
    precision_at_k,
    ranknet,
    smooth_ap,
    soap,
    softmax,
)
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

# In the order in which they are listed: by metric, the methods of the papers before the baselines.
_MODULES = (
    # average precision
    auprc, stable_ap, semi_variance,
    cross_entropy, focal, ldam, pairwise_auroc, smooth_ap, soap, histogram_ap, fast_ap, blackbox_ap, ap_loss,
    metric_learning,
    # NDCG
    ndcg, top_k_ndcg, listwise,
    lambdaloss, approx_ndcg, gumbel_approx_ndcg, neural_ndcg, listnet, listmle, softmax, ranknet, bpr, pointwise,
    # pAp@k
    pap,
    partial_auc, precision_at_k, greedy_top_k,
)  # fmt: skip

LOSSES: Registry[LossRecord] = Registry("loss")
for _module in _MODULES:
    for _record in _module.RECORDS:
        LOSSES.add(_record)


def create_loss(name: str, *, add: Sequence[Mapping[str, Any]] = (), **options: Any) -> Any:
    """Make a loss by its registered name or alias.

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
    loss = LOSSES.get(name).create(**options)
    return Combined(loss, *(create_loss(**each) for each in add)) if add else loss
