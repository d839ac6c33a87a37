"""Multi-class AUC: every pair of classes is told apart by the scores of both."""

from __future__ import annotations

import torch
from torch import Tensor

from rankwise.checks import check_finite, check_ids, check_tensor, wide_dtype

__all__ = ["MULTICLASS_AUC", "multiclass_auc"]

# The definition in words, for reports.
MULTICLASS_AUC = (
    "mean over the ordered pairs of classes (i, j) of the share of pairs of rows, one of class i and one of class j, "
    "that the scores of class i put in the right order; tied rows count 1/2"
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
