"""Losses for ranking metrics: the lower the loss, the higher the metric. Each is an `nn.Module` for any optimiser."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from rankwise.deprecation import renamed_attributes
from rankwise.estimators.groups import GroupPrior, Prior, PriorSchedule, class_prior, data_prior, list_prior
from rankwise.losses import auprc, ndcg, pap, stable_ap
from rankwise.losses.auprc import AUPRCLoss, SemiVarianceLoss
from rankwise.losses.base import ListLoss
from rankwise.losses.baselines import (
    ALRPLoss,
    APLoss,
    ApproxNDCGLoss,
    BalancedCrossEntropyLoss,
    BinaryCrossEntropyLoss,
    BlackboxAPLoss,
    BPRLoss,
    CrossBatchMemoryLoss,
    DistributionalRankingLoss,
    FastAPLoss,
    FocalLoss,
    GreedyTopKLoss,
    GumbelApproxNDCGLoss,
    HingePartialAUCLoss,
    HistogramAPLoss,
    LambdaLoss,
    LambdaRankLoss,
    LDAMLoss,
    ListMLELoss,
    ListNetLoss,
    MetricLearningLoss,
    NeuralNDCGLoss,
    PairwiseAUROCLoss,
    PrecisionAtKLoss,
    RankNetLoss,
    SampledSoftmaxLoss,
    SmoothAPLoss,
    SOAPLoss,
    SoDeepLoss,
    SoftmaxLoss,
    Sorter,
    SquaredErrorLoss,
    batch_ap,
    distributional_ranking,
    histogram_ap,
    listwise,
    metric_learning,
    neural_ndcg,
    pairwise,
    pointwise,
    soap,
    sodeep,
    top_k,
    train_sorter,
)
from rankwise.losses.combined import SumLoss, SwitchLoss
from rankwise.losses.embedding import EmbeddingLoss, LateMemoryLoss
from rankwise.losses.ndcg import ListwiseCELoss, NDCGLoss, TopKNDCGLoss
from rankwise.losses.pap import PApLoss, PApMargins, pap_margins
from rankwise.losses.sampled_lists import ListStatistics
from rankwise.losses.stable_ap import StableAPLoss
from rankwise.registry import LossRecord, Registry

__all__ = [
    "LOSSES",
    "ALRPLoss",
    "APLoss",
    "AUPRCLoss",
    "ApproxNDCGLoss",
    "BPRLoss",
    "BalancedCrossEntropyLoss",
    "BinaryCrossEntropyLoss",
    "BlackboxAPLoss",
    "CrossBatchMemoryLoss",
    "DistributionalRankingLoss",
    "EmbeddingLoss",
    "FastAPLoss",
    "FocalLoss",
    "GreedyTopKLoss",
    "GroupPrior",
    "GumbelApproxNDCGLoss",
    "HingePartialAUCLoss",
    "HistogramAPLoss",
    "LDAMLoss",
    "LambdaLoss",
    "LambdaRankLoss",
    "LateMemoryLoss",
    "ListLoss",
    "ListMLELoss",
    "ListNetLoss",
    "ListStatistics",
    "ListwiseCELoss",
    "MetricLearningLoss",
    "NDCGLoss",
    "NeuralNDCGLoss",
    "PApLoss",
    "PApMargins",
    "PairwiseAUROCLoss",
    "PrecisionAtKLoss",
    "Prior",
    "PriorSchedule",
    "RankNetLoss",
    "SOAPLoss",
    "SampledSoftmaxLoss",
    "SemiVarianceLoss",
    "SmoothAPLoss",
    "SoDeepLoss",
    "SoftmaxLoss",
    "Sorter",
    "SquaredErrorLoss",
    "StableAPLoss",
    "SumLoss",
    "SwitchLoss",
    "TopKNDCGLoss",
    "class_prior",
    "create_loss",
    "data_prior",
    "list_prior",
    "pap_margins",
    "train_sorter",
]

# The order of listings: the papers' methods by metric (AP, NDCG, pAp@k), then the baselines.
_METHODS = (auprc, stable_ap, ndcg, pap)
_BASELINES = (
    pointwise,
    pairwise,
    listwise,
    neural_ndcg,
    batch_ap,
    histogram_ap,
    soap,
    distributional_ranking,
    sodeep,
    top_k,
    metric_learning,
)

__getattr__ = renamed_attributes(
    __name__,
    {
        "rivals": "rankwise.losses.baselines",
        "Combined": "rankwise.losses.SumLoss",
        "CrossEntropyLoss": "rankwise.losses.BinaryCrossEntropyLoss",
        "SemiVariance": "rankwise.losses.SemiVarianceLoss",
    },
    removed_in="0.3",
)

LOSSES: Registry[LossRecord] = Registry("loss")
for _module in (*_METHODS, *_BASELINES):
    for _record in _module.RECORDS:
        LOSSES.add(_record)


def create_loss(name: str, *, add: Sequence[Mapping[str, Any]] = (), **options: Any) -> ListLoss | MetricLearningLoss:
    """Create a loss by its registered name or alias.

    Args:
        name: see `rankwise list losses`.
        add: losses to add to it, each as a mapping with its name and options (see `SumLoss`).
        options: arguments of its class.

    Returns:
        a `ListLoss`; a `MetricLearningLoss` for the names of pytorch-metric-learning.

    Example:
        >>> type(create_loss("soprc", prior=0.05)).__name__
        'AUPRCLoss'
        >>> type(create_loss("soprc", add=[{"name": "semi-variance", "positive": 3}])).__name__
        'SumLoss'
    """
    loss: ListLoss | MetricLearningLoss = LOSSES.get(name).create(**options)
    if not add:
        return loss
    return SumLoss(*(cast(ListLoss, each) for each in (loss, *(create_loss(**options) for options in add))))
