"""Mix the scores of several learners by what they did on rows they had not learned from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, softmax

from rankwise.sklearn.calibration import fit_sigmoid

__all__ = ["Mix", "fit_mix"]

Floats = NDArray[np.float64]

# The pull of the mixing weights to their prior, in units of log loss.
_PULL = 10.0
_DRAWS = 200


@dataclass(frozen=True)
class Mix:
    """Log odds as a sum over K learners: weight * (slope * score + intercept), plus a constant.

    Attributes:
        slope, intercept: (K,) the sigmoid of each learner; weight: (K,) its say, 0 or more.
        constant: added to the sum.
    """

    slope: Floats
    intercept: Floats
    weight: Floats
    constant: float

    def __call__(self, scores: Floats) -> Floats:
        """Return log odds (N,) of scores (K, N)."""
        logits = self.slope[:, None] * scores + self.intercept[:, None]
        mixed: Floats = self.weight @ logits + self.constant
        return mixed


def fit_mix(scores: Floats, labels: NDArray[np.bool_], weights: Floats, random: np.random.Generator) -> Mix:
    """Fit a sigmoid to each learner, then non-negative weights by log loss with a pull to a prior.

    The prior weight of a learner is its pseudo-BMA+ weight (Yao et al., "Using stacking to average Bayesian predictive
    distributions", 2018): the share that exp(log likelihood) gives it, averaged over Bayesian bootstrap draws of the
    rows. With few positives the prior decides, and a learner that is clearly the best gets nearly all weight.

    Args:
        scores: (K, N) of rows that the learners did not learn from.
        labels: (N,) of both kinds; weights: (N,) positive numbers.
        random: decides the draws.

    Example:
        >>> random = np.random.default_rng(0)
        >>> good = random.normal(size=2000)
        >>> labels = random.random(2000) < expit(3 * good - 2)
        >>> mix = fit_mix(np.stack([good, random.normal(size=2000)]), labels, np.ones(2000), random)
        >>> mix.weight.round(1)
        array([1., 0.])
    """
    sigmoids = np.array([fit_sigmoid(own, labels, weights) for own in scores])
    slope, intercept = sigmoids.T
    logits = slope[:, None] * scores + intercept[:, None]
    prior = _bootstrap_weights(logits, labels, weights, random)

    def penalised(at: Floats) -> tuple[float, Floats]:
        mixed = at[:-1] @ logits + at[-1]
        off = weights * (expit(mixed) - labels)
        value = (weights * (np.logaddexp(0, mixed) - labels * mixed)).sum() + _PULL * ((at[:-1] - prior) ** 2).sum()
        return float(value), np.append(logits @ off + 2 * _PULL * (at[:-1] - prior), off.sum())

    bounds = [(0, None)] * len(prior) + [(None, None)]
    found = minimize(penalised, np.append(prior, 0.0), jac=True, method="L-BFGS-B", bounds=bounds).x
    return Mix(slope, intercept, found[:-1], float(found[-1]))


def _bootstrap_weights(
    logits: Floats, labels: NDArray[np.bool_], weights: Floats, random: np.random.Generator
) -> Floats:
    """Return the pseudo-BMA+ weights (K,) of log odds (K, N)."""
    likelihood = weights * (labels * logits - np.logaddexp(0, logits))
    drawn = np.stack([likelihood @ _dirichlet(len(labels), random) for _ in range(_DRAWS)])
    mean: Floats = softmax(drawn, axis=1).mean(0)
    return mean


def _dirichlet(size: int, random: np.random.Generator) -> Floats:
    """Return random row weights of mean 1."""
    drawn: Floats = random.exponential(size=size)
    drawn *= size / drawn.sum()
    return drawn
