"""The loop: repeatable, improving, and harmless to its surroundings."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader

from rankwise.data import Part, Split, load_digit_retrieval, load_eights
from rankwise.samplers import ShuffledBatchSampler
from rankwise.tasks import RetrievalTask, TabularTask
from rankwise.tasks.batches import batches_of
from rankwise.training import Checkpoints, Place, adamw, cosine, fit, sgd

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


@pytest.mark.parametrize(
    "task, mark",
    [(EIGHTS, 0.6), (DIGITS, 0.8), (CLASSIFIER, 0.58)],  # at least 5 standard deviations below the mean over seeds
    ids=["eights", "digits", "classifier"],
)
def test_training_lowers_the_loss_and_raises_the_metric(task, mark):
    history = train(task, steps=60).history
    assert sum(history.losses[-10:]) < 0.7 * sum(history.losses[:10])
    untrained, trained = history.curve(task.metric)[0], history.curve(task.metric)[-1]
    assert untrained < mark < trained


def test_weights_of_the_loss_are_trained_too():
    torch.manual_seed(0)
    run = train(CLASSIFIER, steps=5)
    fresh = train(CLASSIFIER, steps=5, optimiser=adamw(0.0))
    assert not torch.equal(run.loss.layer.weight, fresh.loss.layer.weight)


def test_history_says_when_what_was_found():
    seen = []
    history = train(EIGHTS, steps=25, on_step=lambda step: seen.append((step.number, step.loss))).history
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
    "options, error, message",
    [
        ({"steps": 0}, ValueError, "steps: expected a whole number of at least 1, got 0"),
        ({"steps": 2.5}, TypeError, "steps: expected a whole number of at least 1, got 2.5"),
        ({"eval_every": 0}, ValueError, "eval_every: expected a whole number of at least 1, got 0"),
    ],
)
def test_wrong_budgets_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        train(EIGHTS, **options)


def test_a_batch_larger_than_the_data_is_refused():
    part = Part(torch.rand(8, 3), torch.arange(8) % 2)
    task = TabularTask(Split(part, part, part), loss="cross-entropy", batch_size=64)
    with pytest.raises(ValueError, match="batch_size: expected at most the number of items, 8, got 64"):
        train(task)


class NoBatches(ShuffledBatchSampler):
    def _draw(self, generator):
        return iter(())


class Empty(TabularTask):
    def train_loader(self, seed):
        return batches_of(self.data.train, NoBatches(self.data.train.labels, batch_size=8))


class Foreign(TabularTask):
    def train_loader(self, seed):
        return DataLoader(self.data.train, batch_size=8, collate_fn=lambda batch: batch)


def test_a_loader_without_batches_is_refused_and_not_waited_for():
    with pytest.raises(ValueError, match="at least one batch, got none"):
        train(Empty(EIGHTS.data, loss="soprc"))


def test_a_loader_that_cannot_be_resumed_trains_but_saves_nothing(tmp_path):
    task = Foreign(EIGHTS.data, loss="soprc")
    assert train(task, steps=3, eval_every=None).history.losses
    with pytest.raises(TypeError, match=r"expected a loader with a batch sampler of .* to save checkpoints"):
        train(task, checkpoints=Checkpoints(tmp_path))


def test_accumulating_batches_of_an_itemwise_loss_equals_one_larger_batch():
    large, small = (TabularTask(EIGHTS.data, loss="cross-entropy", batch_size=size) for size in (64, 16))
    one = train(large, steps=6, eval_every=None, optimiser=sgd(0.1))
    four = train(small, steps=6, eval_every=None, optimiser=sgd(0.1), accumulate=4)
    for name, value in one.model.state_dict().items():
        torch.testing.assert_close(four.model.state_dict()[name], value, rtol=1e-5, atol=1e-6)


def test_accumulating_a_batchwise_loss_warns():
    with pytest.warns(UserWarning, match="2 batches of AUPRCLoss are not one batch 2 times as large"):
        train(EIGHTS, steps=1, accumulate=2)


def test_a_batch_in_chunks_trains_as_the_whole_batch():
    whole, chunked = (train(DIGITS, steps=5, eval_every=None, rows_at_once=rows) for rows in (None, 7))
    for name, value in whole.model.state_dict().items():
        torch.testing.assert_close(chunked.model.state_dict()[name], value, rtol=1e-4, atol=1e-5)


def test_clipping_limits_the_step():
    free, clipped = (
        train(EIGHTS, steps=1, eval_every=None, optimiser=sgd(1.0, momentum=0), clip_norm=norm) for norm in (None, 1e-3)
    )
    start = train(EIGHTS, steps=1, eval_every=None, optimiser=sgd(1e-30, momentum=0))

    def moved(run):
        return torch.sqrt(
            sum((a - b).square().sum() for a, b in zip(run.model.parameters(), start.model.parameters(), strict=True))
        ).item()

    assert moved(free) > 2e-3
    assert moved(clipped) == pytest.approx(1e-3, rel=1e-3)


def test_patience_ends_a_run_that_does_not_improve_and_the_best_weights_come_back():
    run = train(EIGHTS, steps=60, optimiser=adamw(0.0), eval_every=2, patience=3, take_best=True)
    assert run.history.stopped_early
    assert (run.history.best_step, run.history.steps) == (0, [0, 2, 4, 6])


def test_the_best_weights_are_those_of_the_best_evaluation():
    run = train(EIGHTS, steps=60, optimiser=adamw(0.3), schedule=None, eval_every=3, take_best=True)
    curve = run.history.curve("ap")
    assert run.history.steps[curve.index(max(curve))] == run.history.best_step
    assert EIGHTS.evaluate(run.model, "validation")["ap"] == max(curve)


def test_best_needs_evaluations():
    with pytest.raises(ValueError, match="eval_every: expected a number of steps with patience or take_best"):
        train(EIGHTS, eval_every=None, take_best=True)


@pytest.mark.parametrize("precision", ["bf16", "64"])
def test_other_precisions_train_to_about_the_same(precision):
    usual, other = (train(EIGHTS, steps=20, place=Place(precision=p)) for p in ("32", precision))
    assert other.history.losses[-1] == pytest.approx(usual.history.losses[-1], abs=0.05)
    assert other.history.losses != usual.history.losses


@pytest.mark.parametrize(
    "options, message",
    [
        ({"precision": "16"}, "precision: unknown word '16'"),
        ({"precision": "fp16"}, 'precision: expected "32", "64" or "bf16" on the CPU'),
        ({"accelerator": "gpu"}, "accelerator: unknown word 'gpu'"),
        ({"devices": 0}, "devices: expected a whole number of at least 1, got 0"),
    ],
)
def test_wrong_places_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Place(**options)
