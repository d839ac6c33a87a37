"""Sigmoids and weighted sums of scores, against scipy's minima of the same functions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.metrics import average_precision_score

from rankwise.models import mixing
from rankwise.models.mixing import fit_mix, fit_sigmoid


def sample(rows=600, seed=0):
    random = np.random.default_rng(seed)
    truth = random.normal(size=rows)
    labels = random.random(rows) < expit(2 * truth - 2)
    scores = np.stack([truth + 0.5 * random.normal(size=rows), 7 * truth + 5 * random.normal(size=rows), -truth])
    return torch.from_numpy(scores), torch.from_numpy(labels), torch.from_numpy(random.random(rows) + 0.5)


def log_loss(logits, targets, weights):
    return float((weights * (np.logaddexp(0, logits) - targets * logits)).sum() / weights.sum())


@pytest.mark.parametrize("shift, scale", [(0, 1), (1e4, 1), (-3, 1e-4), (5, 1e5)])
def test_a_sigmoid_minimises_the_log_loss_whatever_the_unit_of_the_scores(shift, scale):
    scores, labels, weights = sample()
    own = scores[0]
    slope, intercept = fit_sigmoid(own * scale + shift, labels, weights)
    y, w = labels.numpy(), weights.numpy()
    targets = np.where(y, (w[y].sum() + 1) / (w[y].sum() + 2), 1 / (w[~y].sum() + 2))
    best = minimize(lambda at: log_loss(at[0] * own.numpy() + at[1], targets, w), np.zeros(2), tol=1e-12)
    reached = log_loss(slope * (own.numpy() * scale + shift) + intercept, targets, w)
    assert reached <= best.fun + 1e-6
    assert slope * scale == pytest.approx(best.x[0], rel=1e-4)


def test_a_sigmoid_fits_one_positive_far_from_all_others():
    """A slope of 1 per standard deviation would put it at 300, where the log loss is straight."""
    scores = torch.zeros(100_001)
    scores[-1] = 1
    slope, intercept = fit_sigmoid(scores, scores > 0)
    assert expit(slope + intercept) == pytest.approx(2 / 3, rel=1e-6)
    assert expit(intercept) == pytest.approx(1 / 100_002, rel=1e-3)


def test_a_sigmoid_keeps_the_order_of_useless_scores():
    scores, labels, weights = sample()
    slope, _ = fit_sigmoid(scores[2], labels, weights)
    assert 0 < slope < 0.01


def test_weights_of_two_count_a_row_twice():
    scores, labels, _ = sample(rows=80)
    twice = torch.arange(80) % 2 + 1
    repeated = torch.arange(80).repeat_interleave(twice)
    weighted = fit_sigmoid(scores[0], labels, twice)
    assert weighted == pytest.approx(fit_sigmoid(scores[0][repeated], labels[repeated]), rel=1e-4)


def test_mixing_weights_are_not_negative_and_follow_the_evidence():
    scores, labels, weights = sample(rows=4000)
    mix = fit_mix(scores, labels, weights)
    assert (mix.shares >= 0).all()
    assert mix.shares[:2].min() > 0.2
    assert mix.shares[2] < 0.05
    # Two noisy views of the same truth are better than one.
    alone = average_precision_score(labels, scores[0])
    assert average_precision_score(labels, mix(scores)) > alone + 0.02


@pytest.mark.parametrize("rows", [30, 600])
def test_mixing_weights_minimise_the_penalised_log_loss(rows):
    logits, labels, weights = sample(rows=rows)
    prior = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    shares, constant = mixing._fit_weights(logits, labels.double(), weights, prior)

    def penalised(at):
        mixed = at[:3] @ logits.numpy() + at[3]
        value = (weights.numpy() * (np.logaddexp(0, mixed) - labels.numpy() * mixed)).sum()
        return value + mixing._PULL * ((at[:3] - prior.numpy()) ** 2).sum()

    start, bounds = np.append(prior.numpy(), 0.0), [(0, None)] * 3 + [(None, None)]
    best = minimize(penalised, start, method="L-BFGS-B", bounds=bounds, tol=1e-12)
    assert (shares >= 0).all()
    assert penalised(np.append(shares.numpy(), constant)) <= best.fun + 1e-6 * abs(best.fun)


def test_the_same_seed_gives_the_same_mix():
    scores, labels, _ = sample()
    first, second = fit_mix(scores, labels, seed=3), fit_mix(scores, labels, seed=3)
    assert torch.equal(first.factors, second.factors)
    assert first.constant == second.constant


def test_the_order_of_the_rows_does_not_matter():
    scores, labels, weights = sample()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))
    first, second = fit_mix(scores, labels, weights), fit_mix(scores[:, order], labels[order], weights[order])
    torch.testing.assert_close(first.factors, second.factors, rtol=1e-6, atol=1e-9)
