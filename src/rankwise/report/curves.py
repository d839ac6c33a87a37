"""Precision-recall curves averaged over seeds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rankwise.problems.tabular import Tabular
from rankwise.problems.trials import Outcome

__all__ = ["mean_precision_curve", "precision_at_positives"]

Values = NDArray[np.float64]


def mean_precision_curve(outcome: Outcome) -> tuple[Values, Values]:
    """Return the recall (P,) and the mean precision over seeds (P,) on the test part of a tabular problem.

    The precision at recall k / P is that of the list cut where the k-th of the P positives is found, so the mean of the
    curve is the mean average precision.
    """
    curves = []
    for trial in outcome.trials:
        if not isinstance(trial.problem, Tabular):
            raise TypeError(f"outcome: expected trials of a tabular problem, got {type(trial.problem).__name__}")
        test = trial.split.part("test")
        scores = trial.problem.predict(trial.model, test).double().numpy()
        curves.append(precision_at_positives(scores, test.labels.numpy()))
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
