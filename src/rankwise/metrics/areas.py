"""Areas under curves: average precision (AUPRC), AUROC, partial AUROC, pAp@k, and the AUC of several classes."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor
from torch.nn.functional import pad

from rankwise.checks import check_finite, check_ids, check_tensor, wide_dtype
from rankwise.metrics.metric import Metric, measure
from rankwise.ranks import Positives, RankedLists
from rankwise.registry import MetricRecord

__all__ = [
    "AP",
    "AUROC",
    "MULTICLASS_AUC",
    "PAP",
    "PAUROC",
    "auroc",
    "average_precision",
    "check_fpr_range",
    "multiclass_auc",
    "pap",
    "partial_auroc",
]

# The definition in words, for reports.
MULTICLASS_AUC = (
    "mean over the ordered pairs of classes (i, j) of the share of pairs of rows, one of class i and one of class j, "
    "that the scores of class i put in the right order; tied rows count 1/2"
)


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


def multiclass_auc(scores: object, labels: object) -> Tensor:
    """Compute the multi-class AUC (MAUC) of Hand and Till: the mean AUROC over all pairs of classes.

        MAUC = 2 / (C (C - 1)) sum over i < j of (A(i|j) + A(j|i)) / 2,

    where A(i|j) is the share of pairs, a row of class i and one of class j, that the scores of class i put in the right
    order; tied pairs count 1/2. All pairs of classes weigh the same, so rare classes count as much as frequent ones. It
    is scikit-learn's `roc_auc_score(multi_class="ovo")`, for any real scores. Time O(C N log N).

    Args:
        scores: (N, C), one column per class.
        labels: (N,) classes from 0 to C - 1. Classes without rows are left out.

    Returns:
        float64 scalar; NaN if the rows have fewer than two classes.

    Example:
        >>> scores = [[.8, .1, .1], [.4, .5, .1], [.2, .45, .35], [.3, .3, .4]]
        >>> multiclass_auc(scores, [0, 0, 1, 2])
        tensor(0.9167, dtype=torch.float64)

    Paper: Hand and Till, A Simple Generalisation of the Area Under the ROC Curve for Multiple Class Classification
    Problems, Machine Learning 2001.
    """
    values, classes = _checked(scores, labels)
    count = values.shape[1]
    sizes = torch.bincount(classes, minlength=count)
    present = sizes.nonzero()[:, 0]
    if len(present) < 2:
        return values.new_full((), torch.nan)
    total = values.new_zeros(())
    for label in present.tolist():
        column = values[:, label].contiguous()
        own = column[classes == label].sort().values
        # Rows of the class above each row; of those level with it, one half.
        level = torch.searchsorted(own, column) + torch.searchsorted(own, column, right=True)
        above = len(own) - level.to(values.dtype) / 2
        by_class = torch.zeros_like(values[0]).index_add_(0, classes, above)
        shares = by_class[present] / (sizes[present].to(values.dtype) * len(own))
        # Of the class against itself, 1/2 by definition.
        total = total + shares.sum() - 0.5
    return total / (len(present) * (len(present) - 1))


def _checked(scores: object, labels: object) -> tuple[Tensor, Tensor]:
    """Return the scores (N, C), widened, and the labels (N,) as indices."""
    values = check_tensor("scores", scores).detach()
    if values.ndim != 2 or values.is_complex():
        raise ValueError(f"scores: expected numbers (N, C), one column per class, got shape {tuple(values.shape)}")
    check_finite("scores", values)
    classes = check_ids("labels", labels).to(values.device)
    if classes.shape != values.shape[:1]:
        raise ValueError(f"labels: expected one class per row, ({len(values)},), got shape {tuple(classes.shape)}")
    if len(classes) and not 0 <= int(classes.min()) <= int(classes.max()) < values.shape[1]:
        wrong = int(classes.min()) if int(classes.min()) < 0 else int(classes.max())
        raise ValueError(
            f"labels: expected classes from 0 to {values.shape[1] - 1}, the columns of scores, got {wrong}"
        )
    return values.to(wide_dtype(values.device)), classes
