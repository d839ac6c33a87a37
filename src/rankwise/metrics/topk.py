"""Precision and recall among the first k items."""

from __future__ import annotations

import torch
from torch import Tensor

from rankwise.metrics.metric import Metric, measure
from rankwise.positives import Positives
from rankwise.ranks import RankedLists
from rankwise.registry import MetricRecord

__all__ = ["PRECISION", "RECALL", "R_PRECISION", "precision", "recall"]


def precision(
    scores: object,
    labels: object,
    *,
    k: int | None = None,
    query_ids: object = None,
    mask: object = None,
    weights: object = None,
    ties: str = "average",
    empty: str = "skip",
    reduction: str = "mean",
) -> Tensor:
    """Precision@k: the share of relevant items among the first k.

    `precision@k = (relevant items among the first k) / k`, also for a list of fewer than k items.

    Args:
        scores: (N,) one list, or many with `query_ids`; or (Q, L) one list per row. Any real numbers.
        labels: the shape of `scores`, 0 or 1.
        k: cutoff, or None for the whole list.
        query_ids: (N,) which list each item belongs to, or (Q,) ids of the rows.
        mask: the shape of `scores`, False where there is no item.
        weights: the shape of `scores`, item weights of 0 or more; an item of weight w takes w positions.
        ties: "average" is the mean over the orders of tied items; "pessimistic" puts the irrelevant of them first;
            "stable" keeps the order of the input.
        empty: what a list without an item counts as: "skip", "zero", "one" or "error".
        reduction: "mean", "sum" or "none" (one value per list, NaN where left out).

    Returns:
        float64 scalar, or (Q,) for `reduction="none"`. The mean is NaN when every list is left out.

    Example:
        >>> precision([.9, .8, .7, .6], [0, 1, 1, 0], k=2)
        tensor(0.5000, dtype=torch.float64)
    """
    return measure(
        Metric("precision", PRECISION, k=k, ties=ties),
        scores,
        labels,
        query_ids=query_ids,
        mask=mask,
        weights=weights,
        empty=empty,
        reduction=reduction,
    )


def recall(
    scores: object,
    labels: object,
    *,
    k: int | None = None,
    query_ids: object = None,
    mask: object = None,
    weights: object = None,
    ties: str = "average",
    empty: str = "skip",
    reduction: str = "mean",
) -> Tensor:
    """Recall@k: the share of the relevant items that stand among the first k.

    `recall@k = (relevant items among the first k) / n+`.

    Args:
        scores: (N,) one list, or many with `query_ids`; or (Q, L) one list per row. Any real numbers.
        labels: the shape of `scores`, 0 or 1.
        k: cutoff, or None for the whole list.
        query_ids: (N,) which list each item belongs to, or (Q,) ids of the rows.
        mask: the shape of `scores`, False where there is no item.
        weights: the shape of `scores`, item weights of 0 or more; an item of weight w takes w positions.
        ties: "average" is the mean over the orders of tied items; "pessimistic" puts the irrelevant of them first;
            "stable" keeps the order of the input.
        empty: what a list without a relevant item counts as: "skip", "zero", "one" or "error".
        reduction: "mean", "sum" or "none" (one value per list, NaN where left out).

    Returns:
        float64 scalar, or (Q,) for `reduction="none"`. The mean is NaN when every list is left out.

    Example:
        >>> recall([.9, .8, .7, .6], [0, 1, 1, 0], k=2)
        tensor(0.5000, dtype=torch.float64)
    """
    return measure(
        Metric("recall", RECALL, k=k, ties=ties),
        scores,
        labels,
        query_ids=query_ids,
        mask=mask,
        weights=weights,
        empty=empty,
        reduction=reduction,
    )


def _precision(ranked: RankedLists, *, k: int | None) -> Tensor:
    found = ranked.positives
    cutoff = found.size if k is None else torch.full_like(found.size, k)
    return torch.where(found.size > 0, _hits(found, cutoff) / cutoff, float("nan"))


def _recall(ranked: RankedLists, *, k: int | None) -> Tensor:
    found = ranked.positives
    return _hits(found, found.size if k is None else torch.full_like(found.size, k)) / found.count


def _r_precision(ranked: RankedLists) -> Tensor:
    found = ranked.positives
    return _hits(found, found.count) / found.count


def _hits(found: Positives, cutoff: Tensor) -> Tensor:
    """Relevant items expected among the first `cutoff` (Q,) positions; a group across the cutoff counts in part."""
    inside = (cutoff[:, None] - found.begin) / (found.end - found.begin)
    return (found.weights * inside.clamp(0, 1)).sum(1)


PRECISION = MetricRecord(
    name="precision",
    summary="share of relevant items among the first k",
    per_list=_precision,
    takes_k=True,
    definition="relevant items among the first {k}, divided by {k}",
    undefined="lists without an item",
)

RECALL = MetricRecord(
    name="recall",
    summary="share of the relevant items that stand among the first k",
    per_list=_recall,
    takes_k=True,
    definition="relevant items among the first {k}, divided by all relevant items",
)

R_PRECISION = MetricRecord(
    name="r-precision",
    summary="precision at R, the number of relevant items of the list",
    per_list=_r_precision,
    definition="relevant items among the first R, divided by R, the number of relevant items",
)
