"""Estimate what a training can reach before anything is measured: intervals by size, the bias of AP in batches."""

from __future__ import annotations

import math

import torch

from rankwise.checks import check_count, check_share

__all__ = ["HELD_OUT_SHARE", "ap_interval", "expected_ap_loss", "mean_reach", "training_prior"]

# Share of the rows that are held out for the validation part, and for the test part, if nothing else is said.
HELD_OUT_SHARE = 0.2
_QUANTILE = 1.96  # of the normal distribution, for 95 %
STEPS = 20_000
# Shares of positives from which the true share trains well, and from which the default prior, .1, does.
_FREQUENT, _RARE = 0.1, 0.02


def ap_interval(ap: float, positives: int) -> tuple[float, float]:
    """Return the 95 % interval of an average precision measured on so many positives, approximately.

    The logit interval: the logit of AP is taken for normal with the variance 1 / (positives AP (1 - AP)) that a
    binomial share of `positives` draws has. The negatives count little, as they are many. Of normal scores, with 9 to
    300 positives, it contained the true value in 94 to 100 % of the draws: if anything, it is too wide.

    Args:
        ap: the value, between 0 and 1.
        positives: number of positive rows.

    Example:
        >>> low, high = ap_interval(0.5, 30)
        >>> round(low, 2), round(high, 2)
        (0.33, 0.67)

    Boyd, Eng and Page, Area under the precision-recall curve: point estimates and confidence intervals, ECML PKDD 2013.
    """
    check_share("ap", ap)
    check_count("positives", positives)
    middle, reach = math.log(ap / (1 - ap)), _QUANTILE / math.sqrt(positives * ap * (1 - ap))
    low, high = (1 / (1 + math.exp(-end)) for end in (middle - reach, middle + reach))
    return low, high


def mean_reach(lists: int) -> float:
    """Return how far at most the mean of a metric over so many lists may lie from the true one, with 95 % confidence.

    A value from 0 to 1 has a standard deviation of at most 1/2.

    Example:
        >>> round(mean_reach(100), 3)
        0.098
    """
    return _QUANTILE * 0.5 / math.sqrt(check_count("lists", lists))


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
