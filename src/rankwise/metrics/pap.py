"""pAp@k: how often the best positives are ranked above the best negatives."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor
from torch.nn.functional import pad

from rankwise.metrics.metric import Metric, measure
from rankwise.positives import Positives
from rankwise.ranks import RankedLists
from rankwise.registry import MetricRecord

__all__ = ["PAP", "pap"]


def pap(
    scores: object,
    labels: object,
    *,
    k: int | None = None,
    query_ids: object = None,
    mask: object = None,
    weights: object = None,
    ties: str = "pessimistic",
    empty: str = "skip",
    reduction: str = "mean",
) -> Tensor:
    """pAp@k: partial AUC of the top positives against the top k negatives; its mean over lists is micro-pAp@k.

    `pAp@k = 1 - 1/(b k) sum_{i<=b, j<=k} 1[p_(i) <= z_(j)]`, b = min(n+, k), with p_(1) >= p_(2) >= ... the scores of
    the positives and z_(1) >= z_(2) >= ... those of the negatives. A tie is an error; under `ties="average"` it is half
    an error, which gives constant scores 1/2 (there is a warning then).

    Args:
        scores: (N,) one list, or many with `query_ids`; or (Q, L) one list per row. Any real numbers.
        labels: the shape of `scores`, 0 or 1.
        k: how many negatives, or None for all of the list.
        query_ids: (N,) which list each item belongs to, or (Q,) ids of the rows.
        mask: the shape of `scores`, False where there is no item.
        weights: the shape of `scores`, item weights of 0 or more; an item of weight w stands for w items.
        ties: "pessimistic" counts a tie as an error, "average" as half of one; "stable" keeps the order of the input.
        empty: what a list without a positive, or with fewer than k negatives, counts as: "skip", "zero", "one" or
            "error".
        reduction: "mean", "sum" or "none" (one value per list, NaN where left out).

    Returns:
        float64 scalar, or (Q,) for `reduction="none"`. The mean is NaN when every list is left out.

    Example:
        >>> pap([.9, .8, .7, .6], [1, 0, 1, 0], k=2)
        tensor(0.7500, dtype=torch.float64)
    """
    return measure(
        Metric("pap", PAP, k=k, ties=ties),
        scores,
        labels,
        query_ids=query_ids,
        mask=mask,
        weights=weights,
        empty=empty,
        reduction=reduction,
    )


def _pap(ranked: RankedLists, *, k: int | None) -> Tensor:
    found = ranked.positives
    negatives = found.size - found.count
    top = negatives if k is None else torch.full_like(negatives, k)
    best = torch.minimum(found.count, top)
    if ranked.ties == "average":
        _warn_of_constant_scores(found)
    # Positives of one tie group make the same errors, so any order among them will do.
    before = pad(found.weights.cumsum(1), (1, 0))[:, :-1]
    counted = torch.minimum(best[:, None] - before, found.weights).clamp_min(0)
    above = torch.minimum(found.begin - found.hits_begin, top[:, None])
    reached = torch.minimum(found.end - found.hits_end, top[:, None])
    risk = (counted * (above + reached)).sum(1) / (2 * best * top)
    defined = (found.count > 0) & (negatives >= top * (1 - 1e-12)) & (top > 0)
    return torch.where(defined, 1 - risk.clamp_max(1), float("nan"))  # rounding may take it beyond


def _warn_of_constant_scores(found: Positives) -> None:
    constant = found.tied & (found.size > found.count) & ((found.end - found.begin) == found.size[:, None]).any(1)
    if bool(constant.any()):
        # Always the same words, so that Python says them once and not at every evaluation.
        warnings.warn(
            'scores: there are lists of constant scores; with ties="average" pAp@k calls them 0.5, '
            "which can be more than a trained model reaches",
            stacklevel=2,
        )


PAP = MetricRecord(
    name="pap",
    summary="partial AUC of the top positives against the top k negatives",
    per_list=_pap,
    takes_k=True,
    aliases=("micro-pap",),
    definition="share of the pairs of the min(n+, k) best positives and the k best negatives in the right order",
    ties="pessimistic",
    average_words="a tie counts 1/2",
    undefined="lists without a positive or with fewer than k negatives",
)
