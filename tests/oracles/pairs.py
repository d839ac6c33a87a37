"""Pair sums by the definition: every pair, one by one, in plain Python."""

from __future__ import annotations

import math


def one_sided_huber(x: float, tau: float) -> float:
    if x < 0:
        return 1 - 2 * x / tau
    return (1 - x / tau) ** 2 if x < tau else 0.0


def hinge(x: float, margin: float) -> float:
    return max(0.0, margin - x)


def squared_hinge(x: float, margin: float) -> float:
    return max(0.0, margin - x) ** 2


def one_sided_tanh(x: float, tau: float) -> float:
    return math.tanh(-x / (2 * tau)) if x < 0 else 0.0


def sigmoid(x: float, temperature: float) -> float:
    return 1 / (1 + math.exp(x / temperature))


def piecewise_step(x: float, width: float) -> float:
    return min(1.0, max(0.0, (width - x) / (2 * width)))


def logistic(x: float, temperature: float) -> float:
    return math.log1p(math.exp(-x / temperature))


def pair_sums(anchors, others, surrogate, weights=None, anchor_mask=None, other_mask=None):
    """Lists of lists of numbers in, list of lists of sums out."""
    sums = []
    for q, row in enumerate(anchors):
        sums.append([])
        for i, a in enumerate(row):
            total = 0.0
            for j, b in enumerate(others[q]):
                if other_mask is None or other_mask[q][j]:
                    total += (1.0 if weights is None else weights[q][j]) * surrogate(a - b)
            sums[q].append(total if anchor_mask is None or anchor_mask[q][i] else 0.0)
    return sums
