"""The baselines by their definitions, one list at a time, in plain loops over 0-d tensors."""

from __future__ import annotations

import math

import torch

from oracles.pairs import one_sided_huber, piecewise_step, squared_hinge


def sigmoid_step(x, temperature):
    return torch.sigmoid(-x / temperature)


def mean(values):
    return sum(values) / len(values)


def split(scores, labels):
    return [i for i, y in enumerate(labels) if y], [i for i, y in enumerate(labels) if not y]


def smooth_ap(scores, labels, temperature):
    positives, _ = split(scores, labels)
    precisions = []
    for i in positives:
        among = 1 + sum(sigmoid_step(scores[i] - scores[j], temperature) for j in positives if j != i)
        everything = 1 + sum(sigmoid_step(scores[i] - s, temperature) for j, s in enumerate(scores) if j != i)
        precisions.append(among / everything)
    return 1 - mean(precisions)


def soap(scores, labels, ids, memory, margin, update_rate):
    """One step with a memory {id: (u+, u)}, which is changed. Value and the function whose gradient is taken."""
    positives, _ = split(scores, labels)
    value, step = 0.0, 0.0
    for i in positives:
        hits = sum(squared(scores[i] - scores[j], margin) for j in positives) / len(scores)
        everything = sum(squared(scores[i] - s, margin) for s in scores) / len(scores)
        new = (hits.item(), everything.item())
        if ids is not None:
            old = memory.get(ids[i], new)
            new = tuple((1 - update_rate) * a + update_rate * b for a, b in zip(old, new, strict=True))
            memory[ids[i]] = new
        value += (1 - new[0] / new[1]) / len(positives)
        step = step - (hits / new[1] - new[0] * everything / new[1] ** 2) / len(positives)
    return value, step


def squared(x, margin):
    """`oracles.pairs.squared_hinge` that keeps the graph where it is 0."""
    return squared_hinge(x, margin) + 0 * x


def histogram_ap(scores, labels, bins):
    """Triangular kernels over [-1, 1], best bin first."""
    width = 2 / (bins - 1)
    centres = [1 - b * width for b in range(bins)]
    share = [[torch.clamp(1 - (s - c).abs() / width, min=0) for c in centres] for s in scores]
    positives, _ = split(scores, labels)
    value, hits, seen = 0.0, 0.0, 0.0
    for b in range(bins):
        in_bin = sum(share[i][b] for i in positives)
        hits, seen = hits + in_bin, seen + sum(row[b] for row in share)
        if seen > 0:
            value = value + in_bin / len(positives) * hits / seen
    return 1 - value


def fast_ap(scores, labels, intervals):
    """Histograms of the squared distances 2 - 2s of unit vectors, as the paper draws them."""
    width = 4 / intervals
    positives, negatives = split(scores, labels)
    value, hits, misses = 0.0, 0.0, 0.0
    for b in range(intervals + 1):
        pulses = [torch.clamp(1 - (2 - 2 * s - b * width).abs() / width, min=0) for s in scores]
        in_bin = sum(pulses[i] for i in positives)
        hits, misses = hits + in_bin, misses + sum(pulses[j] for j in negatives)
        if hits + misses > 0:
            value = value + in_bin * hits / (hits + misses)
    return 1 - value / len(positives)


def mean_rank(scores, i, among):
    higher = sum(scores[j] > scores[i] for j in among)
    tied = sum(scores[j] == scores[i] for j in among)
    return higher + (tied + 1) / 2


def blackbox_ap(scores, labels, strength, margin):
    """Value and gradient, from numbers."""
    positives, _ = split(scores, labels)
    n, everyone = len(scores), range(len(scores))
    shifted = [s - margin / 2 if y else s + margin / 2 for s, y in zip(scores, labels, strict=True)]
    ranks = [mean_rank(shifted, i, everyone) / n for i in everyone]
    hits = {i: mean_rank(shifted, i, positives) / n for i in positives}
    value = mean([1 - hits[i] / ranks[i] for i in positives])
    moved = list(shifted)
    for i in positives:
        moved[i] += strength * hits[i] / ranks[i] ** 2 / len(positives)
    gradient = [-(ranks[i] - mean_rank(moved, i, everyone) / n) / strength for i in everyone]
    return value, gradient


def ap_loss(scores, labels, delta):
    """Value and error-driven update, from numbers: gradient -sum_j L_ij of positives, +sum_i L_ij of negatives."""
    positives, negatives = split(scores, labels)
    value, gradient = 0.0, [0.0] * len(scores)
    for i in positives:
        rank = 1 + sum(piecewise_step(scores[i] - s, delta) for j, s in enumerate(scores) if j != i)
        for j in negatives:
            cost = piecewise_step(scores[i] - scores[j], delta) / rank / len(positives)
            value, gradient[i], gradient[j] = value + cost, gradient[i] - cost, gradient[j] + cost
    return value, gradient


def pairwise_auroc(scores, labels, surrogate, tau):
    positives, negatives = split(scores, labels)
    of_pair = sigmoid_step if surrogate == "sigmoid" else lambda x, tau: one_sided_huber(x, tau) + 0 * x
    return mean([of_pair(scores[i] - scores[j], tau) for i in positives for j in negatives])


def cross_entropy(score, label):
    probability = torch.sigmoid(score)
    return -torch.log(probability if label else 1 - probability)


def focal(scores, labels, gamma, alpha):
    items = []
    for s, y in zip(scores, labels, strict=True):
        right = torch.sigmoid(s) if y else 1 - torch.sigmoid(s)
        items.append((alpha if y else 1 - alpha) * (1 - right) ** gamma * -torch.log(right))
    return mean(items)


def ldam(scores, labels, max_margin, scale, counts):
    """The softmax over two classes with logits +-s/2 and the margin taken off that of the true class."""
    items = []
    for s, y in zip(scores, labels, strict=True):
        logits = [-s / 2, s / 2]
        logits[y] = logits[y] - max_margin * (min(counts) / counts[y]) ** 0.25
        weights = [torch.exp(scale * logit) for logit in logits]
        items.append(-torch.log(weights[y] / sum(weights)))
    return mean(items)


def class_balanced(scores, labels, beta, counts):
    weights = [(1 - beta) / (1 - beta ** counts[y]) if beta < 1 else 1 / counts[y] for y in labels]
    costs = [cross_entropy(s, y) for s, y in zip(scores, labels, strict=True)]
    return sum(w * c for w, c in zip(weights, costs, strict=True)) / math.fsum(weights)


def alrp(scores, labels, errors, delta):
    """Value, update of the scores and balanced gradient of the errors, from numbers."""
    positives, negatives = split(scores, labels)
    n = len(positives)
    value, placed = 0.0, 0.0
    update, of_errors = [0.0] * len(scores), [0.0] * len(scores)
    for i in positives:
        above = {j: piecewise_step(scores[i] - scores[j], delta) for j in negatives}
        among = {k: 1.0 if k == i else piecewise_step(scores[i] - scores[k], delta) for k in positives}
        rank = sum(above.values()) + sum(among.values())
        missed = sum(errors[k] * share for k, share in among.items())
        cost = (sum(above.values()) + missed) / rank
        value, placed = value + cost / n, placed + missed / rank / n
        for k, share in among.items():
            of_errors[k] += share / rank / n
        for j, wrong in above.items():
            if wrong:
                moved = (cost - errors[i] / rank) * wrong / sum(above.values()) / n
                update[i], update[j] = update[i] - moved, update[j] + moved
    balance = value / placed if placed else value / 2.2250738585072014e-308
    return value, update, [balance * slope for slope in of_errors]


def distributional_ranking(scores, labels, positive_temperature, negative_temperature, margin, sharpness):
    """Qian et al., CVPR 2020: logistic loss of P- - P+ + margin, with expectations under tilted distributions."""
    p = [1 / (1 + (-s).exp()) for s in scores]
    positives, negatives = split(scores, labels)
    tilt = {i: (-p[i] / positive_temperature).exp() for i in positives}
    low = sum(tilt[i] * p[i] for i in positives) / sum(tilt.values())
    tilt = {j: (p[j] / negative_temperature).exp() for j in negatives}
    high = sum(tilt[j] * p[j] for j in negatives) / sum(tilt.values())
    return (1 + (sharpness * (high - low + margin)).exp()).log() / sharpness


def sodeep(scores, labels, sorter):
    """Engilberge et al., CVPR 2019: the mean over the positives of the sorter's rank, item by item."""
    centre = mean(scores)
    variance = mean([(s - centre) ** 2 for s in scores])
    spread = variance.sqrt() if variance > 0 else 1
    z = [(s - centre) / spread for s in scores]
    named = {name: weight.double() for name, weight in sorter.state_dict().items()}
    widths = (-named["log_slopes"]).exp()
    curve = mean([1 / (1 + (-(x - named["thresholds"]) / widths).exp()) for x in z])
    ranks = []
    for i in split(scores, labels)[0]:
        hidden = torch.tanh(named["hidden.weight"][:, 0] * z[i] + named["hidden.bias"])
        logits = named["output.weight"] @ hidden + named["output.bias"]
        ranks.append((logits.exp() / logits.exp().sum() * curve).sum())
    return mean(ranks)
