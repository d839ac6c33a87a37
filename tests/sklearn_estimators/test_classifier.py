"""APClassifier: scikit-learn's own contract, and the promises beyond it."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_iris, make_classification
from sklearn.metrics import average_precision_score, brier_score_loss
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from rankwise.losses import LOSSES, PriorSchedule
from rankwise.sklearn import APClassifier
from rankwise.sklearn.table import Table, scaler_of

MODELS = ("network", "auto")


def small(**options):
    settings = {"model": "network", "members": 2, "max_iter": 40, "hidden_layer_sizes": (8,), "random_state": 0}
    return APClassifier(**{**settings, **options})


@pytest.fixture(scope="module")
def rows():
    X, y = make_classification(500, 6, n_informative=4, weights=[0.85], flip_y=0.02, random_state=0)
    return X[:300], y[:300], X[300:], y[300:]


# The checks that ask for accuracy give networks the steps it takes; the defaults are checked below.
@pytest.mark.usefixtures("few_trees")
@parametrize_with_checks(
    [APClassifier(model=model, members=2, max_iter=8, hidden_layer_sizes=(8,)) for model in MODELS]
)
def test_scikit_learns_contract(estimator, check):
    asks_for_accuracy = check.func.__name__ in ("check_classifiers_train", "check_classifiers_classes")
    if asks_for_accuracy and estimator.model == "network":
        estimator.set_params(max_iter=100, hidden_layer_sizes=(16,))
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([APClassifier()])
def test_scikit_learns_contract_with_the_defaults(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def default_model():
    """The default model, and rows it has not seen."""
    X, y = make_classification(2000, 6, n_informative=4, weights=[0.85], flip_y=0.02, random_state=0)
    return APClassifier(random_state=0).fit(X[:250], y[:250]), X[250:], y[250:]


def test_it_ranks_better_than_chance_and_says_so(default_model):
    model, test_X, test_y = default_model
    score = model.score(test_X, test_y)
    assert score == pytest.approx(average_precision_score(test_y, model.decision_function(test_X)))
    assert score > 0.6 > 3 * test_y.mean()


def test_probabilities_are_calibrated(default_model):
    model, test_X, test_y = default_model
    chances = model.predict_proba(test_X)[:, 1]
    base_rate = test_y.mean()
    assert abs(chances.mean() - base_rate) < 0.05
    assert brier_score_loss(test_y, chances) < 0.7 * base_rate * (1 - base_rate)


@pytest.mark.usefixtures("few_trees")
@pytest.mark.parametrize("kind", MODELS)
def test_the_same_seed_gives_the_same_model(rows, kind):
    X, y, test_X, _ = rows
    first, second, other = (small(model=kind, random_state=seed, batch_size=64).fit(X, y) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.decision_function(test_X), second.decision_function(test_X))
    assert (first.decision_function(test_X) != other.decision_function(test_X)).any()


@pytest.mark.usefixtures("few_trees")
@pytest.mark.parametrize("kind", MODELS)
def test_a_weight_is_as_good_as_repetition_and_order_does_not_matter(rows, kind):
    X, y, test_X, _ = rows
    X, y = X[:60], y[:60]
    weights = np.random.default_rng(0).integers(0, 4, size=60)
    weighted = small(model=kind).fit(X, y, sample_weight=weights)
    order = np.random.default_rng(1).permutation(weights.sum())
    repeated = small(model=kind).fit(X.repeat(weights, axis=0)[order], y.repeat(weights)[order])
    np.testing.assert_allclose(
        weighted.decision_function(test_X), repeated.decision_function(test_X), rtol=1e-9, atol=1e-9
    )


def test_sample_weights_count_in_batches_too(rows):
    X, y, _, _ = rows
    turned = np.r_[y, 1 - y]
    weights = np.r_[np.full(len(y), 0.01), np.ones(len(y))]
    model = small(batch_size=64).fit(np.r_[X, X], turned, sample_weight=weights)
    assert model.score(X, 1 - y) > model.score(X, y) + 0.3


def test_sparse_rows_give_the_same_as_dense_ones_without_centring(rows):
    X, y, test_X, _ = rows
    X, test_X = (np.where(np.abs(part) > 1, part, 0) for part in (X, test_X))
    for batch_size in (64, 1000):
        model = small(batch_size=batch_size, max_iter=150, learning_rate=0.05).fit(sparse.csr_matrix(X), y)
        found = model.decision_function(sparse.csr_array(test_X))
        np.testing.assert_allclose(found, model.decision_function(sparse.csc_matrix(test_X)), rtol=1e-12)
        assert model.score(sparse.csr_matrix(X), y) > 0.4


def test_constant_and_huge_columns_do_no_harm(rows):
    X, y, _, _ = rows
    wide = np.c_[X * [1e6, 1, 1e-6, 1, 1, 1], np.full(len(X), 7.0)]
    assert np.isfinite(small().fit(wide, y).decision_function(wide)).all()
    # What the networks see of them is what they see of the plain ones, and nothing of the constant.
    seen, plain = (
        Table(part, scaler_of(part, np.ones(len(part))), torch.float64)[np.arange(len(part))] for part in (wide, X)
    )
    torch.testing.assert_close(seen[:, :6], plain, rtol=1e-9, atol=1e-9)
    assert not seen[:, 6].any()


@pytest.mark.parametrize("frame", [pd.DataFrame, lambda rows, columns: pl.DataFrame(rows, schema=columns)])
def test_frames_give_names_and_the_same_scores(rows, frame):
    X, y, test_X, _ = rows
    names = [f"column {number}" for number in range(6)]
    model = small().fit(frame(X, columns=names) if frame is pd.DataFrame else frame(X, names), y)
    assert list(model.feature_names_in_) == names
    assert model.n_features_in_ == 6
    test = frame(test_X, columns=names) if frame is pd.DataFrame else frame(test_X, names)
    np.testing.assert_array_equal(model.predict(test), small().fit(X, y).predict(test_X))


def test_many_classes_and_names(rows):
    X, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    model = small(max_iter=150).fit(X, names)
    assert model.decision_function(X).shape == (150, 3)
    np.testing.assert_allclose(model.predict_proba(X).sum(1), 1)
    assert (model.predict(X) == names).mean() > 0.9
    assert model.score(X, names) > 0.9


@pytest.mark.usefixtures("few_trees")
@pytest.mark.parametrize("kind", MODELS)
def test_pickled_and_cloned(rows, kind):
    X, y, test_X, _ = rows
    model = small(model=kind, max_iter=10).fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(model.predict_proba(test_X), again.predict_proba(test_X))
    fresh = clone(model)
    assert not hasattr(fresh, "classes_")
    np.testing.assert_array_equal(model.predict_proba(test_X), fresh.fit(X, y).predict_proba(test_X))


def test_in_pipelines_and_searches(rows):
    X, y, test_X, test_y = rows
    pipeline = make_pipeline(MinMaxScaler(), small())
    search = GridSearchCV(pipeline, {"apclassifier__hidden_layer_sizes": [(), (8,)]}, cv=2).fit(X, y)
    assert set(search.best_params_["apclassifier__hidden_layer_sizes"]) <= {8}
    expected = average_precision_score(test_y, search.decision_function(test_X))
    assert search.score(test_X, test_y) == pytest.approx(expected)


def test_partial_fit_goes_on_and_forgets_nothing():
    """Each part tells of one column and is constant in the other: the last one alone cannot teach both."""
    y = (np.arange(64) % 4 == 0).astype(int)
    told, nothing = 2 * y - 1 + 0.1 * np.random.default_rng(0).normal(size=64), np.zeros(64)
    parts = [np.c_[told, nothing], np.c_[nothing, told]]
    model = small(batch_size=32, learning_rate=0.1, hidden_layer_sizes=())
    for _ in range(12):
        for part in parts:
            model.partial_fit(part, y, classes=[0, 1])
    for part in parts:
        chances = model.predict_proba(part)[:, 1]
        assert chances[y == 1].min() > chances[y == 0].max()
        assert model.score(part, y) == pytest.approx(1)
    np.testing.assert_allclose(model._scaler.mean_, np.concatenate(parts).mean(0), rtol=1e-9)


def test_partial_fit_starts_from_the_fitted_weights(rows):
    X, y, _, _ = rows
    model = small(learning_rate=0.02, weight_decay=0.1).fit(X, y)
    before = [weight.detach().clone() for weight in model._network.model.parameters()]
    model.partial_fit(X[:32], y[:32])
    moved = [(now - then).abs() for now, then in zip(model._network.model.parameters(), before, strict=True)]
    # The first step of AdamW moves a weight by the learning rate at most, and shrinks it by the decay.
    for step, then in zip(moved, before, strict=True):
        assert bool((step <= 0.02 * (1 + 0.1 * then.abs()) + 1e-6).all())
    assert any(bool(step.any()) for step in moved)


def test_early_stopping_ends_before_the_budget(rows):
    X, y, _, _ = rows
    short = small(max_iter=800, learning_rate=0.05, n_iter_no_change=2).fit(X, y)
    assert short.history_[-1]["step"] < 800
    assert [look["step"] for look in short.history_[:2]] == [40, 80]


@pytest.mark.parametrize(
    "record",
    [each for each in LOSSES if each.labels == "binary" and each.inputs == "scores"],
    ids=lambda record: record.name,
)
def test_any_loss_of_binary_labels_will_do(rows, record):
    X, y, test_X, _ = rows
    options = {"k": 5} if record.name in ("pap", "precision-at-k", "greedy-top-k") else None
    model = small(loss=record.name, loss_options=options, max_iter=8).fit(X, y)
    assert np.isfinite(model.decision_function(test_X)).all()


def test_options_with_a_state_are_left_as_they_are(rows):
    X, y, _, _ = rows
    schedule = PriorSchedule(0.5, 0.1, 10)
    small(loss_options={"prior": schedule}).fit(X, y)
    assert int(schedule.step) == 0


@pytest.mark.parametrize(
    "options, error, words",
    [
        ({"loss": "soprk"}, ValueError, "did you mean 'soprc'"),
        ({"loss": "song"}, ValueError, "loss: expected a loss of binary labels, got 'song'"),
        ({"loss_options": {"taux": 1}}, ValueError, "has no option 'taux'; did you mean 'tau'"),
        ({"hidden_layer_sizes": 64}, TypeError, "hidden_layer_sizes: expected widths"),
        ({"hidden_layer_sizes": (0,)}, ValueError, "hidden_layer_sizes: expected a whole number"),
        ({"members": 0}, ValueError, "members: expected a whole number"),
        ({"max_iter": 2.5}, TypeError, "max_iter: expected a whole number"),
        ({"learning_rate": -1}, ValueError, "learning_rate: expected"),
        ({"validation_fraction": 1.0}, ValueError, "validation_fraction: expected"),
    ],
)
def test_bad_options_are_named(rows, options, error, words):
    with pytest.raises(error, match=words):
        small(**options).fit(*rows[:2])


def test_bad_rows_are_named(rows):
    X, y, _, _ = rows
    with pytest.raises(ValueError, match="at least two classes"):
        small().fit(X, np.zeros(len(y)))
    with pytest.raises(ValueError, match="at least one non-zero"):
        small().fit(X, y, sample_weight=np.zeros(len(y)))
    with pytest.raises(ValueError, match="classes: expected all classes"):
        small().partial_fit(X, y)
    with pytest.raises(ValueError, match=r"y: expected classes among \[0, 1\], got \[5\]"):
        small().partial_fit(X, np.full(len(y), 5), classes=[0, 1])


@pytest.mark.usefixtures("few_trees")
@pytest.mark.parametrize("kind", MODELS)
def test_no_warning_on_tiny_tables(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = small(model=kind).fit([[0.0], [1.0], [2.0]], [0, 0, 1])
    assert model.predict_proba([[5.0]]).shape == (1, 2)


@pytest.mark.parametrize("model", ["auto", "linear"])
def test_steps_are_counted_and_progress_is_printed(model, capsys):
    X, y = make_classification(200, weights=[0.8], random_state=0)
    silent = small(model=model, max_iter=20).fit(X, y)
    assert 1 <= silent.n_iter_ <= 20
    assert not capsys.readouterr().out
    small(model=model, max_iter=20, verbose=True).fit(X, y)
    assert capsys.readouterr().out.startswith("step 1: loss ")


def test_old_names_of_options_warn_and_set_the_new_ones():
    with pytest.warns(FutureWarning) as caught:
        model = APClassifier(hidden=(3,), max_steps=7, patience=2)
    assert (model.hidden_layer_sizes, model.max_iter, model.n_iter_no_change) == ((3,), 7, 2)
    assert len(caught) == 3
    assert not {"hidden", "max_steps", "patience"} & set(model.get_params())
