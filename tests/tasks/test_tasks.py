"""Tasks: fresh models and losses, the batches they promise, metrics that are those of `rankwise.metrics`."""

from __future__ import annotations

import pytest
import torch
from sklearn.metrics import average_precision_score
from torch import nn

from rankwise.data import load_digit_retrieval, load_eights
from rankwise.losses import AUPRCLoss
from rankwise.metrics import evaluate_retrieval
from rankwise.tasks import RetrievalTask, TabularTask

EIGHTS = load_eights(seed=0)
DIGITS = load_digit_retrieval(seed=0)


def test_batches_hold_the_promised_positives():
    task = TabularTask(EIGHTS, loss="soprc", batch_size=40, positives=5)
    counts = {(len(labels), int(labels.sum())) for _, labels, *_ in task.train_loader(seed=0)}
    assert counts == {(40, 5)}


def test_shuffled_batches_show_a_row_at_most_once_per_pass():
    task = TabularTask(EIGHTS, loss="cross-entropy", batch_size=64)
    batches = list(task.train_loader(seed=0))
    rows = torch.cat([features for features, *_ in batches])
    assert [len(labels) for _, labels, *_ in batches] == [64] * 9
    known = torch.unique(EIGHTS.train.features, dim=0, return_counts=True)[1].max()
    assert torch.unique(rows, dim=0, return_counts=True)[1].max() <= known


def test_retrieval_batches_hold_the_promised_classes():
    task = RetrievalTask(DIGITS, loss="soprc", classes=4, samples_per_class=3)
    for _, labels, *_ in task.train_loader(seed=0):
        assert sorted(torch.bincount(labels, minlength=10).tolist()) == [0] * 6 + [3] * 4


@pytest.mark.parametrize(
    "task",
    [
        TabularTask(EIGHTS, loss="cross-entropy"),
        TabularTask(EIGHTS, loss="soprc", positives=8),
        RetrievalTask(DIGITS, loss="soprc"),
    ],
)
def test_the_seed_decides_the_batches(task):
    first, again, other = (next(iter(task.train_loader(seed)))[0] for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_tabular_metric_is_average_precision():
    task = TabularTask(EIGHTS, loss="soprc")
    model = task.build_model()
    expected = average_precision_score(EIGHTS.test.labels, task.predict(model, "test"))
    assert task.evaluate(model, "test")["ap"] == pytest.approx(expected, abs=1e-9)


def test_retrieval_metric_does_not_depend_on_the_length_of_vectors():
    task = RetrievalTask(DIGITS, loss="soprc")
    features = DIGITS.test.features
    scaled = features * torch.linspace(0.1, 9, len(features))[:, None]
    expected = evaluate_retrieval(scaled, DIGITS.test.labels, ["map"], bootstrap=0).means["map"]
    assert task.evaluate(nn.Identity(), "test")["map"] == pytest.approx(expected, abs=1e-6)


def test_evaluation_leaves_the_mode_of_the_model_alone():
    task = TabularTask(EIGHTS, loss="soprc")
    model = task.build_model().train()
    task.evaluate(model, "validation")
    assert model.training


def test_options_reach_the_loss_and_every_loss_is_new():
    task = TabularTask(EIGHTS, loss="soprc", loss_options={"tau": 0.4})
    loss = task.build_loss()
    assert isinstance(loss, AUPRCLoss)
    assert loss.precision_surrogate.tau == 0.4
    assert task.build_loss() is not loss


def test_a_classifier_brings_weights_of_its_own():
    loss = RetrievalTask(DIGITS, loss="classifier", dimensions=8).build_loss()
    assert [tuple(weight.shape) for weight in loss.parameters()] == [(10, 8), (10,)]


def test_an_unknown_loss_is_answered_with_the_nearest():
    with pytest.raises(ValueError, match="did you mean 'soprc'"):
        TabularTask(EIGHTS, loss="sopr").build_loss()
