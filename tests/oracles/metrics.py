"""Slow plain definitions of the metrics: one list, plain Python, written from the formula.

Where a metric is an expectation over the orders of tied items, all orders are tried. `items` is a list of
(score, label) pairs; nothing here shares code with the package.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import groupby, pairwise, permutations, product

Item = tuple[float, float]
NAN = float("nan")


def orders(items: Sequence[Item]) -> list[list[float]]:
    """The labels in every order that has the scores falling."""
    ranked = sorted(items, key=lambda item: -item[0])
    groups = [[label for _, label in group] for _, group in groupby(ranked, key=lambda item: item[0])]
    return [[label for part in parts for label in part] for parts in product(*(permutations(g) for g in groups))]


def expected(of_order: Callable[[list[float]], float]) -> Callable[[Sequence[Item]], float]:
    """A function of labels in order made into its mean over tie orders."""

    def mean(items: Sequence[Item]) -> float:
        values = [of_order(order) for order in orders(items)]
        return math.fsum(values) / len(values)

    return mean


def average_precision(items: Sequence[Item]) -> float:
    relevant = [score for score, label in items if label]
    if not relevant:
        return NAN
    total = 0.0
    for threshold in relevant:
        above = [label for score, label in items if score >= threshold]
        total += sum(above) / len(above)
    return total / len(relevant)


def ndcg(items: Sequence[Item], k: int | None, gain: Callable[[float], float]) -> float:
    def dcg(labels: Sequence[float]) -> float:
        return math.fsum(gain(label) / math.log2(place + 2) for place, label in enumerate(labels[:k]))

    ideal = dcg(sorted((label for _, label in items), key=gain, reverse=True))
    return expected(dcg)(items) / ideal if ideal > 0 else NAN


def precision(items: Sequence[Item], k: int | None) -> float:
    if not items:
        return NAN
    return expected(lambda labels: sum(labels[:k]) / (k or len(items)))(items)


def recall(items: Sequence[Item], k: int | None) -> float:
    count = sum(label for _, label in items)
    return expected(lambda labels: sum(labels[:k]) / count)(items) if count else NAN


def hit(items: Sequence[Item], k: int | None) -> float:
    if not any(label for _, label in items):
        return NAN
    return expected(lambda labels: float(any(labels[:k])))(items)


def reciprocal_rank(items: Sequence[Item], k: int | None) -> float:
    if not any(label for _, label in items):
        return NAN

    def of_order(labels: list[float]) -> float:
        return next((1 / (place + 1) for place, label in enumerate(labels[:k]) if label), 0.0)

    return expected(of_order)(items)


def r_precision(items: Sequence[Item]) -> float:
    count = int(sum(label for _, label in items))
    return precision(items, count) if count else NAN


def map_at_r(items: Sequence[Item]) -> float:
    count = int(sum(label for _, label in items))
    if not count:
        return NAN

    def of_order(labels: list[float]) -> float:
        return sum(sum(labels[: place + 1]) / (place + 1) for place in range(count) if labels[place]) / count

    return expected(of_order)(items)


def auroc(items: Sequence[Item]) -> float:
    positives, negatives = split(items)
    if not positives or not negatives:
        return NAN
    return sum((p > z) + (p == z) / 2 for p in positives for z in negatives) / (len(positives) * len(negatives))


def multiclass_auc(scores: Sequence[Sequence[float]], labels: Sequence[int]) -> float:
    """Hand and Till (2001), equation (7): the mean over the pairs of classes of both AUCs of the pair."""
    classes = sorted(set(labels))
    if len(classes) < 2:
        return NAN

    def share(i: int, j: int) -> float:
        own, other = ([row[i] for row, label in zip(scores, labels, strict=True) if label == c] for c in (i, j))
        return sum((p > z) + (p == z) / 2 for p in own for z in other) / (len(own) * len(other))

    pairs = [(i, j) for i in classes for j in classes if i < j]
    return sum((share(i, j) + share(j, i)) / 2 for i, j in pairs) / len(pairs)


def partial_auroc(items: Sequence[Item], low: float, high: float) -> float:
    """Trapezoids under the ROC curve, cut at the bounds."""
    positives, negatives = split(items)
    if not positives or not negatives:
        return NAN
    curve = [(0.0, 0.0)]
    for threshold in sorted({score for score, _ in items}, reverse=True):
        rates = [sum(score >= threshold for score in side) / len(side) for side in (negatives, positives)]
        curve.append((rates[0], rates[1]))
    area = 0.0
    for (x0, y0), (x1, y1) in pairwise(curve):
        left, right = max(x0, low), min(x1, high)
        if left < right:
            slope = (y1 - y0) / (x1 - x0)
            area += (right - left) * (y0 + slope * ((left + right) / 2 - x0))
    return area / (high - low)


def pap(items: Sequence[Item], k: int | None, tie: float = 1.0) -> float:
    """The definition as printed; `tie` is what a tie counts as an error."""
    positives, negatives = (sorted(side, reverse=True) for side in split(items))
    top = len(negatives) if k is None else k
    best = min(len(positives), top)
    if not best or len(negatives) < top:
        return NAN
    errors = sum((p < z) + tie * (p == z) for p in positives[:best] for z in negatives[:top])
    return 1 - errors / (best * top)


def split(items: Sequence[Item]) -> tuple[list[float], list[float]]:
    return [score for score, label in items if label], [score for score, label in items if not label]
