"""From scores to probabilities: Platt's sigmoid."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

__all__ = ["fit_sigmoid"]


def fit_sigmoid(scores: Tensor, labels: Tensor) -> tuple[float, float]:
    """Return slope and intercept of `sigmoid(slope * score + intercept)`, the probability of a positive.

    Minimises the log loss with Platt's targets, (n+ + 1) / (n+ + 2) and 1 / (n- + 2) instead of 1 and 0. The slope
    stays above 0, so that the order of the scores is kept.

    Args:
        scores: (N,) raw scores.
        labels: (N,) True for positives.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> scores = torch.randn(5000, generator=generator)
        >>> labels = torch.rand(5000, generator=generator) < torch.sigmoid(2 * scores - 1)
        >>> slope, intercept = fit_sigmoid(scores, labels)
        >>> round(slope), round(intercept)
        (2, -1)
    """
    scores, positive = scores.detach().double(), labels.bool()
    # Scores of unit spread make the two parameters alike in scale.
    centre, spread = scores.mean(), scores.std(correction=0).clamp_min(1e-12)
    unit = (scores - centre) / spread
    positives, negatives = int(positive.sum()), int((~positive).sum())
    targets = torch.where(positive, (positives + 1) / (positives + 2), 1 / (negatives + 2)).double()
    start = torch.tensor([0.0, torch.logit(torch.tensor((positives + 1) / (len(scores) + 2))).item()])
    at = start.double().requires_grad_()
    optimiser = torch.optim.LBFGS([at], max_iter=100, line_search_fn="strong_wolfe", tolerance_grad=1e-9)

    def log_loss() -> Tensor:
        optimiser.zero_grad()
        # An unbounded slope would mean certainty, which no validation part can give.
        value = binary_cross_entropy_with_logits(at[0].clamp(-7, 7).exp() * unit + at[1], targets)
        value.backward()
        return value

    with torch.enable_grad():
        optimiser.step(log_loss)
    slope = float(at[0].detach().clamp(-7, 7).exp() / spread)
    return slope, float(at[1].detach()) - slope * float(centre)
