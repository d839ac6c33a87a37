"""NDCGRanker and PApRanker: queries are kept together from fitting to scoring, in searches too."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold, GroupShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.fixes import parse_version

from rankwise.metrics import ndcg, pap
from rankwise.sklearn import NDCGRanker, PApRanker

QUERIES, LENGTH = 60, 15
RANKERS = [NDCGRanker, PApRanker]


def small(ranker=NDCGRanker, **options):
    settings = {
        "members": 2,
        "max_iter": 60,
        "learning_rate": 0.05,
        "hidden_layer_sizes": (),
        "k": 5,
        "random_state": 0,
    }
    if ranker is NDCGRanker:
        settings["model"] = "network"
    return ranker(**{**settings, **options})


@pytest.fixture(scope="module")
def rows():
    """Relevance within a query follows columns 0 and 1; column 5, the same for all rows of a query, says nothing."""
    random = np.random.default_rng(0)
    X = random.normal(size=(QUERIES * LENGTH, 6))
    qid = np.repeat(random.permutation(QUERIES) * 7 - 100, LENGTH)
    X[:, 5] = qid
    y = (X[:, 0] - X[:, 1] + 0.3 * random.normal(size=len(X)) > 1.5).astype(int)
    order = random.permutation(len(X))
    return X[order], y[order], qid[order]


@pytest.mark.parametrize("ranker", RANKERS)
def test_it_learns_to_rank_and_scores_by_its_metric(rows, ranker):
    X, y, qid = rows
    learn = qid % 2 == 0
    model = small(ranker).fit(X[learn], y[learn], qid=qid[learn])
    found = model.score(X[~learn], y[~learn], qid=qid[~learn])
    metric = {NDCGRanker: ndcg, PApRanker: pap}[ranker]
    expected = metric(model.predict(X[~learn]), y[~learn], k=5, query_ids=qid[~learn]).item()
    assert found == pytest.approx(expected)
    assert found > 0.85
    assert model.n_queries_ == len(np.unique(qid[learn]))


def test_grades_and_gain(rows):
    X, y, qid = rows
    grades = y + (X[:, 0] > 1)
    model = small(gain="linear").fit(X, grades, qid=qid)
    expected = ndcg(model.predict(X), grades, k=5, query_ids=qid, gain="linear").item()
    assert model.score(X, grades, qid=qid) == pytest.approx(expected)
    assert model._network.loss.gain == "linear"


def test_k_reaches_a_loss_that_takes_one():
    assert PApRanker(k=3)._make_loss().k == 3
    assert PApRanker(k=3, loss_options={"k": 4})._make_loss().k == 4


@pytest.mark.parametrize("loss", ["song", "k-song", "solc", "soprc", "pap"])
def test_any_loss_over_lists_will_do(rows, loss):
    X, y, qid = rows
    assert small(loss=loss).fit(X, y, qid=qid).score(X, y, qid=qid) > 0.8


def test_query_ids_may_be_words_in_any_order(rows):
    X, y, qid = rows
    words = np.array([f"query {number:04d}" for number in qid + 1000])
    numbers, named = (small().fit(X, y, qid=ids) for ids in (qid, words))
    np.testing.assert_array_equal(numbers.predict(X), named.predict(X))
    assert named.score(X, y, qid=words) == numbers.score(X, y, qid=pd.Series(qid))


def test_a_column_that_only_tells_queries_apart_is_no_help_in_held_out_queries(rows):
    X, y, qid = rows
    model = small(members=5, validation_fraction=0.2).fit(X, y, qid=qid)
    assert model.history_[-1]["held_out"] > 0.8


def test_sparse_rows_frames_weights_pickles_and_clones(rows):
    X, y, qid = rows
    weights = np.ones(len(y))
    frame = pd.DataFrame(X, columns=list("abcdef"))
    model = small().fit(frame, y, qid=qid, sample_weight=weights)
    assert list(model.feature_names_in_) == list("abcdef")
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(model.predict(frame), again.predict(frame))
    np.testing.assert_array_equal(model.predict(frame), clone(model).fit(frame, y, qid=qid).predict(frame))
    assert small().fit(sparse.csr_array(X), y, qid=qid).score(sparse.csr_array(X), y, qid=qid) > 0.8


def test_weight_zero_is_absence(rows):
    X, y, qid = rows
    keep = np.arange(len(y)) % 4 > 0
    weighted = small().fit(X, y, qid=qid, sample_weight=keep.astype(float))
    without = small().fit(X[keep], y[keep], qid=qid[keep])
    np.testing.assert_array_equal(weighted.predict(X), without.predict(X))


def test_partial_fit_query_by_query(rows):
    X, y, qid = rows
    model = small(learning_rate=0.05, batch_queries=4)
    for _ in range(3):
        for part in np.array_split(np.unique(qid), 6):
            chosen = np.isin(qid, part)
            model.partial_fit(X[chosen], y[chosen], qid=qid[chosen])
    assert model.score(X, y, qid=qid) > 0.8
    assert model.n_queries_ == 3 * QUERIES


def test_search_over_query_groups(rows):
    X, y, qid = rows
    with sklearn.config_context(enable_metadata_routing=True):
        search = GridSearchCV(small(), {"learning_rate": [1e-7, 0.05]}, cv=GroupKFold(3))
        search.fit(X, y, qid=qid, groups=qid)
    assert search.best_params_ == {"learning_rate": 0.05}
    # The scores are those of held-out queries: the same by hand.
    learn, test = next(GroupKFold(3).split(X, y, qid))
    by_hand = small(learning_rate=0.05).fit(X[learn], y[learn], qid=qid[learn])
    assert search.cv_results_["split0_test_score"][1] == by_hand.score(X[test], y[test], qid=qid[test])


@pytest.mark.skipif(
    parse_version(sklearn.__version__) < parse_version("1.8"), reason="needs scikit-learn 1.8 to pass qid on"
)
def test_search_through_a_pipeline(rows):
    X, y, qid = rows
    with sklearn.config_context(enable_metadata_routing=True):
        pipeline = make_pipeline(StandardScaler(), small())
        search = GridSearchCV(
            pipeline, {"ndcgranker__hidden_layer_sizes": [(), (4,)]}, cv=GroupShuffleSplit(1, random_state=0)
        )
        search.fit(X, y, qid=qid, groups=qid)
        assert search.score(X, y, qid=qid) > 0.8


def test_score_without_queries_says_what_to_do(rows):
    X, y, qid = rows
    model = small().fit(X, y, qid=qid)
    with pytest.raises(ValueError, match="enable_metadata_routing=True"):
        model.score(X, y)
    one = small().fit(X, y, qid=np.zeros(len(X)))
    assert 0 <= one.score(X, y) <= 1


@pytest.mark.parametrize(
    "change, words",
    [
        ({"y": lambda y: y - 1}, "labels: expected grades of 0 or more"),
        ({"qid": lambda qid: qid[:-1]}, "qid: expected one for each of the 900 rows, got 899"),
        ({"X": lambda X: X * np.nan}, "contains NaN"),
        ({"sample_weight": lambda y: -np.ones(900)}, "[Nn]egative"),
    ],
)
def test_bad_rows_are_named(rows, change, words):
    X, y, qid = rows
    given = {"X": X, "y": y, "qid": qid, "sample_weight": None}
    for name, bend in change.items():
        given[name] = bend(given[name])
    with pytest.raises(ValueError, match=words):
        small().fit(**given)


def test_bad_options_are_named(rows):
    X, y, qid = rows
    for options, words in (({"k": 0}, "k: expected"), ({"batch_queries": 0}, "batch_queries: expected")):
        with pytest.raises(ValueError, match=words):
            small(**options).fit(X, y, qid=qid)
    with pytest.raises(ValueError, match="expected 0 or 1"):
        small(PApRanker).fit(X, y + 1, qid=qid)


@pytest.mark.parametrize("ranker", [NDCGRanker, PApRanker])
def test_rankers_are_not_fitted_without_queries(rows, ranker):
    X, y, _ = rows
    for fit in (small(ranker).fit, small(ranker).partial_fit):
        with pytest.raises(ValueError, match=r"qid: expected the query of each row, got None; .*numpy.zeros\(900\)"):
            fit(X, y)
    assert small(ranker).fit(X, y, qid=np.zeros(len(X))).n_queries_ == 1
