"""NDCGRanker by default: trees beside its networks, mixed by queries that they did not learn from."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import clone
from torch import from_numpy
from torch.nn.functional import log_softmax

from rankwise.models.mixing import fit_list_mix
from rankwise.sklearn import NDCGRanker

pytestmark = pytest.mark.usefixtures("few_trees")
QUERIES, LENGTH = 60, 12


def small(**options):
    settings = {"members": 3, "max_iter": 40, "hidden_layer_sizes": (8,), "k": 5, "random_state": 0}
    return NDCGRanker(**{**settings, **options})


def steps(seed=0):
    """Return rows whose relevance is a step of two features and their product, which trees learn from few rows."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(QUERIES * LENGTH, 5))
    qid = np.repeat(np.arange(QUERIES), LENGTH)
    y = ((X[:, 0] > 0.5) & (X[:, 1] > 0)).astype(int) + ((X[:, 0] > 0.5) & (X[:, 2] > 1))
    return X, y, qid


def test_learners_and_their_weights_are_told():
    X, y, qid = steps()
    model = small().fit(X, y, qid=qid)
    assert [entry["learner"] for entry in model.learners_] == [
        "networks",
        "linear",
        "histogram boosting",
        "extra trees",
    ]
    assert sum(entry["weight"] for entry in model.learners_) == pytest.approx(1)
    assert min(entry["weight"] for entry in model.learners_) >= 0
    assert all(0 < entry["ndcg@5"] <= 1 for entry in model.learners_)
    other, labels, ids = steps(1)
    assert model.score(other, labels, qid=ids) > small(model="network").fit(X, y, qid=qid).score(other, labels, qid=ids)


def test_scores_are_the_sum_of_the_learners():
    X, y, qid = steps()
    model = small().fit(X, y, qid=qid)
    portfolio, networks = model._portfolio, model._member_scores(X).mean(0)[:, 0]
    others = [portfolio._scaled(X) @ portfolio._linear.mean(0)]
    others += [bag.member_scores(portfolio._table(X)).mean(0)[:, 0] for bag in portfolio._bags]
    factors = portfolio.mix.factors.numpy()
    np.testing.assert_allclose(model.predict(X), factors @ np.stack([networks, *others]), rtol=1e-10, atol=1e-12)


def test_members_learn_nothing_from_the_queries_that_judge_them():
    X, y, qid = steps()
    # A column that is the label itself in training rows only misleads what is judged on those rows.
    noise = np.random.default_rng(0).permutation(y)
    model = small(members=5).fit(X, noise, qid=qid)
    # Nothing can be learned: scores of training rows would reach .9, those of rows left out cannot.
    assert max(entry["ndcg@5"] for entry in model.learners_) < 0.7


def test_frames_pickles_clones_and_weights():
    X, y, qid = steps()
    frame = pd.DataFrame(X, columns=list("abcde"))
    frame["colour"] = np.where(y > 0, "red", "blue")
    frame.loc[::7, "colour"] = None
    frame.loc[::5, "b"] = np.nan
    model = small().fit(frame, y, qid=qid)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(model.predict(frame), again.predict(frame))
    np.testing.assert_array_equal(model.predict(frame), clone(model).fit(frame, y, qid=qid).predict(frame))
    assert model.score(frame, y, qid=qid) > 0.9
    keep = np.arange(len(y)) % 4 > 0
    weighted = small().fit(X, y, qid=qid, sample_weight=keep.astype(float))
    without = small().fit(X[keep], y[keep], qid=qid[keep])
    np.testing.assert_array_equal(weighted.predict(X), without.predict(X))


def test_sparse_tables_and_single_queries_get_networks_only():
    X, y, qid = steps()
    assert not hasattr(small().fit(sparse.csr_array(X), y, qid=qid), "learners_")
    assert not hasattr(small().fit(X, y, qid=np.zeros(len(y))), "learners_")


def test_more_queries_later_are_for_networks_only():
    X, y, qid = steps()
    with pytest.raises(AttributeError) as error:
        small().partial_fit(X, y, qid=qid)
    assert "model='network'" in str(error.value.__cause__)
    model = small(model="network").fit(X, y, qid=qid)
    assert model.partial_fit(X, y, qid=qid).n_queries_ == 2 * QUERIES
    with pytest.raises(ValueError, match="model: unknown word 'trees'"):
        small(model="trees").fit(X, y, qid=qid)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), count=st.integers(1, 4), scale=st.floats(1e-3, 1e3))
def test_factors_are_the_least_of_their_cost(seed, count, scale):
    random = np.random.default_rng(seed)
    queries = from_numpy(random.integers(0, 8, size=90))
    gains = from_numpy(np.maximum(0, random.normal(size=90)))
    scores = from_numpy(random.normal(size=(count, 90)) + gains.numpy())
    mix = fit_list_mix(scores, gains, queries)
    assert float(mix.shares.sum()) == pytest.approx(1)

    def cost(factors):
        total = 0.0
        spreads = []
        for own in scores:
            lists = [own[queries == query] for query in queries.unique()]
            spreads.append(np.sqrt(np.mean([float(each.var(correction=0)) for each in lists if len(each) > 1])))
        weights = factors.numpy() * np.array(spreads)
        for query in queries.unique():
            rows = queries == query
            share = gains[rows] / gains[rows].sum() if gains[rows].sum() > 0 else 0 * gains[rows]
            total -= float((share * log_softmax(factors @ scores[:, rows], 0)).sum())
        return total + 10 * float(((weights - 1 / count) ** 2).sum())

    least = cost(mix.factors)
    for entry in range(count):
        for change in (0.98, 1.02):
            factors = mix.factors.clone()
            factors[entry] *= change
            assert cost(factors) >= least - 1e-9
    # The scale of the scores of a learner says nothing.
    again = fit_list_mix(scores * scale, gains, queries)
    np.testing.assert_allclose(again.shares, mix.shares, atol=1e-4)
