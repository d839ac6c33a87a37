"""Average precision, the area under the precision-recall curve (AUPRC)."""

from __future__ import annotations

import torch
from torch import Tensor

from rankwise.metrics.metric import Metric, measure
from rankwise.positives import Positives
from rankwise.ranks import RankedLists
from rankwise.registry import MetricRecord

__all__ = ["AP", "average_precision"]


def average_precision(
    scores: object,
    labels: object,
    *,
    query_ids: object = None,
    mask: object = None,
    weights: object = None,
    ties: str = "average",
    empty: str = "skip",
    reduction: str = "mean",
) -> Tensor:
    """Average precision (AUPRC, and over several lists mAP).

    The mean over the relevant items i of the precision among all items scored no lower than i:
    `AP = 1/n+ sum_i TP(s_i) / (TP(s_i) + FP(s_i))`. Tied items are one threshold, as in scikit-learn.

    Args:
        scores: (N,) one list, or many with `query_ids`; or (Q, L) one list per row. Any real numbers.
        labels: the shape of `scores`, 0 or 1.
        query_ids: (N,) which list each item belongs to, or (Q,) ids of the rows.
        mask: the shape of `scores`, False where there is no item.
        weights: the shape of `scores`, item weights of 0 or more.
        ties: "average" takes tied items as one threshold; "pessimistic" puts the irrelevant of them first; "stable"
            keeps the order of the input.
        empty: what a list without a relevant item counts as: "skip", "zero", "one" or "error".
        reduction: "mean", "sum" or "none" (one value per list, NaN where left out).

    Returns:
        float64 scalar, or (Q,) for `reduction="none"`. The mean is NaN when every list is left out.

    Example:
        >>> average_precision([.9, .8, .7, .6], [1, 0, 1, 0])
        tensor(0.8333, dtype=torch.float64)
    """
    return measure(
        Metric("ap", AP, ties=ties),
        scores,
        labels,
        query_ids=query_ids,
        mask=mask,
        weights=weights,
        empty=empty,
        reduction=reduction,
    )


def _ap(ranked: RankedLists) -> Tensor:
    found = ranked.positives
    precision = found.hits_end / found.end
    if ranked.ties != "average":
        precision = torch.where(found.weights == 1, precision, _mean_precision_of_copies(found))
    return (found.weights * precision).sum(1) / found.count


def _mean_precision_of_copies(found: Positives) -> Tensor:
    """Without tie groups the w copies an item stands for have their own positions, one behind the other.

    With h relevant among the b items before them: `1/w sum_{j<=w} (h + j)/(b + j)`, and the digamma function says what
    that is for any w.
    """
    harmonic = torch.digamma(found.end + 1) - torch.digamma(found.begin + 1)
    return 1 + (found.hits_begin - found.begin) * harmonic / (found.end - found.begin)


AP = MetricRecord(
    name="ap",
    summary="average precision, the area under the precision-recall curve",
    per_list=_ap,
    aliases=("auprc", "map"),
    definition="mean over the relevant items of the precision at their score",
    average_words="tied items are one threshold",
)
