"""Bias of the plain AP loss in batches with more positives than the data."""

from __future__ import annotations

import torch

from rankwise.checks import check_share

__all__ = ["expected_ap_loss", "training_prior"]

STEPS = 20_000
# Shares of positives from which the true share trains well, and from which the default prior, .1, does.
_FREQUENT, _RARE = 0.1, 0.02


def training_prior(share: float) -> str:
    """Return the prior to train `AUPRCLoss` with, as it is written in code, for a share of positives in the data.

    The true share makes the value of the loss an unbiased estimate of 1 - AP. Where positives are rare the objective
    is flat there, and training stalls (docs/average-precision.md has the figures).

    Example:
        >>> training_prior(0.25), training_prior(0.03)
        ('prior=0.25', 'prior=0.1')
    """
    if share >= _FREQUENT:
        return f"prior={share:.2g}"
    return "prior=0.1" if share >= _RARE else "prior=PriorSchedule(start=0.5, end=0.02)"


def expected_ap_loss(prior: float, *, separation: float = 1.0) -> float:
    """Compute 1 - AUPRC of scores drawn from N(separation, 1) for positives and N(0, 1) for negatives.

    The mean over positives of x / (1 + x), x = (1 - prior) / prior * FPR / TPR at the positive's score. The same model
    on the same data gives another value at another share of positives: that is the bias of an AP loss computed on
    batches with more (or fewer) positives than the data.

    Args:
        prior: the share of positives.
        separation: how far apart the classes are, in standard deviations.

    Example:
        >>> round(expected_ap_loss(0.1), 2), round(expected_ap_loss(0.5), 2)
        (0.71, 0.25)
    """
    check_share("prior", prior)
    quantiles = (torch.arange(STEPS, dtype=torch.float64) + 0.5) / STEPS
    scores = separation + torch.special.ndtri(quantiles)
    false_positive_rate, true_positive_rate = torch.special.ndtr(-scores), 1 - quantiles
    ratio = (1 - prior) / prior * false_positive_rate / true_positive_rate
    return float((ratio / (1 + ratio)).mean())
