"""Objectives for boosted trees: gradients of the loss, positive second derivatives, every way of being called."""

from __future__ import annotations

import pickle
from itertools import pairwise

import lightgbm
import numpy as np
import pytest
import torch
from sklearn.datasets import make_classification

from rankwise.boosting import Objective, objective
from rankwise.losses import LOSSES, AUPRCLoss, create_loss
from rankwise.metrics import average_precision, ndcg

RANDOM = np.random.default_rng(0)
SCORES = RANDOM.normal(size=60)
LABELS = (RANDOM.random(60) < 0.3).astype(int)
SIZES = np.array([10, 25, 5, 20])
QUIET = {"verbosity": -1, "num_threads": 1, "seed": 0, "deterministic": True}


class LikeDMatrix:
    """What XGBoost passes to a native objective: empty arrays for what is not there, bounds instead of sizes."""

    def __init__(self, labels, weights=(), bounds=()):
        self.labels, self.weights, self.bounds = labels, np.asarray(weights), np.asarray(bounds, dtype=np.uint32)

    def get_label(self):
        return self.labels

    def get_weight(self):
        return self.weights

    def get_uint_info(self, name):
        assert name == "group_ptr"
        return self.bounds


@pytest.mark.parametrize("record", [each for each in LOSSES if each.inputs == "scores"], ids=lambda record: record.name)
def test_every_loss_gives_its_own_direction_and_positive_curvature(record):
    options = {"k": 3} if record.name in ("top-k-ndcg", "pap", "precision-at-k", "greedy-top-k") else {}
    made = objective(record.name, log_loss=0.0, **options)
    gradient, hessian = made(LABELS, SCORES, None, SIZES)
    scores = torch.tensor(SCORES, requires_grad=True)
    queries = torch.from_numpy(np.repeat(np.arange(4), SIZES))
    made.loss.reduction = "none"
    values = made.loss(scores, torch.from_numpy(LABELS), query_ids=queries)
    by_relevant = record.labels == "binary" or record.name in ("listnet", "softmax", "listwise-cross-entropy")
    weights = np.add.reduceat(LABELS if by_relevant else np.ones(60), [0, 10, 35, 40])
    (values * torch.from_numpy(weights)).nansum().backward()
    np.testing.assert_allclose(gradient, scores.grad.numpy(), rtol=1e-9, atol=1e-12)
    assert np.isfinite(hessian).all()
    assert (hessian > 0).all()


def floored(curvature):
    return curvature + 0.1 * curvature.mean()


def test_the_curvature_of_song_is_that_of_the_ranks_under_the_tangent_of_the_discount():
    grades = RANDOM.integers(0, 3, 60)
    relevant = torch.from_numpy(grades > 0).nonzero()[:, 0]

    def ranks(scores):
        return (1 + scores[None] - scores[relevant, None]).clamp_min(0).square().sum(1)

    scores = torch.tensor(SCORES)
    of_ranks = ranks(scores).requires_grad_()
    gains = 2.0 ** torch.from_numpy(grades)[relevant] - 1
    ideal = (gains.sort(descending=True).values / torch.log2(torch.arange(len(gains), dtype=torch.float64) + 2)).sum()
    (tangent,) = torch.autograd.grad(-(gains / torch.log2(1 + of_ranks)).sum() / ideal, of_ranks)
    curvature = torch.autograd.functional.hessian(lambda s: (60 * tangent.abs() * ranks(s)).sum(), scores).diagonal()
    np.testing.assert_allclose(objective("song")(grades, SCORES)[1], floored(curvature.numpy()), rtol=1e-9)


@pytest.mark.parametrize("name", ["listnet", "softmax", "solc"])
def test_the_curvature_of_a_softmax_is_that_of_its_logarithm(name):
    shares = np.exp(SCORES) / np.exp(SCORES).sum()
    expected = floored(LABELS.sum() * shares * (1 - shares))
    np.testing.assert_allclose(objective(name)(LABELS, SCORES)[1], expected, rtol=1e-9)


def test_other_rows_are_laid_out_anew():
    made = objective("song")
    made(LABELS, SCORES, None, SIZES)
    labels = LABELS.copy()
    for given in (
        (1 - labels, SCORES, None, SIZES),
        (labels, SCORES, SCORES**2, SIZES),
        (labels, SCORES, None, [30, 30]),
    ):
        for left, right in zip(made(*given), objective("song")(*given), strict=True):
            np.testing.assert_array_equal(left, right)


def test_nothing_is_remembered_between_rounds():
    made = objective("soprc", recall="quantiles", link="scale")
    before = made(LABELS, SCORES)
    made(LABELS, -5 * SCORES)
    for old, new in zip(before, made(LABELS, SCORES), strict=True):
        np.testing.assert_array_equal(old, new)


def test_the_loss_given_is_not_changed():
    loss = AUPRCLoss()
    Objective(loss)(LABELS, SCORES)
    assert loss.training
    assert not any(len(table) for table in loss.modules() if type(table).__name__ == "IdTable")


def test_a_leaf_moves_by_at_most_the_step():
    gradient, hessian = objective("soprc", step=0.5, log_loss=0)(LABELS, SCORES)
    for leaf in (LABELS == 1, LABELS == 0, np.arange(60) < 20):
        assert abs(gradient[leaf].sum() / hessian[leaf].sum()) <= 0.5
    pure = LABELS == 1
    assert -gradient[pure].sum() / hessian[pure].sum() > 0.4


def test_groups_are_lists_of_their_own():
    together, _ = objective("song")(LABELS, SCORES, None, SIZES)
    ends = np.cumsum(SIZES)
    for start, end in pairwise([0, *ends]):
        alone, _ = objective("song")(LABELS[start:end], SCORES[start:end])
        np.testing.assert_allclose(together[start:end], alone, rtol=1e-9, atol=1e-12)


def test_all_forms_of_call_agree():
    weights = RANDOM.random(60)
    made = objective("song")
    expected = made(LABELS, SCORES, weights, SIZES)
    dataset = lightgbm.Dataset(SCORES[:, None], LABELS, weight=weights, group=SIZES).construct()
    matrix = LikeDMatrix(LABELS, weights, [0, *np.cumsum(SIZES)])
    keywords = made(LABELS, SCORES, sample_weight=weights, group=SIZES)
    for found in (made(SCORES, dataset), made(SCORES, matrix), keywords):
        for left, right in zip(expected, found, strict=True):
            np.testing.assert_allclose(left, right, rtol=1e-6)
    plain = made(LABELS, SCORES)
    for left, right in zip(plain, made(SCORES, LikeDMatrix(LABELS)), strict=True):
        np.testing.assert_array_equal(left, right)


def test_weight_zero_is_absence():
    keep = np.arange(60) % 3 > 0
    weighted, _ = objective("soprc")(LABELS, SCORES, 3.0 * keep)
    without, _ = objective("soprc")(LABELS[keep], SCORES[keep])
    assert not weighted[~keep].any()
    np.testing.assert_allclose(weighted[keep], without, atol=1e-9)


def test_the_log_loss_is_added_from_the_log_odds_of_the_data_on():
    plain, flat = objective("soprc", log_loss=0)(LABELS, SCORES)
    both, curved = objective("soprc", log_loss=2)(LABELS, SCORES)
    offset = np.log((LABELS.sum() + 1) / ((1 - LABELS).sum() + 1))
    logits = torch.tensor(SCORES + offset, requires_grad=True)
    loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, torch.tensor(LABELS * 1.0), reduction="sum")
    (slope,) = torch.autograd.grad(loss, logits, create_graph=True)
    (curvature,) = torch.autograd.grad(slope.sum(), logits)
    np.testing.assert_allclose(both - plain, 2 * slope.detach().numpy(), atol=1e-12)
    np.testing.assert_allclose(curved - flat, 2 * curvature.numpy(), atol=1e-12)


def test_a_won_list_gives_no_gradient_and_a_usable_curvature():
    gradient, hessian = objective("soprc", log_loss=0)(np.array([1, 0, 0]), np.array([9.0, 0.0, -1.0]))
    assert not gradient.any()
    assert (hessian > 0).all()


@pytest.mark.parametrize("loss", ["soprc", "stable-ap", "ce"])
def test_trees_learn_to_rank_positives_first(loss):
    X, y = make_classification(1500, 8, n_informative=5, weights=[0.9], flip_y=0, random_state=0)
    model = lightgbm.LGBMClassifier(objective=objective(loss), n_estimators=40, **QUIET).fit(X[:1000], y[:1000])
    scores = model.predict(X[1000:], raw_score=True)
    assert average_precision(scores, y[1000:]).item() > 0.75


def test_trees_learn_to_rank_each_query():
    random = np.random.default_rng(1)
    X = random.normal(size=(2000, 6))
    X[:, 5] = np.repeat(random.normal(size=100) * 10, 20)
    y = np.clip(np.round(X[:, 0] + 0.5 * X[:, 1] + 0.3 * random.normal(size=2000)), 0, 3)
    queries, half = np.repeat(np.arange(100), 20), 1000
    model = lightgbm.LGBMRanker(objective=objective("song"), n_estimators=30, **QUIET)
    model.fit(X[:half], y[:half], group=[20] * 50)
    found = ndcg(model.predict(X[half:]), y[half:], k=5, query_ids=queries[half:]).item()
    chance = ndcg(random.normal(size=1000), y[half:], k=5, query_ids=queries[half:]).item()
    assert found > 0.85 > chance + 0.1


def test_it_can_be_pickled():
    made = pickle.loads(pickle.dumps(objective("soprc")))
    for left, right in zip(made(LABELS, SCORES), objective("soprc")(LABELS, SCORES), strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda: objective("soprk"), ValueError, "did you mean 'soprc'"),
        (lambda: objective("soprc", taux=1), ValueError, "has no option 'taux'; did you mean 'tau'"),
        (lambda: objective(create_loss("soprc"), tau=1), TypeError, "options: expected none"),
        (lambda: Objective("soprc"), TypeError, "loss: expected a list loss"),
        (lambda: objective("soprc", step=0), ValueError, "step: expected a finite number > 0"),
        (lambda: objective("song", log_loss=1), ValueError, "log_loss: expected 0 with a loss of grades"),
        (lambda: objective("soprc")(LABELS, SCORES[:5]), ValueError, "scores: expected"),
        (lambda: objective("soprc")(LABELS, SCORES * np.nan), ValueError, "scores: expected finite"),
        (lambda: objective("song")(LABELS, SCORES, None, [3, 4]), ValueError, "group: expected sizes of sum 60"),
        (lambda: objective("soprc")(LABELS + 1, SCORES), ValueError, "labels: expected 0 or 1"),
    ],
)
def test_bad_input_is_named(call, error, words):
    with pytest.raises(error, match=words):
        call()
