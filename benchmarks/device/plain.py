"""Losses in plain torch, all pairs at once: what one would write for an accelerator, to count kernels beside ours.

They have fixed shapes, check nothing, and keep their state in a dense table by index.
"""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn.functional import normalize, softplus

from benchmarks.device.cases import all_grades, binary_lists, one_list, sampled_lists, vectors, whole_lists

__all__ = ["PLAIN"]


def huber(x, tau):
    return torch.where(x < 0, 1 - 2 * x / tau, (1 - x / tau).clamp_min(0).square())


def gains_of(labels, scores):
    return torch.exp2(labels.to(scores.dtype)) - 1


def discounts_of(scores):
    positions = torch.arange(2, scores.shape[1] + 2, device=scores.device, dtype=scores.dtype)
    return 1 / torch.log2(positions)


def ideal_of(gains, discounts, k=None):
    return (gains.sort(1, descending=True).values * discounts)[:, :k].sum(1)


class SOPRC(nn.Module):
    """SOPRC of one list, with running quantiles in a buffer."""

    def __init__(self, quantiles=100, tau=0.1, tau_recall=0.001, odds=9.0, rate=0.1):
        super().__init__()
        self.register_buffer("quantiles", torch.zeros(quantiles))
        self.register_buffer("seen", torch.zeros(()))
        self.tau, self.tau_recall, self.odds, self.rate = tau, tau_recall, odds, rate

    def forward(self, scores, labels):
        positive = (labels == 1).to(scores.dtype)
        negative, count, width = 1 - positive, positive.sum(), len(self.quantiles)
        x = scores[:, None] - scores[None, :]
        false = (huber(x, self.tau) * negative).sum(1) / negative.sum().clamp_min(1)
        with torch.no_grad():
            ascending = scores.masked_fill(labels != 1, torch.inf).sort().values
            t = (torch.arange(width, device=scores.device) + 0.5) * count / width
            observed = ascending[torch.minimum(t.floor(), count - 1).clamp_min(0).long()]
            moved = torch.where(self.seen > 0, self.quantiles.lerp(observed, self.rate), observed)
            self.quantiles.copy_(moved)
            self.seen.fill_(1)
            above = (self.quantiles[None] - scores[:, None]).clamp_min(0) / (2 * self.tau_recall)
            recall = 1 / (width + 1) + torch.tanh(above).mean(1) * (width / (width + 1))
        odds = self.odds * false / recall
        return (odds / (1 + odds) * positive).sum() / count.clamp_min(1)


class SONG(nn.Module):
    """SONG of whole lists."""

    def forward(self, scores, labels):
        gains = gains_of(labels, scores)
        ranks = (1 - (scores[:, :, None] - scores[:, None, :])).clamp_min(0).square().sum(2)
        ideal = ideal_of(gains, discounts_of(scores)).clamp_min(1e-10)
        return (1 - (gains / torch.log2(1 + ranks)).sum(1) / ideal).mean()


class KSONG(nn.Module):
    """K-SONG of whole lists, with the threshold of the top k by Newton's method."""

    def __init__(self, k=10, temperature=0.5, tau=0.01, steps=8):
        super().__init__()
        self.k, self.temperature, self.tau, self.steps = k, temperature, tau, steps

    def forward(self, scores, labels):
        gains = gains_of(labels, scores)
        ranks = (1 - (scores[:, :, None] - scores[:, None, :])).clamp_min(0).square().sum(2)
        ideal = ideal_of(gains, discounts_of(scores), self.k).clamp_min(1e-10)
        selected = torch.sigmoid((scores.detach() - self.threshold(scores)) / self.temperature)
        return (1 - (gains * selected / torch.log2(1 + ranks)).sum(1) / ideal).mean()

    @torch.no_grad()
    def threshold(self, scores):
        """Find where the mean of sigmoids is (k + 1/2) / L, (Q, 1); bisect where a Newton step leaves the bounds."""
        level = (self.k + 0.5) / scores.shape[1]
        value = scores.topk(self.k + 1, 1).values[:, -1:]
        low, high = value - 10 * self.tau, value + 10 * self.tau
        for _ in range(self.steps):
            above = torch.sigmoid((scores - value) / self.tau)
            slope = level - above.mean(1, keepdim=True)
            curvature = (above * (1 - above)).mean(1, keepdim=True) / self.tau
            low, high = torch.where(slope < 0, value, low), torch.where(slope < 0, high, value)
            following = value - slope / curvature
            value = torch.where((following >= low) & (following <= high), following, (low + high) / 2)
        return value


class PAp(nn.Module):
    """The ramp loss of pAp@k: the k best positives against the k best negatives."""

    def __init__(self, k=10):
        super().__init__()
        self.k = k

    def forward(self, scores, labels):
        positive = labels == 1
        top = scores.masked_fill(positive, -torch.inf).topk(self.k, 1).values
        best = scores.masked_fill(~positive, -torch.inf).topk(self.k, 1).values
        count = positive.sum(1).clamp_max(self.k)
        counted = torch.arange(self.k, device=scores.device) < count[:, None]
        hinge = (1 + top[:, None, :] - best[:, :, None]).clamp_min(0).sum(2)
        return (torch.where(counted, hinge, 0).sum(1) / (self.k * count)).mean()


class StableAP(nn.Module):
    """Stable AP of one list, with the running spread of the scores and the running mean of the positives in buffers."""

    def __init__(self, tau=0.3, eps=0.1, a=0.1, t=2.0, rate=0.01, spread_rate=0.1):
        super().__init__()
        for name in ("spread", "mean", "seen"):
            self.register_buffer(name, torch.zeros(()))
        self.tau, self.eps, self.a, self.t, self.rate, self.spread_rate = tau, eps, a, t, rate, spread_rate

    def forward(self, scores, labels):
        positive = (labels == 1).to(scores.dtype)
        negative, share = 1 - positive, positive / positive.sum()
        with torch.no_grad():
            spread, mean = scores.std(correction=0).clamp_min(1), (scores * share).sum()
            self.spread.copy_(torch.where(self.seen > 0, self.spread.lerp(spread, self.spread_rate), spread))
        scores = scores / self.spread
        with torch.no_grad():
            # The mean is kept in units of the raw scores.
            self.mean.copy_(torch.where(self.seen > 0, self.mean.lerp(mean, self.rate), mean))
            self.seen.fill_(1)
            distance = huber(scores - self.mean / self.spread, self.tau) / (1 + 4 / self.tau)
            weight = ((1 + self.a) / (distance.clamp_max(1) + self.a)) ** self.t
        false = (huber(scores[:, None] - scores[None], self.tau) * negative).sum(1) / negative.sum()
        x = (share * weight * false).sum()
        return torch.sqrt(x / (1 + x) + self.eps**2)


class SampledSONG(nn.Module):
    """SONG of sampled lists, with the totals of each query and one average for each query and item by index."""

    def __init__(self, grades, rate=0.1):
        super().__init__()
        gains = gains_of(grades, torch.ones(()))
        self.register_buffer("averages", torch.zeros(grades.shape))
        self.register_buffer("relevant", (grades > 0).sum(1).float())
        self.register_buffer("ideal", ideal_of(gains, discounts_of(gains)))
        self.size, self.rate = grades.shape[1], rate

    def forward(self, scores, labels, queries, items):
        # How many items of the whole list a relevant and an irrelevant one of the sample represent.
        chosen, drawn, relevant = labels > 0, labels.shape[1], self.relevant[queries]
        count, own = chosen.sum(1), self.size / drawn
        share = (relevant - 1) / (self.size - 1)
        of_relevant = (self.size - own) * share / (count - 1)
        of_irrelevant = (self.size - own) * (1 - share) / (drawn - count)
        represented = torch.where(chosen, of_relevant[:, None], of_irrelevant[:, None])
        squares = (1 - (scores[:, :, None] - scores[:, None, :])).clamp_min(0).square()
        observed = ((squares * represented[:, None]).sum(2) + own - represented).clamp_min(1)
        with torch.no_grad():
            average = self.averages[queries[:, None], items]
            average = torch.where(average == 0, observed, average.lerp(observed, self.rate))
            self.averages[queries[:, None], items] = average
        ranks = average + observed - observed.detach()
        gains = gains_of(labels, scores) * (relevant / count)[:, None]
        return (1 - (gains / torch.log2(1 + ranks)).sum(1) / self.ideal[queries]).mean()


class SmoothAP(nn.Module):
    """Smooth-AP of one list, with the running spread of the scores in a buffer."""

    def __init__(self, temperature=0.01, rate=0.1):
        super().__init__()
        self.register_buffer("spread", torch.ones(()))
        self.register_buffer("seen", torch.zeros(()))
        self.temperature, self.rate = temperature, rate

    def forward(self, scores, labels):
        with torch.no_grad():
            observed = scores.std(correction=0).clamp_min(1)
            self.spread.copy_(torch.where(self.seen > 0, self.spread.lerp(observed, self.rate), observed))
            self.seen.fill_(1)
        scores = scores / self.spread
        positive = (labels == 1).to(scores.dtype)
        others = 1 - torch.eye(len(scores), device=scores.device)
        steps = torch.sigmoid((scores[None] - scores[:, None]) / self.temperature) * others
        precision = (1 + (steps * positive).sum(1)) / (1 + steps.sum(1))
        return 1 - (precision * positive).sum() / positive.sum()


class RetrievalSOPRC(nn.Module):
    """SOPRC of cosines, with the recall of the batch."""

    def forward(self, embeddings, classes):
        units = normalize(embeddings)
        scores = units @ units.T
        same = classes[:, None] == classes
        itself = torch.eye(len(classes), device=classes.device, dtype=torch.bool)
        positive, negative = (same & ~itself).to(scores.dtype), (~same).to(scores.dtype)
        x = scores[:, :, None] - scores[:, None, :]
        false = (huber(x, 0.1) * negative[:, None]).sum(2) / negative.sum(1, keepdim=True).clamp_min(1)
        count = positive.sum(1, keepdim=True).clamp_min(1)
        with torch.no_grad():
            recall = ((torch.tanh((-x).clamp_min(0) / 0.002) * positive[:, None]).sum(2) + 1) / count
        odds = 9 * false / recall
        return ((odds / (1 + odds) * positive).sum(1) / count[:, 0]).mean()


class ApproxNDCG(nn.Module):
    def forward(self, scores, labels):
        gains = gains_of(labels, scores)
        ranks = 0.5 + torch.sigmoid(scores[:, None, :] - scores[:, :, None]).sum(2)
        ideal = ideal_of(gains, discounts_of(scores)).clamp_min(1e-10)
        return (1 - (gains / torch.log2(1 + ranks)).sum(1) / ideal).mean()


class LambdaRank(nn.Module):
    def forward(self, scores, labels):
        gains, discounts = gains_of(labels, scores), discounts_of(scores)
        with torch.no_grad():
            discount = discounts[scores.argsort(1, descending=True).argsort(1)]
            gap = (gains[:, :, None] - gains[:, None]).abs() * (discount[:, :, None] - discount[:, None]).abs()
            weights = gap / ideal_of(gains, discounts)[:, None, None] * (labels[:, :, None] > labels[:, None])
        logistic = softplus(-(scores[:, :, None] - scores[:, None]))
        return (weights * logistic).sum((1, 2)).mean() / math.log(2)


def _lists_by_index(seed):
    (scores, labels), ids = sampled_lists(seed)
    return (scores, labels, ids["query_ids"], ids["sample_ids"]), {}


# The plain version of a case: how it is made, and its batches.
PLAIN = {
    "SOPRC, 64 + 960": (SOPRC, one_list),
    "SONG, 64 x 100": (SONG, whole_lists),
    "SONG, sampled 64 x 100": (lambda: SampledSONG(all_grades()), _lists_by_index),
    "K-SONG, 64 x 100": (KSONG, whole_lists),
    "pAp@10, 32 x 200": (PAp, binary_lists),
    "stable AP, 64 + 960": (StableAP, one_list),
    "retrieval SOPRC, 224": (RetrievalSOPRC, vectors),
    "LambdaRank, 256 x 310": (LambdaRank, lambda seed: whole_lists(seed, lists=256, items=310)),
    "ApproxNDCG, 64 x 100": (ApproxNDCG, whole_lists),
    "Smooth-AP, 64 + 960": (SmoothAP, one_list),
}
