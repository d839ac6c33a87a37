"""What the plain AP loss of a batch says when positives are more frequent there than in the data."""

from __future__ import annotations

import torch

from rankwise.checks import check_share

__all__ = ["expected_ap_loss"]

STEPS = 20_000


def expected_ap_loss(prior: float, *, separation: float = 1.0) -> float:
    """1 - AUPRC of scores drawn from N(separation, 1) for positives and N(0, 1) for negatives.

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
