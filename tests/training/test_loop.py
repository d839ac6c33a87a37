"""The loop: repeatable, improving, and harmless to its surroundings."""

from __future__ import annotations

import pytest
import torch

from rankwise.data import Part, Split, load_digit_retrieval, load_eights
from rankwise.tasks import RetrievalTask, TabularTask
from rankwise.training import adamw, cosine, fit

EIGHTS = TabularTask(load_eights(seed=0), loss="soprc", positives=8)
DIGITS = RetrievalTask(load_digit_retrieval(seed=0), loss="soprc")
CLASSIFIER = RetrievalTask(load_digit_retrieval(seed=0), loss="classifier")


def train(task, **options):
    return fit(task, **{"steps": 30, "optimiser": adamw(3e-3), "schedule": cosine, "eval_every": 10, **options})


@pytest.mark.parametrize("task", [EIGHTS, DIGITS, CLASSIFIER], ids=["eights", "digits", "classifier"])
def test_the_same_seed_gives_the_same_run_bit_for_bit(task):
    runs = [train(task, seed=5), train(task, seed=5)]
    for name in ("model", "loss"):
        first, second = (getattr(run, name).state_dict() for run in runs)
        assert first.keys() == second.keys()
        assert all(torch.equal(first[key], second[key]) for key in first)
    assert runs[0].history.losses == runs[1].history.losses
    assert runs[0].history.metrics == runs[1].history.metrics


def test_another_seed_gives_another_run():
    assert train(EIGHTS, seed=5).history.losses != train(EIGHTS, seed=6).history.losses


def test_the_random_state_of_the_caller_is_neither_read_nor_changed():
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    first = train(EIGHTS)
    assert torch.equal(before, torch.random.get_rng_state())
    torch.manual_seed(2)
    assert train(EIGHTS).history.losses == first.history.losses


@pytest.mark.parametrize("task", [EIGHTS, DIGITS, CLASSIFIER], ids=["eights", "digits", "classifier"])
def test_training_lowers_the_loss_and_raises_the_metric(task):
    history = train(task, steps=60).history
    assert sum(history.losses[-10:]) < 0.7 * sum(history.losses[:10])
    untrained, trained = history.curve(task.metric)[0], history.curve(task.metric)[-1]
    assert trained > untrained + 0.1


def test_weights_of_the_loss_are_trained_too():
    torch.manual_seed(0)
    run = train(CLASSIFIER, steps=5)
    fresh = train(CLASSIFIER, steps=5, optimiser=adamw(0.0))
    assert not torch.equal(run.loss.layer.weight, fresh.loss.layer.weight)


def test_history_says_when_what_was_found():
    seen = []
    history = train(EIGHTS, steps=25, on_step=lambda step, loss: seen.append((step, loss))).history
    assert history.steps == [0, 10, 20, 25]
    assert len(history.curve("ap")) == 4
    assert seen == list(enumerate(history.losses, start=1))
    assert history.seconds > 0


def test_without_eval_every_nothing_is_evaluated():
    assert train(EIGHTS, steps=2, eval_every=None).history.steps == []


def test_evaluating_changes_nothing_in_the_run():
    often, never = train(EIGHTS, eval_every=1), train(EIGHTS, eval_every=None)
    assert often.history.losses == never.history.losses


def test_the_loop_is_silent(capfd):
    train(EIGHTS, steps=2)
    out, err = capfd.readouterr()
    assert out + err == ""


@pytest.mark.parametrize(
    "options, message",
    [
        ({"steps": 0}, "steps: expected a whole number of at least 1, got 0"),
        ({"steps": 2.5}, "steps: expected a whole number of at least 1, got 2.5"),
        ({"eval_every": 0}, "eval_every: expected a whole number of at least 1, got 0"),
    ],
)
def test_wrong_budgets_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        train(EIGHTS, **options)


def test_a_loader_without_batches_is_refused_and_not_waited_for():
    part = Part(torch.rand(8, 3), torch.arange(8) % 2)
    task = TabularTask(Split(part, part, part), loss="cross-entropy", batch_size=64)
    with pytest.raises(ValueError, match="at least one batch, got none"):
        train(task)
