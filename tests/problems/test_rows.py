"""Problems over rows of numbers: new models and losses, the batches they promise, metrics of `rankwise.metrics`."""

from __future__ import annotations

import pytest
import torch
from sklearn.metrics import average_precision_score
from torch import nn

from rankwise.data import Part, TableSchema
from rankwise.losses import AUPRCLoss
from rankwise.metrics import evaluate_retrieval
from rankwise.problems import Retrieval, Tabular
from workers.fitting import DIGITS, EIGHTS, digits, eights

SCHEMA = TableSchema.of(EIGHTS.train)


def test_batches_hold_the_promised_positives():
    problem = Tabular(batches={"size": 40, "positives": 5})
    counts = {(len(labels), int(labels.sum())) for _, labels, *_ in problem.train_loader(EIGHTS.train, seed=0)}
    assert counts == {(40, 5)}


@pytest.mark.parametrize(
    "positives, negatives, size, expected",
    [(100, 10_000, 256, 23), (5, 400, 256, 26), (200, 60, 256, 196), (1, 99, 20, 1)],
)
def test_batches_have_positives_by_the_root_of_their_number(positives, negatives, size, expected):
    labels = (torch.arange(positives + negatives) < positives).long()
    loader = Tabular(batches={"size": size}).train_loader(Part(torch.zeros(len(labels), 1), labels), seed=0)
    batch = next(iter(loader))
    assert len(batch.labels) == size
    assert int(batch.labels.sum()) == min(expected, positives)


def test_shuffled_batches_show_a_row_at_most_once_per_epoch():
    problem = Tabular(loss="cross-entropy", batches={"size": 64, "positives": "random"})
    batches = list(problem.train_loader(EIGHTS.train, seed=0))
    rows = torch.cat([features for features, *_ in batches])
    assert [len(labels) for _, labels, *_ in batches] == [64] * 9
    known = torch.unique(EIGHTS.train.features, dim=0, return_counts=True)[1].max()
    assert torch.unique(rows, dim=0, return_counts=True)[1].max() <= known


def test_retrieval_batches_hold_the_promised_classes():
    problem = Retrieval(batches={"classes": 4, "samples_per_class": 3})
    for _, labels, *_ in problem.train_loader(DIGITS.train, seed=0):
        assert sorted(torch.bincount(labels, minlength=10).tolist()) == [0] * 6 + [3] * 4


@pytest.mark.parametrize(
    "problem, part",
    [(eights("cross-entropy", positives=None), EIGHTS.train), (eights(), EIGHTS.train), (digits(), DIGITS.train)],
)
def test_the_seed_decides_the_batches(problem, part):
    first, again, other = (next(iter(problem.train_loader(part, seed)))[0] for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_tabular_metric_is_average_precision():
    problem = eights()
    model = problem.build_model(SCHEMA)
    expected = average_precision_score(EIGHTS.test.labels, problem.predict(model, EIGHTS.test))
    assert problem.evaluate(model, EIGHTS.test).means["ap"] == pytest.approx(expected, abs=1e-9)


def test_retrieval_metric_does_not_depend_on_the_length_of_vectors():
    features = DIGITS.test.features
    scaled = features * torch.linspace(0.1, 9, len(features))[:, None]
    expected = evaluate_retrieval(scaled, DIGITS.test.labels, ["map"], bootstrap=0).means["map"]
    assert digits().evaluate(nn.Identity(), DIGITS.test).means["map"] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("problem, split", [(eights(), EIGHTS), (digits(), DIGITS)], ids=["eights", "digits"])
def test_evaluation_leaves_the_mode_of_the_model_alone(problem, split):
    model = problem.build_model(SCHEMA).train()
    problem.evaluate(model, split.validation)
    assert model.training


def test_options_reach_the_loss_and_every_loss_is_new():
    problem = eights({"name": "soprc", "tau": 0.4})
    loss = problem.build_loss(SCHEMA, EIGHTS.train, steps=1)
    assert isinstance(loss, AUPRCLoss)
    assert loss.precision_surrogate.tau == 0.4
    assert problem.build_loss(SCHEMA, EIGHTS.train, steps=1) is not loss


def test_a_classifier_brings_weights_of_its_own():
    problem = Retrieval(loss="classifier", model={"dimensions": 8})
    loss = problem.build_loss(SCHEMA, DIGITS.train, steps=1)
    assert [tuple(weight.shape) for weight in loss.parameters()] == [(10, 8), (10,)]


@pytest.mark.parametrize("kind", [Tabular, Retrieval])
def test_an_unknown_loss_is_answered_with_the_nearest(kind):
    with pytest.raises(ValueError, match="did you mean 'soprc'"):
        kind(loss="sopr")


@pytest.mark.parametrize(
    "loss, message",
    [
        (
            {"name": "classifier", "temprature": 0.1},
            "classifier has no option 'temprature'; did you mean 'temperature'",
        ),
        ({"name": "classifier", "temperature": 0}, "temperature: expected"),
        ({"name": "classifier", "add": ["semi-variance"]}, "expected no losses added to a classifier"),
        ({"name": "soprc", "tua": 0.1}, "has no option 'tua'"),
    ],
)
def test_wrong_options_of_retrieval_losses_are_named(loss, message):
    with pytest.raises(ValueError, match=message):
        Retrieval(loss=loss)
