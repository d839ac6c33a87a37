"""Precision-recall curves averaged over seeds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rankwise.tasks import TabularTask
from rankwise.training import Outcome

__all__ = ["mean_precision_curve", "precision_at_positives"]

Values = NDArray[np.float64]


def mean_precision_curve(outcome: Outcome) -> tuple[Values, Values]:
    """Recall (P,) and the mean precision over seeds (P,) of a tabular task's test part.

    The precision at recall k / P is that of the list cut where the k-th of the P positives is found, so the mean of the
    curve is the mean average precision.
    """
    curves = []
    for trial in outcome.trials:
        if not isinstance(trial.task, TabularTask):
            raise TypeError(f"outcome: expected trials of a TabularTask, got {type(trial.task).__name__}")
        scores = trial.task.predict(trial.model, "test").double().numpy()
        curves.append(precision_at_positives(scores, trial.task.data.test.labels.numpy()))
    precision = np.mean(curves, axis=0)
    return np.arange(1, len(precision) + 1) / len(precision), precision


def precision_at_positives(scores: Values, labels: NDArray[np.int64]) -> Values:
    """The precision at each positive, best first; tied items are one threshold.

    Example:
        >>> precision_at_positives(np.array([.9, .8, .7, .6]), np.array([1, 0, 1, 0])).round(3).tolist()
        [1.0, 0.667]
    """
    positives = np.sort(scores[labels == 1])[::-1]
    at_or_above = len(scores) - np.searchsorted(np.sort(scores), positives, side="left")
    hits = len(positives) - np.searchsorted(positives[::-1], positives, side="left")
    precision: Values = hits / at_or_above
    return precision
