"""Areas under curves: average precision (AUPRC), AUROC, partial AUROC, pAp@k."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor
from torch.nn.functional import pad

from rankwise.metrics.metric import Metric, measure
from rankwise.ranks import Positives, RankedLists
from rankwise.registry import MetricRecord

__all__ = ["AP", "AUROC", "PAP", "PAUROC", "auroc", "average_precision", "check_fpr_range", "pap", "partial_auroc"]


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
    """Compute the average precision (AUPRC; over several lists mAP).

    It is the mean over the relevant items i of the precision among all items scored no lower than i:
    `AP = 1/n+ sum_i TP(s_i) / (TP(s_i) + FP(s_i))`. Tied items are one threshold, as in scikit-learn.

    Args:
        scores: (N,) one list, or many with `query_ids`; or (Q, L) one list per row. Any real numbers.
        labels: the shape of `scores`, 0 or 1.
        query_ids: (N,) id of the list of each item, or (Q,) ids of the rows.
        mask: the shape of `scores`, False in the padding.
        weights: the shape of `scores`, item weights of 0 or more.
        ties: "average" takes tied items as one threshold; "pessimistic" puts the irrelevant of them first; "stable"
            keeps the order of the input.
        empty: treatment of a list without a relevant item: "skip", "zero", "one" or "error".
        reduction: "mean", "sum" or "none" (one value per list, NaN for lists left out).

    Returns:
        float64 scalar, or (Q,) for `reduction="none"`. The mean is NaN when every list is left out.

    Example:
        >>> average_precision([.9, .8, .7, .6], [1, 0, 1, 0])
        tensor(0.8333, dtype=torch.float64)
    """
    metric = Metric("ap", AP, ties=ties)
    return measure(metric, scores, labels, query_ids, mask, weights, empty, reduction)


def _ap(ranked: RankedLists) -> Tensor:
    positives = ranked.positives
    precision = positives.hits_end / positives.end
    if ranked.ties != "average":
        precision = torch.where(positives.weights == 1, precision, _mean_precision_of_copies(positives))
    return (positives.weights * precision).sum(1) / positives.count


def _mean_precision_of_copies(positives: Positives) -> Tensor:
    """Compute the mean precision of the w copies of an item of weight w, which take consecutive positions.

    With h relevant among the b items before them it is `1/w sum_{j<=w} (h + j)/(b + j)`, extended to any real w by the
    digamma function.
    """
    harmonic = torch.digamma(positives.end + 1) - torch.digamma(positives.begin + 1)
    return 1 + (positives.hits_begin - positives.begin) * harmonic / (positives.end - positives.begin)


AP = MetricRecord(
    name="ap",
    summary="average precision, the area under the precision-recall curve",
    per_list=_ap,
    aliases=("auprc", "map"),
    definition="mean over the relevant items of the precision at their score",
    average_words="tied items are one threshold",
)


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
    """Compute the AUROC: the share of (positive, negative) pairs in the right order.

    `AUROC = 1/(n+ n-) sum_{i+, j-} (1[s_i > s_j] + 1/2 1[s_i = s_j])`, as in scikit-learn.

    Args:
        ties: "average" counts a tied pair 1/2, "pessimistic" 0; "stable" keeps the order of the input.
        empty: treatment of a list of one class: "skip", "zero", "one" or "error".
        scores, labels, query_ids, mask, weights, reduction: see `average_precision`.

    Example:
        >>> auroc([.9, .8, .7, .6], [1, 0, 1, 0])
        tensor(0.7500, dtype=torch.float64)
    """
    metric = Metric("auroc", AUROC, ties=ties)
    return measure(metric, scores, labels, query_ids, mask, weights, empty, reduction)


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
    """Compute the partial AUROC: the mean true positive rate over a range of false positive rates.

    `1/(b - a)` times the area under the ROC curve between the false positive rates a and b; the curve is straight
    across a tie group. A perfect scorer has 1, a random one (a + b)/2.

    Args:
        fpr_range: (a, b) with 0 <= a < b <= 1.
        ties: "average" draws a straight line across a tie group; "pessimistic" puts its negatives first; "stable" keeps
            the order of the input.
        empty: treatment of a list of one class: "skip", "zero", "one" or "error".
        scores, labels, query_ids, mask, weights, reduction: see `average_precision`.

    Example:
        >>> partial_auroc([.9, .8, .7, .6], [1, 0, 1, 0], fpr_range=(0., .5))
        tensor(0.5000, dtype=torch.float64)
    """
    metric = Metric("pauroc", PAUROC, ties=ties, options=(("fpr_range", check_fpr_range(fpr_range)),))
    return measure(metric, scores, labels, query_ids, mask, weights, empty, reduction)


def check_fpr_range(fpr_range: tuple[float, float]) -> tuple[float, float]:
    """Return the range as two numbers 0 <= a < b <= 1."""
    try:
        low, high = (float(bound) for bound in fpr_range)
    except (TypeError, ValueError):
        raise TypeError(f"fpr_range: expected two numbers (a, b), got {fpr_range!r}") from None
    if not 0 <= low < high <= 1:
        raise ValueError(f"fpr_range: expected 0 <= a < b <= 1, got {fpr_range!r}")
    return low, high


def _auroc(ranked: RankedLists) -> Tensor:
    positives = ranked.positives
    negatives = positives.size - positives.count
    above = (positives.begin - positives.hits_begin + positives.end - positives.hits_end) / 2
    wrong = (positives.weights * above).sum(1) / (positives.count * negatives)
    values = 1 - wrong.clamp_max(1)  # rounding may exceed 1
    return torch.where((positives.count > 0) & (negatives > 0), values, float("nan"))


def _partial_auroc(ranked: RankedLists, *, fpr_range: tuple[float, float]) -> Tensor:
    positives = ranked.positives
    negatives = (positives.size - positives.count)[:, None]
    first, last = positives.begin - positives.hits_begin, positives.end - positives.hits_end

    def area_up_to(rate: float) -> Tensor:
        # The contribution of one positive rises linearly from 0 to 1 across its tie group and stays 1.
        reached = negatives * rate
        within = torch.minimum(reached, last) - first
        climb = torch.where(last > first, within.clamp_min(0) ** 2 / (2 * (last - first)), 0.0)
        return climb + (reached - last).clamp_min(0)

    low, high = fpr_range
    area = (positives.weights * (area_up_to(high) - area_up_to(low))).sum(1)
    values = area / (positives.count * negatives[:, 0] * (high - low))
    return torch.where((positives.count > 0) & (negatives[:, 0] > 0), values, float("nan"))


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
    """Compute pAp@k: partial AUC of the top positives against the top k negatives. The mean over lists is micro-pAp@k.

    `pAp@k = 1 - 1/(b k) sum_{i<=b, j<=k} 1[p_(i) <= z_(j)]`, b = min(n+, k), with p_(1) >= p_(2) >= ... the scores of
    the positives and z_(1) >= z_(2) >= ... those of the negatives. A tie is an error; under `ties="average"` it is half
    an error, which gives constant scores 1/2 (there is a warning then).

    Args:
        k: number of negatives, or None for all of the list.
        weights: the shape of `scores`, item weights of 0 or more; an item of weight w counts as w items.
        ties: "pessimistic" counts a tie as an error, "average" as half of one; "stable" keeps the order of the input.
        empty: treatment of a list without a positive, or with fewer than k negatives,: "skip", "zero", "one" or
            "error".
        scores, labels, query_ids, mask, reduction: see `average_precision`.

    Example:
        >>> pap([.9, .8, .7, .6], [1, 0, 1, 0], k=2)
        tensor(0.7500, dtype=torch.float64)
    """
    metric = Metric("pap", PAP, k=k, ties=ties)
    return measure(metric, scores, labels, query_ids, mask, weights, empty, reduction)


def _pap(ranked: RankedLists, *, k: int | None) -> Tensor:
    positives = ranked.positives
    negatives = positives.size - positives.count
    top = negatives if k is None else torch.full_like(negatives, k)
    best = torch.minimum(positives.count, top)
    if ranked.ties == "average":
        _warn_of_constant_scores(positives)
    # Positives of one tie group have equal errors, so their order does not matter.
    before = pad(positives.weights.cumsum(1), (1, 0))[:, :-1]
    counted = torch.minimum(best[:, None] - before, positives.weights).clamp_min(0)
    above = torch.minimum(positives.begin - positives.hits_begin, top[:, None])
    reached = torch.minimum(positives.end - positives.hits_end, top[:, None])
    risk = (counted * (above + reached)).sum(1) / (2 * best * top)
    defined = (positives.count > 0) & (negatives >= top * (1 - 1e-12)) & (top > 0)
    return torch.where(defined, 1 - risk.clamp_max(1), float("nan"))  # rounding may exceed 1


def _warn_of_constant_scores(positives: Positives) -> None:
    constant = (
        positives.tied
        & (positives.size > positives.count)
        & ((positives.end - positives.begin) == positives.size[:, None]).any(1)
    )
    if bool(constant.any()):
        # A constant message, so that Python prints it once and not in every evaluation.
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
