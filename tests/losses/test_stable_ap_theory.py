"""What the paper proves about stable AP (METHODS 2.4): the chain of Theorem 1, its factor, and bounded differences."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from oracles import stable_ap as oracle
from oracles.auprc import average_precision
from rankwise.losses import AUPRCLoss, StableAPLoss

CASES, TAUS = 20_000, (0.05, 0.3, 1.0)


def random_lists(tau_index):
    """A third of 20,000 lists of 2 to 20 items on [-1, 1]; about half of them on a coarse grid, so full of ties."""
    generator = torch.Generator().manual_seed(tau_index)
    lists = CASES // len(TAUS) + 1
    size = torch.randint(2, 21, (lists, 1), generator=generator)
    mask = torch.arange(20) < size
    share = torch.rand(lists, 1, generator=generator)
    labels = (torch.rand(lists, 20, generator=generator) < share).long()
    labels[:, 0], labels[:, 1] = 1, 0
    scores = torch.rand(lists, 20, generator=generator, dtype=torch.float64) * 2 - 1 + 0.3 * labels
    grid = torch.randint(1, 6, (lists, 1), generator=generator)
    scores = torch.where(torch.rand(lists, 1, generator=generator) < 0.5, (scores * grid).round() / grid, scores)
    return scores.clamp(-1, 1), labels, mask


@pytest.mark.parametrize("number", range(len(TAUS)))
def test_theorem_1_bounds_one_minus_average_precision(number):
    """1 - AP <= mean of rho l_i / (r_i + rho l_i) <= (q / 2) h(x): no violation in 20,000 cases over the three tau."""
    tau = TAUS[number]
    scores, labels, mask = random_lists(number)
    loss = StableAPLoss("batch", weighting="rank", tau=tau, eps=1e-3, link="none", reduction="none")
    values = loss(scores, labels, mask=mask)
    worst = 0.0
    for value, row, kind, real in zip(values.tolist(), scores, labels, mask, strict=True):
        positives = row[real & (kind == 1)].tolist()
        negatives = row[real & (kind == 0)].tolist()
        rho, bound = len(negatives) / len(positives), oracle.largest(2.0, tau)
        ranks = oracle.ranks(positives)
        middle = 0.0
        for p, r in zip(positives, ranks, strict=True):
            odds = oracle.inner([p], negatives, [1.0], rho, tau) / r
            middle += odds / (1 + odds) / len(positives)
        weights = [oracle.weight_by_rank(r, rho, bound) for r in ranks]
        mean_weight = sum(weights) / len(weights)
        factor = oracle.bound_factor(rho, bound)
        assert value == pytest.approx(oracle.outer(oracle.inner(positives, negatives, weights, rho, tau), 1e-3))
        risk = 1 - average_precision(positives, negatives)
        assert risk <= middle + 1e-12
        assert middle <= factor / 2 * value + 1e-12
        assert 1 - 1e-12 <= mean_weight <= factor / 2 + 1e-12
        worst = max(worst, risk / (factor / 2 * value))
    # The bound is not vacuous: some list comes near it.
    assert 0.5 < worst <= 1


def moved_by_one_example(loss, scores, labels):
    """The most that the loss changes when one example is replaced by another of its kind, over chosen replacements.

    The extremes are what moves a ranking loss most: the best and worst of either kind, put at either end.
    """
    base = loss(scores, labels)
    most = 0.0
    for kind in (0, 1):
        own = (labels == kind).nonzero()[:, 0]
        for place in (own[scores[own].argmax()], own[scores[own].argmin()]):
            for end in (-1.0, 0.0, 1.0):
                changed = scores.clone()
                changed[place] = end
                most = max(most, abs((loss(changed, labels) - base).item()))
    return most


def slope(changes, sizes):
    return float(np.polyfit(np.log(sizes), np.log(changes), 1)[0])


SIZES = (100, 600, 3_600)


def overlapping(size):
    """A tenth positives, which overlap with the negatives."""
    generator = torch.Generator().manual_seed(size)
    labels = (torch.arange(size) % 10 == 0).long()
    return torch.tanh(0.4 * torch.randn(size, generator=generator, dtype=torch.float64) + 0.5 * labels), labels


def agreeing(size):
    """Half positives, all of the same score, well above the negatives: a perfect ranking."""
    labels = (torch.arange(size) % 2 == 0).long()
    return torch.where(labels == 1, 0.2, -0.9).double(), labels


@pytest.mark.parametrize("rho", ["batch", 0.1])
def test_one_example_moves_the_loss_by_one_over_n(rho):
    """With the default margins, eps and weights; mu is the batch's own mean, so it moves as well."""
    changes = [
        moved_by_one_example(StableAPLoss(rho, update_rate=1.0, link="none"), *overlapping(size)) for size in SIZES
    ]
    assert -1.15 < slope(changes, SIZES) < -0.85, changes


def test_one_example_can_overturn_the_plain_surrogate_whatever_n():
    """The same lists, the same replacements: the plain smooth AP jumps by O(1), stable AP moves by O(1/n)."""
    plain = [
        moved_by_one_example(AUPRCLoss("batch", recall="batch", tau=1.0, link="none"), *agreeing(n)) for n in SIZES
    ]
    stable = [
        moved_by_one_example(StableAPLoss("batch", tau=1.0, eps=1.0, a=1.0, t=1.0, update_rate=1.0), *agreeing(n))
        for n in SIZES
    ]
    assert min(plain) > 0.5, plain
    assert abs(slope(plain, SIZES)) < 0.05, plain
    assert -1.15 < slope(stable, SIZES) < -0.85, stable
