"""Scores to log odds: a sigmoid for one model, a weighted sum for several, fitted to rows they did not learn from."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import softplus

__all__ = ["Mix", "fit_list_mix", "fit_mix", "fit_sigmoid"]

# The pull of the weights of a mix to their prior, in units of log loss.
_PULL = 10.0
_DRAWS = 200
_NEWTON_STEPS = 50


def fit_sigmoid(scores: Tensor, labels: Tensor, weights: Tensor | None = None) -> tuple[float, float]:
    """Return slope and intercept of `sigmoid(slope * score + intercept)`, the probability of a positive.

    Minimises the log loss with Platt's targets, (n+ + 1) / (n+ + 2) and 1 / (n- + 2) instead of 1 and 0. The slope
    stays above 0, so that the order of the scores is kept.

    Args:
        scores: (N,) raw scores.
        labels: (N,) True for positives.
        weights: (N,) of the rows, above 0; by default 1.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> scores = torch.randn(5000, generator=generator)
        >>> labels = torch.rand(5000, generator=generator) < torch.sigmoid(2 * scores - 1)
        >>> slope, intercept = fit_sigmoid(scores, labels)
        >>> round(slope), round(intercept)
        (2, -1)
    """
    scores, positive = scores.detach().double(), labels.bool()
    weights = torch.ones_like(scores) if weights is None else weights.double()
    share = weights / weights.sum()
    # Scores of unit spread make the two parameters alike in scale.
    centre = (share * scores).sum()
    spread = (share * (scores - centre).square()).sum().sqrt().clamp_min(1e-12)
    unit = (scores - centre) / spread
    positives, negatives = weights[positive].sum(), weights[~positive].sum()
    targets = torch.where(positive, (positives + 1) / (positives + 2), 1 / (negatives + 2))
    inputs = torch.stack([unit, torch.ones_like(unit)])
    # An unbounded slope would mean certainty, which no sample can give. Newton steps begin where no sigmoid is flat.
    flattest, steepest = math.exp(-7), math.exp(7)
    start = torch.stack([torch.full_like(positives, flattest), ((positives + 1) / (negatives + 1)).log()])
    slope, intercept = _fit_logits(inputs, targets, share, start, bounds=(flattest, steepest))
    slope = float(slope / spread)
    return slope, float(intercept) - slope * float(centre)


class Mix(NamedTuple):
    """A weighted sum of the scores of K models, such as log odds.

    Attributes:
        factors: (K,) 0 or more; constant: added to the sum.
        shares: (K,) the say of each model: its weight among scores of one scale.
    """

    factors: Tensor
    constant: float
    shares: Tensor

    def __call__(self, scores: Tensor) -> Tensor:
        """Return log odds (N,) of scores (K, N)."""
        return self.factors.to(scores) @ scores + self.constant


def fit_mix(scores: Tensor, labels: Tensor, weights: Tensor | None = None, *, seed: int = 0) -> Mix:
    """Fit a sigmoid to each model, then weights of at least 0 by log loss with a pull to a prior.

    The prior weight of a model is its pseudo-BMA+ weight (Yao et al., "Using stacking to average Bayesian predictive
    distributions", 2018): the share that exp(log likelihood) gives it, averaged over Bayesian bootstrap draws of the
    rows. With few positives the prior decides, and a model that is clearly the best gets nearly all weight.

    Args:
        scores: (K, N) of rows that the models did not learn from.
        labels: (N,) of both kinds, True for positives.
        weights: (N,) of the rows, above 0; by default 1.
        seed: decides the draws.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> good, bad = torch.randn(2, 2000, generator=generator)
        >>> labels = torch.rand(2000, generator=generator) < torch.sigmoid(3 * good - 2)
        >>> fit_mix(torch.stack([good, bad]), labels).shares.round(decimals=1)
        tensor([1., 0.], dtype=torch.float64)
    """
    scores, positive = scores.detach().double(), labels.double()
    weights = torch.ones_like(positive) if weights is None else weights.double()
    slopes, intercepts = torch.tensor([fit_sigmoid(own, labels, weights) for own in scores]).double().T
    logits = slopes[:, None] * scores + intercepts[:, None]
    prior = _bootstrap_weights(logits, positive, weights, seed)
    shares, constant = _fit_weights(logits, positive, weights, prior)
    return Mix(shares * slopes, constant + float(shares @ intercepts), shares)


def fit_list_mix(scores: Tensor, gains: Tensor, queries: Tensor) -> Mix:
    """Fit factors (K,) above 0 of the scores of K models by the order that their sum gives to lists.

    Scores are divided by their spread within lists. The factors then minimise the cross entropy of ListNet, the softmax
    of the sum against the shares of the gains, with a pull to equal factors.

    Args:
        scores: (K, N) of rows that the models did not learn from.
        gains: (N,) 0 or more.
        queries: (N,) the list of each row.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> good, bad = torch.randn(2, 2000, generator=generator)
        >>> gains, queries = torch.sigmoid(3 * good - 2), torch.arange(2000) // 20
        >>> fit_list_mix(torch.stack([good, bad]), gains, queries).shares.round(decimals=1)
        tensor([0.9000, 0.1000], dtype=torch.float64)
    """
    scores, gains = scores.detach().double(), gains.double()
    lists, count = queries.unique(return_inverse=True)[1], len(queries.unique())

    def sums(values: Tensor) -> Tensor:
        """Return the sums (..., Q) of values (..., N) over lists."""
        return values.new_zeros(*values.shape[:-1], count).index_add(-1, lists, values)

    lengths = sums(torch.ones_like(gains))
    means = (sums(scores) / lengths)[..., lists]
    spread = (sums((scores - means).square()) / lengths)[:, lengths > 1].mean(1).sqrt()
    spread = torch.where(spread > 0, spread, 1.0)
    unit, total = scores / spread[:, None], sums(gains)
    shares = torch.where(total > 0, 1 / total.clamp_min(1e-300), 0.0)[lists] * gains
    # Factors are squares, which keeps them above 0.
    start = torch.full((len(scores),), 1 / len(scores), dtype=torch.float64)
    roots = start.sqrt().requires_grad_()
    optimiser = torch.optim.LBFGS([roots], max_iter=100, line_search_fn="strong_wolfe")

    def cost() -> Tensor:
        optimiser.zero_grad()
        mixed = roots.square() @ unit
        highest = torch.full((count,), -torch.inf, dtype=torch.float64)
        highest = highest.scatter_reduce(0, lists, mixed.detach(), "amax")
        normaliser = sums((mixed - highest[lists]).exp()).log() + highest
        value = (shares * (normaliser[lists] - mixed)).sum() + _PULL * (roots.square() - start).square().sum()
        value.backward()
        return value

    with torch.enable_grad():
        optimiser.step(cost)
    weights = roots.detach().square()
    return Mix(weights / spread, 0.0, weights / weights.sum())


def _fit_weights(logits: Tensor, labels: Tensor, weights: Tensor, prior: Tensor) -> tuple[Tensor, float]:
    """Minimise the log loss plus the pull to the prior over weights (K,) of at least 0 and a constant."""
    inputs = torch.cat([logits, torch.ones_like(logits[:1])])
    start = torch.cat([prior, torch.zeros_like(prior[:1])])
    at = _fit_logits(inputs, labels, weights, start, bounds=(0.0, math.inf), pull=2 * _PULL)
    return at[:-1], float(at[-1])


def _fit_logits(
    inputs: Tensor,
    targets: Tensor,
    weights: Tensor,
    start: Tensor,
    *,
    bounds: tuple[float, float],
    pull: float = 0.0,
) -> Tensor:
    """Minimise the log loss of logits `at @ inputs` over `at` (K,) by projected Newton steps from `start`.

    All entries but the last, the constant, stay within the bounds and are pulled to the start: the loss includes
    pull / 2 times their squared distance from it.
    """
    pulls = torch.full_like(start, pull)
    pulls[-1] = 0
    lowest, highest = (torch.full_like(start, bound) for bound in bounds)
    lowest[-1], highest[-1] = -math.inf, math.inf

    def loss(at: Tensor) -> Tensor:
        mixed = at @ inputs
        return (weights * (softplus(mixed) - targets * mixed)).sum() + (pulls * (at - start).square()).sum() / 2

    at, value = start, loss(start)
    for _ in range(_NEWTON_STEPS):
        chance = torch.sigmoid(at @ inputs)
        gradient = inputs @ (weights * (chance - targets)) + pulls * (at - start)
        # An entry at a bound that would cross it stays.
        free = ~((at <= lowest) & (gradient > 0) | (at >= highest) & (gradient < 0))
        if gradient[free].abs().max() < 1e-9 * max(1.0, float(weights.sum())):
            break
        curved = inputs[free]
        hessian = (curved * (weights * chance * (1 - chance))) @ curved.T + pulls[free].diag()
        hessian.diagonal().add_(1e-9 * hessian.diagonal().max())
        step = torch.zeros_like(at)
        step[free] = torch.linalg.solve(hessian, gradient[free])
        size = 1.0
        while size > 1e-9:
            moved = (at - size * step).clamp(lowest, highest)
            lower = loss(moved)
            if lower < value:
                break
            size /= 2
        else:
            break
        at, value = moved, lower
    return at


def _bootstrap_weights(logits: Tensor, labels: Tensor, weights: Tensor, seed: int) -> Tensor:
    """Return the pseudo-BMA+ weights (K,) of log odds (K, N)."""
    likelihood = weights * (labels * logits - softplus(logits))
    # The order of the rows must not matter.
    likelihood = likelihood[:, likelihood.sum(0).argsort(stable=True)]
    drawn = torch.zeros(len(logits), _DRAWS, dtype=logits.dtype)
    generator = torch.Generator().manual_seed(seed)
    for draw in range(_DRAWS):
        rows = torch.empty_like(likelihood[0]).exponential_(generator=generator)
        drawn[:, draw] = likelihood @ (rows * (len(rows) / rows.sum()))
    return drawn.softmax(0).mean(1)
