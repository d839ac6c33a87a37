"""A network beside logistic regressions: the parts against scikit-learn, the sum, and its state."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

import rankwise as rw
from rankwise.models import MLPScorer, StackedScorer
from rankwise.models.bins import PiecewiseLinear
from rankwise.models.stacked import Ramps, fit_logistic
from rankwise.problems import Tabular


def rows(count=400, width=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(count, width, generator=generator, dtype=torch.float64)
    features[:, 1] = (features[:, 1] > 0).double()  # two values
    features[:, 2] = 3.0  # a constant
    labels = torch.rand(count, generator=generator) < torch.sigmoid(2 * features[:, 0] + features[:, 1] - 2)
    return features, labels.long()


@pytest.mark.parametrize("regularisation", [0.1, 10.0])
@pytest.mark.parametrize("balanced", [False, True])
def test_a_logistic_regression_is_that_of_scikit_learn(regularisation, balanced):
    features, labels = rows()
    counts = labels.bincount()
    weights = (len(labels) / (2 * counts.double()))[labels] if balanced else torch.ones(len(labels))
    ours = fit_logistic(features, labels > 0, weights, regularisation=regularisation)
    theirs = LogisticRegression(C=1 / regularisation, class_weight="balanced" if balanced else None, tol=1e-10)
    theirs.fit(features.numpy(), labels.numpy())
    expected = np.append(theirs.coef_[0], theirs.intercept_)
    np.testing.assert_allclose((features @ ours[:-1] + ours[-1]).numpy(), theirs.decision_function(features), atol=2e-3)
    moving = np.arange(6) != 2  # a constant and the intercept share their part
    np.testing.assert_allclose(ours.numpy()[moving][:-1], expected[moving][:-1], atol=2e-3)


def test_ramps_are_those_of_the_estimators_where_quantiles_differ():
    features, _ = rows()
    ours = Ramps(5, bins=8).double().fit(features)(features)
    theirs = PiecewiseLinear.fit(features[:, [0]].numpy(), bins=8)(features[:, [0]])
    torch.testing.assert_close(ours[:, :8], theirs)
    assert bool((ours[:, 16:24] == 0).all())  # the constant
    two = ours[:, 8:16]
    assert sorted(two.sum(1).unique().tolist()) == [0.0, 1.0]


def test_the_sum_is_that_of_the_members_and_training_sees_the_network_alone():
    features, labels = rows()
    features = features.float()
    model = StackedScorer(MLPScorer(5, hidden=(8,)), 5).eval()
    model.scaling.fit(features)
    network = model.network(model.scaling(features))
    torch.testing.assert_close(model(features), network)  # nothing is mixed yet
    model.fit(features, labels, regularisation=10.0)
    factors = torch.tensor([0.5, 0.0, 2.0, 1.0])
    model.mix(factors, -1.5)
    torch.testing.assert_close(model(features), factors @ model.member_scores(features) - 1.5)
    torch.testing.assert_close(model.train()(features), network)


def test_the_default_of_tables_chooses_and_refits_and_is_the_same_every_time(tmp_path):
    features, labels = rows(600)
    problem = Tabular(budget={"steps": 20}, evaluation={"every": 10})
    run = rw.train(problem, train=(features.numpy(), labels.numpy()))
    assert isinstance(run.model, StackedScorer)
    shares = run.record["settings"]["shares"]
    assert set(shares) == {"network", "linear", "ramps", "balanced ramps"}
    assert min(shares.values()) >= 0
    torch.testing.assert_close(run.model.factors, torch.tensor(run.record["settings"]["factors"]))
    run.save(tmp_path / "run")
    source = features.float().numpy()
    assert torch.equal(rw.load_run(tmp_path / "run").predict(source).outputs, run.predict(source).outputs)
    # The relation is linear: regressions must carry a network of 20 steps.
    alone = rw.train(
        problem.changed(model={"regressions": None}, refit=False), train=(features.numpy(), labels.numpy())
    )
    assert run.test.means["ap"] > alone.test.means["ap"] - 0.05


def test_wide_tables_are_left_to_the_network():
    features = torch.randn(60, 700)
    labels = (features[:, 0] > 0.5).long()
    run = rw.train(Tabular(budget={"steps": 2}), train=(features.numpy(), labels.numpy()))
    assert not isinstance(run.model, StackedScorer)
    assert run.record["settings"] == {}
