"""Area under the ROC curve, whole and over a range of false positive rates."""

from __future__ import annotations

import torch
from torch import Tensor

from rankwise.metrics.metric import Metric, measure
from rankwise.ranks import RankedLists
from rankwise.registry import MetricRecord

__all__ = ["AUROC", "PAUROC", "auroc", "check_fpr_range", "partial_auroc"]


def auroc(
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
    """AUROC: the share of (positive, negative) pairs in the right order.

    `AUROC = 1/(n+ n-) sum_{i+, j-} (1[s_i > s_j] + 1/2 1[s_i = s_j])`, as in scikit-learn.

    Args:
        scores: (N,) one list, or many with `query_ids`; or (Q, L) one list per row. Any real numbers.
        labels: the shape of `scores`, 0 or 1.
        query_ids: (N,) which list each item belongs to, or (Q,) ids of the rows.
        mask: the shape of `scores`, False where there is no item.
        weights: the shape of `scores`, item weights of 0 or more.
        ties: "average" counts a tied pair 1/2, "pessimistic" 0; "stable" keeps the order of the input.
        empty: what a list of one class counts as: "skip", "zero", "one" or "error".
        reduction: "mean", "sum" or "none" (one value per list, NaN where left out).

    Returns:
        float64 scalar, or (Q,) for `reduction="none"`. The mean is NaN when every list is left out.

    Example:
        >>> auroc([.9, .8, .7, .6], [1, 0, 1, 0])
        tensor(0.7500, dtype=torch.float64)
    """
    return measure(
        Metric("auroc", AUROC, ties=ties),
        scores,
        labels,
        query_ids=query_ids,
        mask=mask,
        weights=weights,
        empty=empty,
        reduction=reduction,
    )


def partial_auroc(
    scores: object,
    labels: object,
    *,
    fpr_range: tuple[float, float] = (0.0, 0.1),
    query_ids: object = None,
    mask: object = None,
    weights: object = None,
    ties: str = "average",
    empty: str = "skip",
    reduction: str = "mean",
) -> Tensor:
    """Partial AUROC: the mean true positive rate over a range of false positive rates.

    `1/(b - a)` times the area under the ROC curve between the false positive rates a and b; the curve is straight
    across a tie group. A perfect scorer has 1, a random one (a + b)/2.

    Args:
        scores: (N,) one list, or many with `query_ids`; or (Q, L) one list per row. Any real numbers.
        labels: the shape of `scores`, 0 or 1.
        fpr_range: (a, b) with 0 <= a < b <= 1.
        query_ids: (N,) which list each item belongs to, or (Q,) ids of the rows.
        mask: the shape of `scores`, False where there is no item.
        weights: the shape of `scores`, item weights of 0 or more.
        ties: "average" draws a straight line across a tie group; "pessimistic" puts its negatives first; "stable" keeps
            the order of the input.
        empty: what a list of one class counts as: "skip", "zero", "one" or "error".
        reduction: "mean", "sum" or "none" (one value per list, NaN where left out).

    Returns:
        float64 scalar, or (Q,) for `reduction="none"`. The mean is NaN when every list is left out.

    Example:
        >>> partial_auroc([.9, .8, .7, .6], [1, 0, 1, 0], fpr_range=(0., .5))
        tensor(0.5000, dtype=torch.float64)
    """
    return measure(
        Metric("pauroc", PAUROC, ties=ties, options=(("fpr_range", check_fpr_range(fpr_range)),)),
        scores,
        labels,
        query_ids=query_ids,
        mask=mask,
        weights=weights,
        empty=empty,
        reduction=reduction,
    )


def check_fpr_range(fpr_range: tuple[float, float]) -> tuple[float, float]:
    """Two numbers 0 <= a < b <= 1."""
    try:
        low, high = (float(bound) for bound in fpr_range)
    except (TypeError, ValueError):
        raise TypeError(f"fpr_range: expected two numbers (a, b), got {fpr_range!r}") from None
    if not 0 <= low < high <= 1:
        raise ValueError(f"fpr_range: expected 0 <= a < b <= 1, got {fpr_range!r}")
    return low, high


def _auroc(ranked: RankedLists) -> Tensor:
    found = ranked.positives
    negatives = found.size - found.count
    above = (found.begin - found.hits_begin + found.end - found.hits_end) / 2
    wrong = (found.weights * above).sum(1) / (found.count * negatives)
    values = 1 - wrong.clamp_max(1)  # rounding may take it beyond
    return torch.where((found.count > 0) & (negatives > 0), values, float("nan"))


def _partial_auroc(ranked: RankedLists, *, fpr_range: tuple[float, float]) -> Tensor:
    found = ranked.positives
    negatives = (found.size - found.count)[:, None]
    first, last = found.begin - found.hits_begin, found.end - found.hits_end

    def area_up_to(rate: float) -> Tensor:
        # What one positive adds to the curve climbs from 0 to 1 across its tie group and stays there.
        reached = negatives * rate
        within = torch.minimum(reached, last) - first
        climb = torch.where(last > first, within.clamp_min(0) ** 2 / (2 * (last - first)), 0.0)
        return climb + (reached - last).clamp_min(0)

    low, high = fpr_range
    area = (found.weights * (area_up_to(high) - area_up_to(low))).sum(1)
    values = area / (found.count * negatives[:, 0] * (high - low))
    return torch.where((found.count > 0) & (negatives[:, 0] > 0), values, float("nan"))


AUROC = MetricRecord(
    name="auroc",
    summary="area under the ROC curve",
    per_list=_auroc,
    aliases=("auc",),
    definition="share of the pairs of a positive and a negative in the right order",
    average_words="a tie counts 1/2",
    undefined="lists of one class",
)

PAUROC = MetricRecord(
    name="pauroc",
    summary="area under the ROC curve over a range of false positive rates, divided by its width",
    per_list=_partial_auroc,
    options=("fpr_range",),
    definition="mean true positive rate over false positive rates in {fpr_range}",
    average_words="the curve is straight across a tie group",
    undefined="lists of one class",
)
