"""Exact ranking metrics with stated tie policies, which share one sort.

Functions (`ndcg(scores, labels, k=10)`), names (`evaluate(scores, labels, ["ap", "ndcg@10"])`) and torchmetrics classes
(`NDCG(k=10)`, which need `pip install "rankwise[metrics]"`) share one definition.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rankwise.metrics._compare import Comparison, compare, compare_items
from rankwise.metrics._evaluate import Evaluation, evaluate, evaluate_grades, merge_evaluations
from rankwise.metrics._ndcg import ndcg
from rankwise.metrics._runs import evaluate_run
from rankwise.metrics.areas import auroc, average_precision, multiclass_auc, pap, partial_auroc
from rankwise.metrics.detection import BoxTable, box_thresholds, evaluate_boxes, right_boxes
from rankwise.metrics.metric import Metric
from rankwise.metrics.names import METRICS, create_metric
from rankwise.metrics.retrieval import evaluate_retrieval
from rankwise.metrics.top_k import hit_rate, precision, recall, reciprocal_rank

if TYPE_CHECKING:
    from rankwise.metrics.classes import (
        AUROC,
        NDCG,
        AveragePrecision,
        HitRate,
        PAp,
        PartialAUROC,
        Precision,
        RankingMetric,
        Recall,
        ReciprocalRank,
    )

__all__ = [
    "AUROC",
    "METRICS",
    "NDCG",
    "AveragePrecision",
    "BoxTable",
    "Comparison",
    "Evaluation",
    "HitRate",
    "Metric",
    "PAp",
    "PartialAUROC",
    "Precision",
    "RankingMetric",
    "Recall",
    "ReciprocalRank",
    "auroc",
    "average_precision",
    "box_thresholds",
    "compare",
    "compare_items",
    "create_metric",
    "evaluate",
    "evaluate_boxes",
    "evaluate_grades",
    "evaluate_retrieval",
    "evaluate_run",
    "hit_rate",
    "merge_evaluations",
    "multiclass_auc",
    "ndcg",
    "pap",
    "partial_auroc",
    "precision",
    "recall",
    "reciprocal_rank",
    "right_boxes",
]


def __getattr__(name: str) -> Any:
    # The classes are imported on first use, because torchmetrics is not a core dependency.
    if name in __all__:
        return getattr(import_module("rankwise.metrics.classes"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
