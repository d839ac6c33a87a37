"""The surrogates of pAp@k and their baselines by definition (METHODS 4.1, 4.2), one list, plain loops over scalars.

Scores may be numbers or 0-d tensors; `n` below is the number of positives.
"""

from __future__ import annotations

from itertools import combinations, permutations


def value_of(score):
    return float(score.detach()) if hasattr(score, "detach") else float(score)


def falling(scores):
    return sorted(scores, key=value_of, reverse=True)


def hinge(x):
    """(x)_+ with slope 0 at the corner."""
    return x if value_of(x) > 0 else 0 * x


def sides(positives, negatives, k):
    """Positives and the k best negatives, both falling, and b."""
    p, z = falling(positives), falling(negatives)[:k]
    return p, z, min(len(p), len(z))


def risk(positives, negatives, k):
    p, z, b = sides(positives, negatives, k)
    return sum(value_of(x) <= value_of(y) for x in p[:b] for y in z) / (b * len(z))


def ramp(positives, negatives, k):
    p, z, b = sides(positives, negatives, k)
    return sum(hinge(1 + y - x) for x in p[:b] for y in z) / (b * len(z))


def maximal(positives, negatives, k):
    p, z, b = sides(positives, negatives, k)
    return sum(hinge(1 + y - x) for x in p[len(p) - b :] for y in z) / (b * len(z))


def average(positives, negatives, k):
    p, z, _ = sides(positives, negatives, k)
    mean = sum(p) / len(p)
    return sum(hinge(1 + y - mean) for y in z) / len(z)


def average_plus(positives, negatives, k):
    p, z, _ = sides(positives, negatives, k)
    return sum(hinge(1 + y - x) for x in p for y in z) / (len(p) * len(z))


def ts(positives, negatives, k):
    p, z, b = sides(positives, negatives, k)
    return ramp(positives, negatives, k) + sum(hinge(y - x) for x in p[b:] for y in z) / (b * len(z))


def ts_star(positives, negatives, k):
    p, z, b = sides(positives, negatives, k)
    total = 0.0
    for y in z:
        few = sum((hinge(y - x) for x in p[b:]), 0 * y)
        many = sum((y - x for x in p[b:]), 0 * y) + sum(hinge(1 + y - x) for x in p[:b])
        total = total + (few if value_of(few) > value_of(many) else many)
    return total / (b * len(z))


SURROGATES = {"ramp": ramp, "avg": average, "avg+": average_plus, "max": maximal, "ts": ts, "ts*": ts_star}


def ts_by_orderings(positives, negatives, k):
    """The TS surrogate as the paper defines it: the maximum over k negatives and over all orders of all items.

    An order puts pi_ij = 1 where negative j stands above positive i. Of the positives in that order the first b count
    an error each; every pair in the wrong order counts the difference of the scores.
    """
    n, b = len(positives), min(len(positives), k)
    largest = float("-inf")
    for chosen in combinations(negatives, k):
        for order in permutations(range(n + k)):
            place = {item: rank for rank, item in enumerate(order)}
            first = sorted(range(n), key=place.__getitem__)[:b]
            total = 0.0
            for i in range(n):
                for j in range(k):
                    if place[n + j] < place[i]:
                        total += (i in first) + chosen[j] - positives[i]
            largest = max(largest, total / (b * k))
    return largest


def partial_auc(positives, negatives, count):
    return average_plus(positives, negatives, count)


def precision_by_subsets(positives, negatives, k):
    """Kar et al.'s average surrogate as defined: the maximum over all sets of k items called the first k.

    errors + sum of chosen scores - sum of all positive scores + (n - k)/(n - K) times the sum of the positives not
    chosen, K of which are; divided by k.
    """
    n, k = len(positives), min(len(positives), k)
    items = [(s, 1) for s in positives] + [(s, 0) for s in negatives]
    largest = None
    for chosen in combinations(range(n + len(negatives)), k):
        hits = sum(items[c][1] for c in chosen)
        total = (k - hits) + sum(items[c][0] for c in chosen) - sum(positives)
        if hits < n:
            missed = sum(s for i, (s, y) in enumerate(items) if y and i not in chosen)
            total = total + (n - k) / (n - hits) * missed
        if largest is None or value_of(total) > value_of(largest):
            largest = total
    return largest / k


def greedy(positives, negatives, k):
    p, z, b = sides(positives, negatives, k)
    return (sum(hinge(1 - x) for x in p[:b]) / b + sum(hinge(1 + y) for y in z) / len(z)) / 2
