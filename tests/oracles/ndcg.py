"""SONG, K-SONG and SOLC by the definition (METHODS 3), one list at a time, in plain loops over scalars."""

from __future__ import annotations

import math

import torch


def squared_hinge(x, margin):
    return torch.clamp(margin + x, min=0) ** 2


def mean_loss(h, i, margin):
    """g: the mean of l(h' - h_i) over all items, the item itself included."""
    return sum(squared_hinge(other - h[i], margin) for other in h) / len(h)


def ideal_dcg(grades, k=None):
    best = sorted((2**y - 1 for y in grades), reverse=True)[:k]
    return sum(gain / math.log2(rank + 2) for rank, gain in enumerate(best))


def song(h, grades, margin=1.0, shift=0.0, select=None, k=None):
    """1 + the sum over relevant items of psi f(g) for one whole list; h are 0-d tensors."""
    total, size = 1.0, len(h)
    for i, y in enumerate(grades):
        if y > 0:
            weight = 1.0 if select is None else select(h[i])
            g = mean_loss(h, i, margin)
            total = total + weight * (1 - 2**y) / (ideal_dcg(grades, k) * torch.log2(size * g + 1 + shift))
    return total


def slope_of_outer(u, y, size, ideal):
    """f'(u), as printed in METHODS 3.1."""
    return (2**y - 1) * size / (ideal * math.log(2) * math.log2(size * u + 1) ** 2 * (size * u + 1))


def threshold(h, k, tau, tau_norm, epsilon=0.5):
    """lambda by bisection of dL/dlambda; the quadratic term is centred on the mean score."""
    scores = [float(x) for x in h]
    mean = sum(scores) / len(scores)

    def slope(lam):
        above = sum(1 / (1 + math.exp(min(-(s - lam) / tau, 700))) for s in scores) / len(scores)
        return (k + epsilon) / len(scores) + tau_norm * (lam - mean) - above

    low, high = min(scores) - 50 * tau, max(scores) + 50 * tau
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    return (low + high) / 2


def stratified_mean(values_relevant, values_irrelevant, own, relevant, size):
    """g from a sample: the exact self term, and the mean of each kind of other items times its share of the list."""
    total = own / size
    total = total + (relevant - 1) / size * sum(values_relevant) / len(values_relevant)
    return total + (size - relevant) / size * sum(values_irrelevant) / len(values_irrelevant)


def listwise_cross_entropy(h, grades, gain=lambda y: 2**y - 1):
    gains = [gain(y) for y in grades]
    total = 0.0
    for i, gain in enumerate(gains):
        if gain > 0:
            total = total + gain / sum(gains) * torch.log(sum(torch.exp(other - h[i]) for other in h))
    return total
