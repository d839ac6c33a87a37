"""From scores to probabilities: Platt's sigmoid."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

__all__ = ["fit_sigmoid"]

Floats = NDArray[np.float64]


def fit_sigmoid(scores: Floats, labels: NDArray[np.bool_], weights: Floats) -> tuple[float, float]:
    """Slope and intercept of `sigmoid(slope * score + intercept)`, the chance of a positive.

    Minimises the log loss with Platt's targets, (n+ + 1) / (n+ + 2) and 1 / (n- + 2) instead of 1 and 0. The slope
    stays above 0, so the order of scores is kept.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> scores = rng.normal(size=5000)
        >>> slope, intercept = fit_sigmoid(scores, rng.random(5000) < expit(2 * scores - 1), np.ones(5000))
        >>> round(slope), round(intercept)
        (2, -1)
    """
    positive, negative = weights[labels].sum(), weights[~labels].sum()
    targets = np.where(labels, (positive + 1) / (positive + 2), 1 / (negative + 2))
    share = weights / weights.sum()

    def log_loss(at: Floats) -> tuple[float, Floats]:
        slope = np.exp(at[0])
        logits = slope * scores + at[1]
        off = share * (expit(logits) - targets)
        value = float((share * (np.logaddexp(0, logits) - targets * logits)).sum())
        return value, np.array([(off * scores).sum() * slope, off.sum()])

    start = np.array([0.0, np.log((positive + 1) / (negative + 1))])
    found = minimize(log_loss, start, jac=True, method="L-BFGS-B", bounds=[(-7, 7), (None, None)])
    return float(np.exp(found.x[0])), float(found.x[1])
