"""The baselines of the NDCG losses by their definitions: one list at a time, plain loops over 0-d float64 tensors.

`scores` is a list of 0-d tensors, `grades` and `weights` are lists of numbers. Nothing here shares code with the
package.
"""

from __future__ import annotations

import math
from itertools import permutations

import torch


def pairs(grades):
    return [(i, j) for i in range(len(grades)) for j in range(len(grades)) if grades[i] > grades[j]]


def relative(weights):
    mean = sum(weights) / len(weights)
    return [w / mean for w in weights]


def softplus(x):
    return torch.log1p(torch.exp(x))


def log_sum_exp(terms):
    return torch.stack(terms).logsumexp(0)


def exp2(grade):
    return 2.0**grade - 1


def ideal_dcg(gains, k=None):
    best = sorted(gains, reverse=True)[:k]
    return sum(g / math.log2(p + 2) for p, g in enumerate(best))


def ranknet(scores, grades, weights, sigma=1.0):
    total = sum(weights[i] * weights[j] for i, j in pairs(grades))
    return sum(weights[i] * weights[j] * softplus(-sigma * (scores[i] - scores[j])) for i, j in pairs(grades)) / total


def listnet(scores, grades, weights):
    w = relative(weights)
    target = [wi * math.exp(y) for wi, y in zip(w, grades, strict=True)]
    total = log_sum_exp([s + math.log(wi) for s, wi in zip(scores, w, strict=True)])
    return -sum(t / sum(target) * (s - total) for t, s in zip(target, scores, strict=True))


def softmax(scores, grades, weights):
    w = relative(weights)
    total = log_sum_exp([s + math.log(wi) for s, wi in zip(scores, w, strict=True)])
    counts = [wi * y for wi, y in zip(w, grades, strict=True)]
    return sum(n * (total - s) for n, s in zip(counts, scores, strict=True)) / sum(counts)


def sampled_softmax(scores, labels, weights, negatives=None):
    w = relative(weights)
    others = [j for j, y in enumerate(labels) if not y]
    factor = 1.0 if negatives is None else negatives / sum(w[j] for j in others)
    exps = sum(factor * w[j] * scores[j].exp() for j in others)
    positives = [i for i, y in enumerate(labels) if y]
    cost = sum(w[i] * ((scores[i].exp() + exps).log() - scores[i]) for i in positives)
    return cost / sum(w[i] for i in positives)


def squared_error(scores, grades, weights, gain=lambda y: y):
    cost = sum(w * (s - gain(y)) ** 2 for s, y, w in zip(scores, grades, weights, strict=True))
    return cost / sum(weights)


def listmle(scores, grades, weights):
    """Efron: the l-th of m tied items is chosen from what is below and (1 - l/m) of the group."""
    w = relative(weights)
    exps = [wi * s.exp() for wi, s in zip(w, scores, strict=True)]
    cost = 0.0
    for grade in set(grades):
        group = [i for i, y in enumerate(grades) if y == grade]
        below = sum((exps[i] for i, y in enumerate(grades) if y < grade), torch.zeros((), dtype=torch.float64))
        mean_weight = sum(w[i] for i in group) / len(group)
        for placed in range(len(group)):
            choices = below + (1 - placed / len(group)) * sum(exps[i] for i in group)
            cost = cost + mean_weight * choices.log()
        cost = cost - sum(w[i] * scores[i] for i in group)
    return cost


def plackett_luce(scores, order):
    """Minus the log likelihood of one order of all items."""
    return sum(log_sum_exp([scores[j] for j in order[p:]]) - scores[i] for p, i in enumerate(order))


def orders_by_score(scores):
    values = [s.item() for s in scores]
    return [o for o in permutations(range(len(values))) if all(values[a] >= values[b] for a, b in zip(o, o[1:]))]  # noqa: B905, RUF007


def lambdaloss(scores, grades, weights, sigma=1.0, mu=10.0, k=None):
    """Weights of pairs on average over all orders of equal scores; distances between mean ranks, at least 1."""

    def discount(position):
        return 1 / math.log2(1 + position)

    def cut(position):
        return discount(position) if k is None or position <= k else 0.0

    w, orders = relative(weights), orders_by_score(scores)
    ranks = [[order.index(i) + 1 for i in range(len(scores))] for order in orders]
    mean_rank = [sum(r[i] for r in ranks) / len(ranks) for i in range(len(scores))]
    best_rank = [min(r[i] for r in ranks) for i in range(len(scores))]
    ideal = ideal_dcg([exp2(y) for y in grades], k)
    cost = 0.0
    for i, j in pairs(grades):
        swap = sum(abs(cut(r[i]) - cut(r[j])) for r in ranks) / len(ranks)
        if k is None or min(best_rank[i], best_rank[j]) <= k:
            distance = max(1.0, abs(mean_rank[i] - mean_rank[j]))
            swap += mu * (discount(distance) - discount(distance + 1))
        weight = w[i] * w[j] * abs(exp2(grades[i]) - exp2(grades[j])) / ideal * swap
        cost = cost + weight * softplus(-sigma * (scores[i] - scores[j])) / math.log(2)
    return cost


def approx_ndcg(scores, grades, weights, alpha=1.0):
    gains = [w * exp2(y) for w, y in zip(weights, grades, strict=True)]
    value = 0.0
    for i, s in enumerate(scores):
        rank = 1 + sum(torch.sigmoid(alpha * (other - s)) for j, other in enumerate(scores) if j != i)
        value = value + gains[i] / torch.log2(1 + rank)
    return 1 - value / ideal_dcg(gains)


def splitmix64(state):
    """Steele et al. 2014, in whole numbers modulo 2^64."""
    last = 2**64 - 1
    state = (state + 0x9E3779B97F4A7C15) & last
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & last
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & last
    return state ^ (state >> 31)


def counted_uniform(seed, *counters):
    state = splitmix64(seed % 2**64)
    for counter in counters:
        state = splitmix64((state + counter) % 2**64)
    return ((state >> 11) + 0.5) / 2**53


def gumbel_approx_ndcg(scores, grades, weights, list_id, step, samples=8, seed=0):
    best_first = sorted(range(len(scores)), key=lambda i: -scores[i].item())
    total = 0.0
    for sample in range(samples):
        noisy = list(scores)
        for place, i in enumerate(best_first):
            noisy[i] = scores[i] - math.log(-math.log(counted_uniform(seed, step, list_id, sample, place)))
        total = total + approx_ndcg(noisy, grades, weights)
    return total / samples


def neural_ndcg(scores, grades, weights, temperature=1.0, k=None, iterations=50, tolerance=1e-6):
    n = len(scores)
    gains = torch.tensor([w * exp2(y) for w, y in zip(weights, grades, strict=True)], dtype=torch.float64)
    rows = []
    for position in range(1, n + 1):
        apart = [sum((s - other).abs() for other in scores) for s in scores]
        logits = [((n + 1 - 2 * position) * s - a) / temperature for s, a in zip(scores, apart, strict=True)]
        rows.append(torch.stack(logits).softmax(0))
    matrix = torch.stack(rows)
    for _ in range(iterations):
        matrix = matrix / matrix.sum(0, keepdim=True)
        matrix = matrix / matrix.sum(1, keepdim=True)
        if max((matrix.sum(0) - 1).abs().max(), (matrix.sum(1) - 1).abs().max()) < tolerance:
            break
    ranked = matrix @ gains
    dcg = sum(ranked[p] / math.log2(p + 2) for p in range(min(n, k or n)))
    return 1 - dcg / ideal_dcg(gains.tolist(), k)
