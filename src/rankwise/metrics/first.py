"""What the first relevant items are worth: hit rate, reciprocal rank, and average precision at R."""

from __future__ import annotations

import torch
from torch import Tensor

from rankwise.metrics.metric import Metric, measure
from rankwise.positives import Positives
from rankwise.ranks import RankedLists
from rankwise.registry import MetricRecord

__all__ = ["HIT", "MAP_AT_R", "RR", "hit_rate", "reciprocal_rank"]


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
    """Hit rate@k: whether any relevant item stands among the first k.

    `hit@k = 1[rank of the first relevant item <= k]`; with ties its probability over their orders (hypergeometric).

    Args:
        scores: (N,) one list, or many with `query_ids`; or (Q, L) one list per row. Any real numbers.
        labels: the shape of `scores`, 0 or 1.
        k: cutoff, or None for the whole list.
        query_ids: (N,) which list each item belongs to, or (Q,) ids of the rows.
        mask: the shape of `scores`, False where there is no item.
        weights: the shape of `scores`, item weights of 0 or 1.
        ties: "average" is the mean over the orders of tied items; "pessimistic" puts the irrelevant of them first;
            "stable" keeps the order of the input.
        empty: what a list without a relevant item counts as: "skip", "zero", "one" or "error".
        reduction: "mean", "sum" or "none" (one value per list, NaN where left out).

    Returns:
        float64 scalar, or (Q,) for `reduction="none"`. The mean is NaN when every list is left out.

    Example:
        >>> hit_rate([.9, .8, .7, .6], [0, 1, 1, 0], k=2)
        tensor(1., dtype=torch.float64)
    """
    return measure(
        Metric("hit", HIT, k=k, ties=ties),
        scores,
        labels,
        query_ids=query_ids,
        mask=mask,
        weights=weights,
        empty=empty,
        reduction=reduction,
    )


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
    """Reciprocal rank@k: 1 over the rank of the first relevant item (mean over lists: MRR).

    `rr@k = 1[r <= k] / r`, r the rank of the first relevant item; with ties the mean over their orders.

    Args:
        scores: (N,) one list, or many with `query_ids`; or (Q, L) one list per row. Any real numbers.
        labels: the shape of `scores`, 0 or 1.
        k: cutoff, or None for the whole list.
        query_ids: (N,) which list each item belongs to, or (Q,) ids of the rows.
        mask: the shape of `scores`, False where there is no item.
        weights: the shape of `scores`, item weights of 0 or 1.
        ties: "average" is the mean over the orders of tied items; "pessimistic" puts the irrelevant of them first;
            "stable" keeps the order of the input.
        empty: what a list without a relevant item counts as: "skip", "zero", "one" or "error".
        reduction: "mean", "sum" or "none" (one value per list, NaN where left out).

    Returns:
        float64 scalar, or (Q,) for `reduction="none"`. The mean is NaN when every list is left out.

    Example:
        >>> reciprocal_rank([.9, .8, .7, .6], [0, 1, 1, 0], k=2)
        tensor(0.5000, dtype=torch.float64)
    """
    return measure(
        Metric("rr", RR, k=k, ties=ties),
        scores,
        labels,
        query_ids=query_ids,
        mask=mask,
        weights=weights,
        empty=empty,
        reduction=reduction,
    )


def _hit(ranked: RankedLists, *, k: int | None) -> Tensor:
    chances, _ = _first_relevant(ranked.positives, k)
    return _defined(ranked.positives, chances.sum(1))


def _rr(ranked: RankedLists, *, k: int | None) -> Tensor:
    chances, ranks = _first_relevant(ranked.positives, k)
    return _defined(ranked.positives, (chances / ranks).sum(1))


def _first_relevant(found: Positives, k: int | None) -> tuple[Tensor, Tensor]:
    """The chance, at each rank the first relevant item can have up to k, that it is there: (Q, M) and the ranks.

    Only the best tie group with r relevant among its m items matters. Its first j items are all irrelevant with
    probability prod_{i<j} (m - r - i) / (m - i), and then the next is relevant with probability r / (m - j).
    """
    if not found.begin.shape[1]:
        return found.begin, found.end
    begin, size = found.begin[:, :1], (found.end - found.begin)[:, :1]
    relevant = (found.hits_end - found.hits_begin)[:, :1]
    width = int((size - relevant).max()) + 1
    step = torch.arange(width, dtype=torch.float64, device=size.device)
    left = (size - step).clamp_min(1)
    missed = ((size - relevant - step).clamp_min(0) / left).cumprod(1)
    missed = torch.cat([torch.ones_like(size), missed[:, :-1]], 1)
    ranks = begin + step + 1
    chances = missed * (relevant / left).clamp_max(1)
    return chances if k is None else torch.where(ranks <= k, chances, 0.0), ranks


def _map_at_r(ranked: RankedLists) -> Tensor:
    """Expectation over tie orders of 1/R sum_{r<=R} 1[item r relevant] precision@r.

    In a group of m items, h of them relevant, after t relevant items, the item j places in (j = 1, 2, ...) is relevant
    with probability h/m, and then each of the j - 1 before it with probability (h - 1)/(m - 1). The sum of
    h/m (t + 1 + (j - 1)(h - 1)/(m - 1)) / rank over the ranks up to R takes two terms: harmonic numbers and a count.
    """
    found = ranked.positives
    if not found.begin.shape[1]:
        return _defined(found, found.count)
    size, relevant = found.end - found.begin, found.hits_end - found.hits_begin
    density = torch.where(size > 1, (relevant - 1) / (size - 1).clamp_min(1), 0.0)
    last = torch.minimum(found.end, found.count[:, None])
    first = torch.minimum(found.begin, last)
    ranks = torch.arange(1, int(found.count.max()) + 1, dtype=torch.float64, device=size.device)
    harmonic = torch.cat([ranks.new_zeros(1), (1 / ranks).cumsum(0)])
    spread = (found.hits_begin + 1 - density * (found.begin + 1)) * (harmonic[last.long()] - harmonic[first.long()])
    # Each of the h relevant items of the group stands here with its own 1/m of the group's sum.
    values = (spread + density * (last - first)) / size
    return _defined(found, (found.weights * values).sum(1) / found.count)


def _defined(found: Positives, values: Tensor) -> Tensor:
    return torch.where(found.count > 0, values, float("nan"))


HIT = MetricRecord(
    name="hit",
    summary="whether any relevant item stands among the first k",
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
