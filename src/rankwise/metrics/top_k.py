"""Metrics of the first items of a list: precision, recall, hit rate, reciprocal rank, R-precision and MAP@R."""

from __future__ import annotations

import torch
from torch import Tensor

from rankwise.metrics.metric import Metric, measure
from rankwise.ranks import Positives, RankedLists
from rankwise.registry import MetricRecord

__all__ = [
    "HIT",
    "MAP_AT_R",
    "PRECISION",
    "RECALL",
    "RR",
    "R_PRECISION",
    "hit_rate",
    "precision",
    "recall",
    "reciprocal_rank",
]


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
    """Compute precision@k: the share of relevant items among the first k.

    `precision@k = (relevant items among the first k) / k`, also for a list of fewer than k items.

    Args:
        k: cutoff, or None for the whole list.
        weights: the shape of `scores`, item weights of 0 or more; an item of weight w takes w positions.
        ties: "average" is the mean over the orders of tied items; "pessimistic" puts the irrelevant of them first;
            "stable" keeps the order of the input.
        empty: treatment of a list without an item: "skip", "zero", "one" or "error".
        scores, labels, query_ids, mask, reduction: see `average_precision`.

    Example:
        >>> precision([.9, .8, .7, .6], [0, 1, 1, 0], k=2)
        tensor(0.5000, dtype=torch.float64)
    """
    metric = Metric("precision", PRECISION, k=k, ties=ties)
    return measure(metric, scores, labels, query_ids, mask, weights, empty, reduction)


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
    """Compute recall@k: the share of the relevant items that are among the first k.

    `recall@k = (relevant items among the first k) / n+`.

    Args:
        k: cutoff, or None for the whole list.
        weights: the shape of `scores`, item weights of 0 or more; an item of weight w takes w positions.
        ties: "average" is the mean over the orders of tied items; "pessimistic" puts the irrelevant of them first;
            "stable" keeps the order of the input.
        empty: treatment of a list without a relevant item: "skip", "zero", "one" or "error".
        scores, labels, query_ids, mask, reduction: see `average_precision`.

    Example:
        >>> recall([.9, .8, .7, .6], [0, 1, 1, 0], k=2)
        tensor(0.5000, dtype=torch.float64)
    """
    metric = Metric("recall", RECALL, k=k, ties=ties)
    return measure(metric, scores, labels, query_ids, mask, weights, empty, reduction)


def _precision(ranked: RankedLists, *, k: int | None) -> Tensor:
    positives = ranked.positives
    cutoff = positives.size if k is None else torch.full_like(positives.size, k)
    return torch.where(positives.size > 0, _hits(positives, cutoff) / cutoff, float("nan"))


def _recall(ranked: RankedLists, *, k: int | None) -> Tensor:
    positives = ranked.positives
    return _hits(positives, positives.size if k is None else torch.full_like(positives.size, k)) / positives.count


def _r_precision(ranked: RankedLists) -> Tensor:
    positives = ranked.positives
    return _hits(positives, positives.count) / positives.count


def _hits(positives: Positives, cutoff: Tensor) -> Tensor:
    """Compute the expected number of relevant items in the first `cutoff` (Q,) positions over orders of ties."""
    inside = (cutoff[:, None] - positives.begin) / (positives.end - positives.begin)
    return (positives.weights * inside.clamp(0, 1)).sum(1)


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
    summary="share of the relevant items that are among the first k",
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


def hit_rate(
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
    """Compute the hit rate@k: 1 if a relevant item is among the first k, else 0.

    `hit@k = 1[rank of the first relevant item <= k]`; with ties its probability over their orders (hypergeometric).

    Args:
        k: cutoff, or None for the whole list.
        weights: the shape of `scores`, item weights of 0 or 1.
        ties: "average" is the mean over the orders of tied items; "pessimistic" puts the irrelevant of them first;
            "stable" keeps the order of the input.
        empty: treatment of a list without a relevant item: "skip", "zero", "one" or "error".
        scores, labels, query_ids, mask, reduction: see `average_precision`.

    Example:
        >>> hit_rate([.9, .8, .7, .6], [0, 1, 1, 0], k=2)
        tensor(1., dtype=torch.float64)
    """
    metric = Metric("hit", HIT, k=k, ties=ties)
    return measure(metric, scores, labels, query_ids, mask, weights, empty, reduction)


def reciprocal_rank(
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
    """Compute the reciprocal rank@k: 1 over the rank of the first relevant item (mean over lists: MRR).

    `rr@k = 1[r <= k] / r`, r the rank of the first relevant item; with ties the mean over their orders.

    Args:
        k: cutoff, or None for the whole list.
        weights: the shape of `scores`, item weights of 0 or 1.
        ties: "average" is the mean over the orders of tied items; "pessimistic" puts the irrelevant of them first;
            "stable" keeps the order of the input.
        empty: treatment of a list without a relevant item: "skip", "zero", "one" or "error".
        scores, labels, query_ids, mask, reduction: see `average_precision`.

    Example:
        >>> reciprocal_rank([.9, .8, .7, .6], [0, 1, 1, 0], k=2)
        tensor(0.5000, dtype=torch.float64)
    """
    metric = Metric("rr", RR, k=k, ties=ties)
    return measure(metric, scores, labels, query_ids, mask, weights, empty, reduction)


def _hit(ranked: RankedLists, *, k: int | None) -> Tensor:
    chances, _ = _first_relevant(ranked.positives, k)
    return _defined(ranked.positives, chances.sum(1))


def _rr(ranked: RankedLists, *, k: int | None) -> Tensor:
    chances, ranks = _first_relevant(ranked.positives, k)
    return _defined(ranked.positives, (chances / ranks).sum(1))


def _first_relevant(positives: Positives, k: int | None) -> tuple[Tensor, Tensor]:
    """Compute the probabilities (Q, M) of the ranks up to k of the first relevant item; return them and the ranks.

    Only the best tie group with r relevant among its m items matters. Its first j items are all irrelevant with
    probability prod_{i<j} (m - r - i) / (m - i), and then the next is relevant with probability r / (m - j).
    """
    if not positives.begin.shape[1]:
        return positives.begin, positives.end
    begin, size = positives.begin[:, :1], (positives.end - positives.begin)[:, :1]
    relevant = (positives.hits_end - positives.hits_begin)[:, :1]
    width = int((size - relevant).max()) + 1
    step = torch.arange(width, dtype=torch.float64, device=size.device)
    left = (size - step).clamp_min(1)
    missed = ((size - relevant - step).clamp_min(0) / left).cumprod(1)
    missed = torch.cat([torch.ones_like(size), missed[:, :-1]], 1)
    ranks = begin + step + 1
    chances = missed * (relevant / left).clamp_max(1)
    return chances if k is None else torch.where(ranks <= k, chances, 0.0), ranks


def _map_at_r(ranked: RankedLists) -> Tensor:
    """Compute the expectation over tie orders of 1/R sum_{r<=R} 1[item r relevant] precision@r.

    In a group of m items, h of them relevant, after t relevant items, the j-th item (j = 1, 2, ...) is relevant
    with probability h/m, and then each of the j - 1 before it with probability (h - 1)/(m - 1). The sum of
    h/m (t + 1 + (j - 1)(h - 1)/(m - 1)) / rank over the ranks up to R takes two terms: harmonic numbers and a count.
    """
    positives = ranked.positives
    if not positives.begin.shape[1]:
        return _defined(positives, positives.count)
    size, relevant = positives.end - positives.begin, positives.hits_end - positives.hits_begin
    density = torch.where(size > 1, (relevant - 1) / (size - 1).clamp_min(1), 0.0)
    last = torch.minimum(positives.end, positives.count[:, None])
    first = torch.minimum(positives.begin, last)
    ranks = torch.arange(1, int(positives.count.max()) + 1, dtype=torch.float64, device=size.device)
    harmonic = torch.cat([ranks.new_zeros(1), (1 / ranks).cumsum(0)])
    spread = (positives.hits_begin + 1 - density * (positives.begin + 1)) * (
        harmonic[last.long()] - harmonic[first.long()]
    )
    # Each of the h relevant items of the group has 1/m of the group's sum.
    values = (spread + density * (last - first)) / size
    return _defined(positives, (positives.weights * values).sum(1) / positives.count)


def _defined(positives: Positives, values: Tensor) -> Tensor:
    return torch.where(positives.count > 0, values, float("nan"))


HIT = MetricRecord(
    name="hit",
    summary="whether any relevant item is among the first k",
    per_list=_hit,
    takes_k=True,
    takes_item_weights=False,
    aliases=("hit-rate",),
    definition="1 if a relevant item is among the first {k}, else 0",
)


RR = MetricRecord(
    name="rr",
    summary="1 over the rank of the first relevant item",
    per_list=_rr,
    takes_k=True,
    takes_item_weights=False,
    aliases=("mrr",),
    definition="1 / rank of the first relevant item, 0 beyond the first {k}",
)


MAP_AT_R = MetricRecord(
    name="map@r",
    summary="average precision over the first R items, R the number of relevant items of the list",
    per_list=_map_at_r,
    takes_item_weights=False,
    definition="1/R times the sum of the precision at each relevant item among the first R, R the number of relevant",
)
