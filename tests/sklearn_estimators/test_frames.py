"""Frames as people have them: categories, dates, booleans, missing cells, ids and constants, pandas and polars."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest

from rankwise.data.schema import DataNote
from rankwise.sklearn import APClassifier, NDCGRanker

ROWS = 300


def columns():
    """What is looked for depends on a category, a boolean, a date and whether the size is missing."""
    random = np.random.default_rng(0)
    shape = random.choice(["flat", "oval", "round"], ROWS)
    smooth = random.random(ROWS) < 0.5
    days = random.integers(0, 1000, ROWS)
    size = random.normal(size=ROWS)
    size[random.random(ROWS) < 0.2] = np.nan
    evidence = 2.0 * (shape == "oval") + smooth + (days > 600) + 1.5 * np.isnan(size)
    table = {
        "row id": np.arange(ROWS),
        "shape": shape,
        "smooth": smooth,
        "seen": np.datetime64("2020-01-01") + days.astype("timedelta64[D]"),
        "size": size,
        "unit": np.full(ROWS, "mm"),
    }
    return table, (evidence + 0.3 * random.normal(size=ROWS) > 3).astype(int)


def as_pandas(table):
    return pd.DataFrame(table)


def as_polars(table):
    return pl.DataFrame(table, nan_to_null=True)


def small(**options):
    return APClassifier(**{"model": "linear", "max_iter": 100, "random_state": 0, **options})


@pytest.mark.usefixtures("few_trees")
@pytest.mark.parametrize("frame", [as_pandas, as_polars])
@pytest.mark.parametrize("model", ["linear", "auto"])
def test_columns_of_every_kind_are_learned_from(frame, model):
    table, y = columns()
    X = frame(table)
    options = {"model": model, "hidden_layer_sizes": (8,), "max_iter": 60}
    with pytest.warns(DataNote, match="left out"):
        classifier = small(**options).fit(X[:200], y[:200])
    assert set(classifier.columns_left_out_) == {"row id", "unit"}
    assert list(classifier.feature_names_in_) == list(table)
    assert classifier.n_features_in_ == len(table)
    # Dates and missing cells tell something that the other columns do not.
    others = X[["shape", "smooth"]]
    assert classifier.score(X[200:], y[200:]) > small(**options).fit(others[:200], y[:200]).score(others[200:], y[200:])
    again = pickle.loads(pickle.dumps(classifier))
    np.testing.assert_array_equal(again.decision_function(X), classifier.decision_function(X))


@pytest.mark.filterwarnings("ignore::rankwise.data.schema.DataNote")
def test_pandas_and_polars_give_the_same():
    table, y = columns()
    scores = [small().fit(frame(table), y).decision_function(frame(table)) for frame in (as_pandas, as_polars)]
    np.testing.assert_allclose(*scores, rtol=1e-9)


def test_whole_numbers_are_categories_where_pandas_says_so():
    code = np.arange(ROWS) % 5
    y = np.isin(code, [0, 3]).astype(int)
    plain, said = (pd.DataFrame({"code": column}) for column in (code, pd.Categorical(code)))
    assert small().fit(said, y).score(said, y) == pytest.approx(1)
    assert small().fit(plain, y).score(plain, y) < 0.9


@pytest.mark.filterwarnings("ignore::rankwise.data.schema.DataNote")
def test_rows_without_any_value_are_scored():
    X = pd.DataFrame({"size": np.r_[np.nan, np.arange(1.0, 60)]})
    y = (np.arange(60) > 40).astype(int)
    assert small().fit(X, y).decision_function(X).shape == (60,)


def test_unknown_categories_are_reported_and_scored():
    table, y = columns()
    X = as_pandas({"shape": table["shape"], "smooth": table["smooth"]})
    model = small().fit(X, y)
    strange = X.assign(shape="square")
    with pytest.warns(DataNote, match="did not have, such as 'square'"):
        assert np.isfinite(model.decision_function(strange)).all()


def test_an_array_after_a_frame_is_taken_by_position():
    random = np.random.default_rng(0)
    X = pd.DataFrame(random.normal(size=(80, 3)), columns=["a", "b", "c"])
    y = (X["a"] + X["b"] > 1).to_numpy().astype(int)
    model = small().fit(X, y)
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        np.testing.assert_array_equal(model.predict(X.to_numpy()), model.predict(X))


def test_other_columns_are_refused():
    table, y = columns()
    X = as_pandas(table)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataNote)
        model = small().fit(X, y)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(X.rename(columns={"size": "width"}))
    with pytest.raises(ValueError, match="at least one column that tells something"):
        small().fit(X[["unit"]], y)


@pytest.mark.filterwarnings("ignore::rankwise.data.schema.DataNote")
@pytest.mark.parametrize("frame", [as_pandas, as_polars])
def test_rankers_take_the_same_frames(frame):
    table, y = columns()
    qid = np.arange(ROWS) // 10
    ranker = NDCGRanker(k=5, hidden_layer_sizes=(), max_iter=100, random_state=0).fit(frame(table), y, qid=qid)
    assert ranker.score(frame(table), y, qid=qid) > 0.85
    assert set(ranker.columns_left_out_) == {"row id", "unit"}
