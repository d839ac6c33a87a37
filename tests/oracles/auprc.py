"""SOPRC by the definition (METHODS 1.1 and 1.2), one list at a time, in plain loops over scalars."""

from __future__ import annotations

import itertools
import math

import torch

from oracles.pairs import one_sided_huber, one_sided_tanh


def interpolate(scores, count, bounds=(-math.inf, math.inf)):
    """phi, as printed after correction: u_0 and u_{n+1} extrapolated, two interpolations averaged."""
    u = sorted(scores)
    n = len(u)
    if n == 1:
        return [u[0]] * count
    u = [max(2 * u[0] - u[1], bounds[0]), *u, min(2 * u[-1] - u[-2], bounds[1])]
    quantiles = []
    for j in range(count):
        t = (j + 0.5) * n / count
        i = math.floor(t)
        a = t - i
        quantiles.append(0.5 * ((1 - a) * u[i] + a * u[i + 1]) + 0.5 * ((1 - a) * u[i + 1] + a * u[i + 2]))
    return quantiles


def interpolate_weighted(scores, weights, count, bounds=(-math.inf, math.inf)):
    """The same with item i as wide as its weight: the polyline through (w_1 + .. + w_i, (u_i + u_{i+1}) / 2)."""
    items = sorted(zip(scores, weights, strict=True))
    u = [score for score, _ in items]
    if len(u) == 1:
        return [u[0]] * count
    u = [max(2 * u[0] - u[1], bounds[0]), *u, min(2 * u[-1] - u[-2], bounds[1])]
    knots = [sum(weight for _, weight in items[:i]) for i in range(len(items) + 1)]
    heights = [(left + right) / 2 for left, right in itertools.pairwise(u)]
    quantiles = []
    for j in range(count):
        t = (j + 0.5) * knots[-1] / count
        i = max(i for i in range(len(items)) if knots[i] <= t)
        a = (t - knots[i]) / (knots[i + 1] - knots[i])
        quantiles.append((1 - a) * heights[i] + a * heights[i + 1])
    return quantiles


def soprc(positives, negatives, quantiles, prior, tau, tau_recall, floor=None):
    """The estimator (8) for 0-d tensors; the gradient flows through the numerator only."""
    total = 0.0
    floor = 1 / (len(quantiles) + 1) if floor is None else floor
    for p in positives:
        false = sum(one_sided_huber(p - n, tau) for n in negatives) / len(negatives)
        above = sum(one_sided_tanh(p.item() - v, tau_recall) for v in quantiles) / len(quantiles)
        x = (1 - prior) / prior * false / (floor + (1 - floor) * above)
        total = total + x / (1 + x)
    return total / len(positives)


def semi_variance(positives, negatives, positive, negative):
    """The add-on (9)."""
    mean_positive, mean_negative = torch.stack(positives).mean(), torch.stack(negatives).mean()
    low = sum((p - mean_positive) ** 2 for p in positives if p < mean_positive) / len(positives)
    high = sum((n - mean_negative) ** 2 for n in negatives if n > mean_negative) / len(negatives)
    return positive * low + negative * high


def average_precision(positives, negatives):
    """Mean over positives of the precision at their threshold, ties at the same threshold."""
    total = 0.0
    for p in positives:
        above_positive = sum(q >= p for q in positives)
        above = above_positive + sum(n >= p for n in negatives)
        total += above_positive / above
    return total / len(positives)
