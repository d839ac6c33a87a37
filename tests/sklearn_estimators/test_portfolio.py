"""The default model of APClassifier: learners of different kinds, mixed by their scores of rows left out."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.special import expit
from sklearn.datasets import make_classification
from sklearn.metrics import average_precision_score

from rankwise.sklearn import APClassifier
from rankwise.sklearn.portfolio import Rows


def small(**options):
    return APClassifier(**{"max_iter": 20, "hidden_layer_sizes": (8,), "random_state": 0, **options})


@pytest.fixture(scope="module")
def rings():
    """Positives lie within a ring: no linear model finds them."""
    random = np.random.default_rng(0)
    X = random.normal(size=(900, 4))
    radius = np.hypot(X[:, 0], X[:, 1])
    return X, ((radius > 1.6) & (radius < 2.1)).astype(int)


def test_learners_that_rank_better_get_the_weight(rings):
    X, y = rings
    model = small().fit(X[:600], y[:600])
    weights = {found["learner"]: found["weight"] for found in model.learners_}
    quality = {found["learner"]: found["ap"] for found in model.learners_}
    assert quality["histogram boosting"] > 2 * quality["logistic regression"]
    assert weights["logistic regression"] < 0.05 * sum(weights.values())
    assert model.score(X[600:], y[600:]) > 0.6


def test_a_linear_table_is_ranked_about_as_well_as_by_the_best_learner():
    random = np.random.default_rng(0)
    X = random.normal(size=(1500, 5))
    y = random.random(1500) < expit(2 * X[:, 0] - 2 * X[:, 1] - 3)
    model = small().fit(X[:500], y[:500])
    truth = average_precision_score(y[500:], X[500:, 0] - X[500:, 1])
    assert model.score(X[500:], y[500:]) > truth - 0.08


def test_out_of_fold_quality_is_not_that_of_the_training_rows():
    random = np.random.default_rng(0)
    X, y = random.normal(size=(400, 20)), random.random(400) < 0.2
    model = small().fit(X, y)
    assert max(found["ap"] for found in model.learners_) < 0.4
    # Nothing to learn: all rows get about the same chance.
    chances = model.predict_proba(random.normal(size=(200, 20)))[:, 1]
    assert abs(chances.mean() - y.mean()) < 0.05
    assert chances.std() < 0.1


def test_sparse_tables_have_a_portfolio_too(rings):
    X, y = rings
    model = small().fit(sparse.csr_array(np.where(np.abs(X) > 0.5, X, 0)), y)
    names = [found["learner"] for found in model.learners_]
    assert "extra trees" in names
    assert "histogram boosting" not in names
    assert not any("bins" in name for name in names)
    assert np.isfinite(model.decision_function(sparse.csr_array(X))).all()


def test_scores_do_not_depend_on_the_rows_beside_them(rings, monkeypatch):
    X, y = rings
    monkeypatch.setattr("rankwise.sklearn.portfolio._CHUNK", 64)
    model = small(max_iter=4).fit(X[:200], y[:200])
    whole = model.decision_function(X)
    np.testing.assert_allclose(whole[100:107], model.decision_function(X[100:107]), rtol=1e-9, atol=1e-9)
    monkeypatch.undo()
    np.testing.assert_allclose(whole, model.decision_function(X), rtol=1e-9, atol=1e-9)


def test_very_long_tables_are_sampled_with_weights_that_make_up_for_it(monkeypatch):
    monkeypatch.setattr("rankwise.sklearn.portfolio._MOST_ROWS", 1_000)
    kinds = (np.arange(20_000) % 100 == 0).astype(np.intp)
    rows = Rows(kinds, np.ones(20_000), np.zeros((1, 20_000), dtype=bool), 2)
    chosen, weights = rows.learn_from(0, np.random.default_rng(0))
    assert 900 < len(chosen) < 1_100
    for kind in (0, 1):
        assert weights[kinds[chosen] == kind].sum() == pytest.approx((kinds == kind).sum(), rel=0.1)
    assert (kinds[chosen] == 1).sum() > 70


def test_classes_have_mixes_of_their_own():
    X, y = make_classification(600, 6, n_informative=5, n_redundant=0, n_classes=3, random_state=0)
    model = small().fit(X[:400], y[:400])
    assert len(model._portfolio.mixes) == 3
    np.testing.assert_allclose(model.predict_proba(X).sum(1), 1)
    assert model.score(X[400:], y[400:]) > 0.75


def test_more_rows_later_are_for_networks_only(rings):
    X, y = rings
    assert not hasattr(APClassifier(), "partial_fit")
    with pytest.raises(AttributeError) as error:
        APClassifier().partial_fit(X, y, classes=[0, 1])
    assert "model='network'" in str(error.value.__cause__)
    assert hasattr(APClassifier(model="linear").partial_fit(X, y, classes=[0, 1]), "classes_")


def test_linear_is_a_linear_model(rings):
    X, y = rings
    model = APClassifier(model="linear", max_iter=20, random_state=0).fit(X[:200], y[:200])
    middle = model._scores((X[:50] + X[50:100]) / 2 * 1e-3)
    ends = model._scores(np.r_[X[:50], X[50:100]] * 1e-3).reshape(2, 50, 1).mean(0)
    np.testing.assert_allclose(middle, ends, atol=1e-6)


@pytest.mark.parametrize("word", ["networks", "trees"])
def test_unknown_models_are_named(rings, word):
    with pytest.raises(ValueError, match=f"model: unknown word '{word}'"):
        APClassifier(model=word).fit(*rings)


def test_advice_says_how_exact_the_best_is_and_which_loss_did_better(rings):
    X, y = rings
    model = small().fit(X[:600], y[:600])
    exact, loss = model.advice_
    quality = {found["learner"]: found["ap"] for found in model.learners_}
    best = max(quality, key=quality.__getitem__)
    assert exact.startswith(f"{best}: out-of-fold AP {quality[best]:.3f}, on {y[:600].sum()} positive rows")
    ranking, entropy = quality["network, ranking loss"], quality["network, cross entropy"]
    winner = (
        "the ranking loss than with cross entropy" if ranking > entropy else "cross entropy than with the ranking loss"
    )
    assert f"with {winner}: AP {max(ranking, entropy):.3f} against {min(ranking, entropy):.3f}" in loss
