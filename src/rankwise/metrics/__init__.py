"""Ranking metrics: exact, with stated ties, one sort for all of them.

Functions (`ndcg(scores, labels, k=10)`), names (`evaluate(scores, labels, ["ap", "ndcg@10"])`) and torchmetrics classes
(`NDCG(k=10)`, which need `pip install "rankwise[metrics]"`) share one definition.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rankwise.metrics.ap import average_precision
from rankwise.metrics.auc import auroc, partial_auroc
from rankwise.metrics.compare import Comparison, compare
from rankwise.metrics.compare_items import compare_items
from rankwise.metrics.detection import BoxTable, box_thresholds, evaluate_boxes, right_boxes
from rankwise.metrics.evaluate import Evaluation, evaluate
from rankwise.metrics.first import hit_rate, reciprocal_rank
from rankwise.metrics.grades import evaluate_grades
from rankwise.metrics.metric import Metric
from rankwise.metrics.names import METRICS, create_metric
from rankwise.metrics.ndcg import ndcg
from rankwise.metrics.pap import pap
from rankwise.metrics.retrieval import evaluate_retrieval
from rankwise.metrics.topk import precision, recall

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
    "hit_rate",
    "ndcg",
    "pap",
    "partial_auroc",
    "precision",
    "recall",
    "reciprocal_rank",
    "right_boxes",
]


def __getattr__(name: str) -> Any:
    # The classes stay unimported until asked for: torchmetrics is not among the core dependencies.
    if name in __all__:
        return getattr(import_module("rankwise.metrics.classes"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
