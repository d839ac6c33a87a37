"""Networks beside logistic regressions: the parts against scikit-learn, the folds, the sum, and its state."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

import rankwise as rw
from rankwise.data import Part, TableSchema, put_in_folds
from rankwise.models import StackedScorer
from rankwise.models.bins import PiecewiseLinear
from rankwise.models.stacked import LEARNERS, Ramps, fit_logistic, scale_of
from rankwise.problems import Tabular
from rankwise.training import Interrupted


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


def fitted(folds, count=400):
    features, labels = rows(count)
    model = StackedScorer(5, hidden=(8,), members=3).eval()
    model.scaling.fit(features.float())
    model.fit(features.float(), labels, folds, regularisation=10.0)
    return model, features.float(), labels


def test_the_sum_is_that_of_the_mean_members_and_training_sees_the_networks_alone():
    torch.manual_seed(0)
    model, features, labels = fitted(torch.arange(400) % 3)
    networks = model.train()(features)
    assert networks.shape == (400, 6)
    scores = model.eval().member_scores(features)
    negatives = networks[labels == 0].detach()
    middle = negatives.quantile(0.5, 0, interpolation="lower")
    unit = (networks - middle) / (negatives.quantile(0.9, 0, interpolation="lower") - middle)
    torch.testing.assert_close(scores[..., 0], unit[:, :3])
    torch.testing.assert_close(scores[..., 1], unit[:, 3:])
    torch.testing.assert_close(model(features), scores[..., :2].mean((1, 2)))  # nothing is mixed yet
    factors = torch.tensor([0.5, 0.0, 2.0, 1.0, 3.0, 0.25, 1.5])
    model.mix(factors, -1.5)
    torch.testing.assert_close(model(features), scores.mean(1) @ factors - 1.5)


def test_a_member_learns_nothing_from_its_fold():
    folds = torch.arange(400) % 3
    model, features, labels = fitted(folds)
    other = StackedScorer(5, hidden=(8,), members=3).eval()
    other.load_state_dict(model.state_dict())
    # Other labels in fold 1 change the regressions of all members but 1.
    other.fit(features, torch.where(folds == 1, 1 - labels, labels), folds, regularisation=10.0)
    for member in range(3):
        same = torch.allclose(model.linear[member], other.linear[member], atol=3e-3)
        assert same == (member == 1)


def test_the_scale_of_members_is_that_of_their_negatives():
    scores = torch.cat([torch.arange(11.0), torch.tensor([1e6])])[:, None] * torch.tensor([1.0, -2.0])
    centre, spread = scale_of(scores, torch.arange(12) == 11)
    assert centre.tolist() == [5.0, -10.0]
    assert spread.tolist() == [4.0, 8.0]
    assert scale_of(torch.zeros(5, 1), torch.arange(5) == 0)[1].tolist() == [1.0]
    assert scale_of(torch.tensor([[0.0]] * 19 + [[1.0]]), torch.zeros(20, dtype=torch.bool))[1].item() > 0


def test_without_folds_members_learn_from_all_rows():
    model, features, labels = fitted(None)
    assert torch.equal(model.linear[0], model.linear[2])
    scaled = model._scale(features).double()
    expected = fit_logistic(scaled, labels > 0, torch.ones(400), regularisation=10.0)
    torch.testing.assert_close(model.linear[0, 0, [*range(5), -1]].double(), expected, atol=1e-5, rtol=1e-5)


def test_a_regression_that_begins_elsewhere_ends_at_the_same_place():
    features, labels = rows()
    options = {"weights": torch.ones(400), "regularisation": 1.0}
    first = fit_logistic(features, labels > 0, **options)
    again = fit_logistic(features, labels > 0, **options, start=torch.randn(6, dtype=torch.float64))
    moving = torch.arange(6) != 2  # a constant and the intercept share their part
    torch.testing.assert_close(again[moving][:-1], first[moving][:-1], atol=1e-3, rtol=1e-3)


def test_networks_of_a_fold_learn_nothing_from_it():
    part = put_in_folds(Part(*(each.float() for each in rows(60))), 3, seed=0)
    problem = Tabular(model={"ensemble": {"folds": 3}}, batches={"size": 60})
    torch.manual_seed(0)
    model = problem.build_model(TableSchema.of(part))
    batch = part.__getitems__(range(60))
    for member in range(3):
        gradients = []
        for labels in (batch.labels, torch.where(batch.folds == member, 1 - batch.labels, batch.labels)):
            loss = problem.build_loss(TableSchema.of(part), part, steps=1)
            model.zero_grad()
            problem.training_step(model, loss, batch._replace(labels=labels)).backward()
            gradients.append([weight.grad.clone() for weight in model.network.parameters()])
        for first, second in zip(*gradients, strict=True):
            changed = [not torch.equal(first[each], second[each]) for each in range(6)]
            assert changed == [each != member for each in range(3)] * 2


def test_scores_of_rows_in_folds_are_those_of_the_member_that_left_them_out():
    folds = torch.arange(400) % 3
    model, features, labels = fitted(folds)
    model.mix(torch.tensor([0.5, 0.0, 2.0, 1.0, 3.0, 0.25, 1.5]), -1.5)
    part = Part(features, labels, folds=folds)
    problem = Tabular()
    by_member = model.mixed(model.member_scores(features))
    torch.testing.assert_close(problem.predict(model, part), by_member[torch.arange(400), folds])
    torch.testing.assert_close(problem.predict(model, replace(part, folds=None)), by_member.mean(1))


def train_default(problem, count=600):
    features, labels = rows(count)
    return rw.train(problem, train=(features.numpy(), labels.numpy())), features.float().numpy()


def test_the_default_of_tables_is_chosen_out_of_fold_and_is_the_same_every_time(tmp_path):
    problem = Tabular(budget={"steps": 20}, evaluation={"every": 10})
    run, source = train_default(problem)
    assert isinstance(run.model, StackedScorer)
    shares = run.record["settings"]["shares"]
    assert set(shares) == set(LEARNERS)
    assert min(shares.values()) >= 0
    torch.testing.assert_close(run.model.factors, torch.tensor(run.record["settings"]["factors"]))
    # All rows but those of the test part are learned from, once.
    assert len(run.part("train")) == 480
    assert run.part("validation") is run.part("train")
    assert "refit" not in run.record
    assert run.finished
    assert run.unseen == "test"
    run.save(tmp_path / "run")
    opened = rw.load_run(tmp_path / "run")
    assert opened.finished
    assert torch.equal(opened.predict(source).outputs, run.predict(source).outputs)
    # The relation is linear: regressions must carry networks of 20 steps.
    alone, _ = train_default(problem.changed(model={"ensemble": None}, refit=False))
    assert run.test.means["ap"] > alone.test.means["ap"] - 0.05


def test_a_validation_part_that_is_given_stays_apart_and_is_refitted():
    (X, y), (other, labels) = rows(300), rows(200, seed=1)
    problem = Tabular(budget={"steps": 20}, evaluation={"every": 10})
    run = rw.train(problem, train=(X.numpy(), y.numpy()), validation=(other.numpy(), labels.numpy()))
    assert len(run.part("validation")) == 200
    assert run.part("validation").folds is None
    assert run.record["refit"]["steps"] == run.record["refit"]["chosen_step"]
    without, _ = train_default(problem.changed(refit=False), 300)
    assert "refit" not in without.record
    assert (len(without.part("train")), len(without.part("validation"))) == (180, 60)


def test_a_run_with_folds_that_was_stopped_goes_on_to_the_same_weights(tmp_path):
    features, labels = rows(300)
    data = {"train": (features.numpy(), labels.numpy())}
    problem = Tabular(budget={"steps": 24}, evaluation={"every": 4}, checkpoints={"every": 3}, batches={"size": 64})
    expected = rw.train(problem, **data, out=tmp_path / "whole")

    class Stopper:
        def begins(self, seed, steps, done): ...
        def says(self, text): ...
        def reads(self, path, share): ...
        def evaluation(self, step, metrics): ...
        def step(self, step):
            if step.number == 7:
                os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted):
        rw.train(problem, **data, out=tmp_path / "run", watcher=Stopper())
    assert not rw.load_run(tmp_path / "run").finished
    run = rw.train(problem, **data, out=tmp_path / "run", resume=True)
    for name, weight in expected.model.state_dict().items():
        assert torch.equal(weight, run.model.state_dict()[name]), name
    assert run.record["settings"] == expected.record["settings"]


def test_wide_tables_are_left_to_one_network():
    features = torch.randn(60, 700)
    labels = (features[:, 0] > 0.5).long()
    run = rw.train(Tabular(budget={"steps": 2}), train=(features.numpy(), labels.numpy()))
    assert not isinstance(run.model, StackedScorer)
    assert run.record["settings"] == {}
