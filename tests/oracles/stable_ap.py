"""Stable AP by the definition (METHODS 2.1 and 2.2), one list at a time, in plain loops over scalars."""

from __future__ import annotations

import math

from oracles.pairs import one_sided_huber


def outer(x, eps):
    """h."""
    return (eps**2 + x / (1 + x)) ** 0.5


def largest(width, tau):
    """B_l: the surrogate at the largest distance within the range."""
    return one_sided_huber(-width, tau)


def weight_by_mean(score, mean, width, tau, a, t):
    """w~ of a positive; all arguments are plain numbers, so nothing carries a gradient."""
    standing = min(one_sided_huber(score - mean, tau) / largest(width, tau), 1.0)
    return ((1 + a) / (standing + a)) ** t


def weight_by_rank(rank, rho, bound):
    """w of Theorem 1."""
    return 0.5 / math.sqrt(rank - rank**2) if rank <= 0.5 else (1 + rho * bound) / (rank + rho * bound)


def ranks(positives):
    """The share of positives at or above each of them, ties included."""
    return [sum(q >= p for q in positives) / len(positives) for p in positives]


def inner(positives, negatives, weights, rho, tau):
    """x = rho / n+ sum_i w_i l_i for 0-d tensors or numbers."""
    total = 0.0
    for p, w in zip(positives, weights, strict=True):
        total = total + w * sum(one_sided_huber(p - n, tau) for n in negatives) / len(negatives)
    return rho * total / len(positives)


def bound_factor(rho, bound):
    """q of Theorem 1."""
    return math.pi / 2 + 2 * (1 + rho * bound) / (1 + 2 * rho * bound)


def mixed(features, classes, draws, keep):
    """Deep feature mixup of one row after another: lists of numbers in and out; draws[i][j] are the raw v_ij."""
    rows = []
    for i, own in enumerate(features):
        others = [j for j, c in enumerate(classes) if c == classes[i]]
        total = sum(draws[i][j] for j in others)
        rows.append(
            [
                keep * own[d] + (1 - keep) * sum(draws[i][j] * features[j][d] for j in others) / total
                for d in range(len(own))
            ]
        )
    return rows
