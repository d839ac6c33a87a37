"""The loop: repeatable, improving, and harmless to its surroundings."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.utils.data import DataLoader

from rankwise.data import Part, Split
from rankwise.problems import Tabular
from rankwise.problems.batches import batches_of
from rankwise.samplers import ShuffledBatchSampler
from rankwise.training import Checkpoints, DeviceOptions, EvaluationOptions
from workers.fitting import DIGITS, EIGHTS, digits, eights, fit_with

PROBLEMS = {
    "eights": (eights(), EIGHTS),
    "digits": (digits(), DIGITS),
    "classifier": (digits("classifier"), DIGITS),
}
SGD = {"name": "sgd", "learning_rate": 0.1}


def train(name="eights", **options):
    return fit_with(*PROBLEMS[name], **options)


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_same_seed_gives_the_same_run_bit_for_bit(name):
    runs = [train(name, seed=5), train(name, seed=5)]
    for name in ("model", "loss"):
        first, second = (getattr(run, name).state_dict() for run in runs)
        assert first.keys() == second.keys()
        assert all(torch.equal(first[key], second[key]) for key in first)
    assert runs[0].history.losses == runs[1].history.losses
    assert runs[0].history.metrics == runs[1].history.metrics


def test_another_seed_gives_another_run():
    assert train(seed=5).history.losses != train(seed=6).history.losses


def test_the_random_state_of_the_caller_is_neither_read_nor_changed():
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    first = train()
    assert torch.equal(before, torch.random.get_rng_state())
    torch.manual_seed(2)
    assert train().history.losses == first.history.losses


def test_some_rows_of_the_validation_part_are_evaluated_when_asked():
    seen = []

    class Counting(Tabular):
        def evaluate(self, model, part, *, bootstrap=0):
            seen.append(len(part))
            return super().evaluate(model, part, bootstrap=bootstrap)

    whole = len(EIGHTS.validation)
    for rows in (70, whole + 1):
        fit_with(eights(kind=Counting), EIGHTS, steps=10, rows=rows)
    assert seen == [70, 70, whole, whole]


def test_rows_of_lists_are_not_torn_apart():
    validation = EIGHTS.validation
    lists = replace(EIGHTS, validation=replace(validation, query_ids=torch.arange(len(validation)) // 9))
    with pytest.raises(ValueError, match=r"evaluation\.rows: expected none where a list has several rows"):
        fit_with(eights(), lists, steps=10, rows=20)


# The marks are at least 5 standard deviations below the mean over seeds.
@pytest.mark.parametrize("name, mark", [("eights", 0.6), ("digits", 0.8), ("classifier", 0.58)])
def test_training_lowers_the_loss_and_raises_the_metric(name, mark):
    history, metric = train(name, steps=60).history, PROBLEMS[name][0].metric
    assert sum(history.losses[-10:]) < 0.7 * sum(history.losses[:10])
    untrained, trained = history.curve(metric)[0], history.curve(metric)[-1]
    assert untrained < mark < trained


def test_weights_of_the_loss_are_trained_too():
    torch.manual_seed(0)
    run = train("classifier", steps=5)
    fresh = train("classifier", steps=5, optimiser={"learning_rate": 1e-30})
    assert not torch.equal(run.loss.layer.weight, fresh.loss.layer.weight)


def test_history_says_when_what_was_found():
    seen = []
    history = train(steps=25, on_step=lambda step: seen.append((step.number, step.loss))).history
    assert history.steps == [0, 10, 20, 25]
    assert len(history.curve("ap")) == 4
    assert seen == list(enumerate(history.losses, start=1))
    assert history.seconds > 0


def test_without_evaluations_nothing_is_evaluated():
    assert train(steps=2, every=None).history.steps == []


def test_evaluating_changes_nothing_in_the_run():
    often, never = train(every=1), train(every=None)
    assert often.history.losses == never.history.losses


def test_the_loop_is_silent(capfd):
    train(steps=2)
    out, err = capfd.readouterr()
    assert out + err == ""


@pytest.mark.parametrize("options, key", [({"steps": 0}, "steps"), ({"steps": 2.5}, "steps"), ({"every": 0}, "every")])
def test_wrong_budgets_are_refused(options, key):
    with pytest.raises(ValueError, match=rf"(budget|evaluation)\.{key}\n"):
        train(**options)


def test_a_batch_larger_than_the_data_is_refused():
    part = Part(torch.rand(8, 3), torch.arange(8) % 2)
    problem = eights("cross-entropy", positives=None)
    with pytest.raises(ValueError, match=r"batches\.size: expected at most the 8 rows to train on, got 64"):
        fit_with(problem, Split(part, part, part))


class NoBatches(ShuffledBatchSampler):
    def _draw(self, generator):
        return iter(())


class Empty(Tabular):
    def train_loader(self, train, seed):
        return batches_of(train, NoBatches(train.labels, batch_size=8))


class Foreign(Tabular):
    def train_loader(self, train, seed):
        return DataLoader(train, batch_size=8, collate_fn=lambda batch: batch)


def test_a_loader_without_batches_is_refused_and_not_waited_for():
    with pytest.raises(ValueError, match="at least one batch, got none"):
        fit_with(eights(kind=Empty), EIGHTS)


def test_a_loader_that_cannot_be_resumed_trains_but_saves_nothing(tmp_path):
    problem = eights(kind=Foreign)
    assert fit_with(problem, EIGHTS, steps=3, every=None).history.losses
    with pytest.raises(TypeError, match=r"expected a loader with a batch sampler of .* to save checkpoints"):
        fit_with(problem, EIGHTS, checkpoints=Checkpoints(tmp_path))


def test_accumulating_batches_of_an_itemwise_loss_equals_one_larger_batch():
    large, small = (eights("cross-entropy", size=size, positives="random") for size in (64, 16))
    one = fit_with(large, EIGHTS, steps=6, every=None, optimiser=SGD)
    four = fit_with(small, EIGHTS, steps=6, every=None, optimiser=SGD, gradient={"accumulate": 4})
    for name, value in one.model.state_dict().items():
        torch.testing.assert_close(four.model.state_dict()[name], value, rtol=1e-5, atol=1e-6)


def test_accumulating_a_batchwise_loss_warns():
    with pytest.warns(UserWarning, match="2 batches of AUPRCLoss are not one batch 2 times as large"):
        train(steps=1, gradient={"accumulate": 2})


def test_a_batch_in_chunks_trains_as_the_whole_batch():
    whole, chunked = (train("digits", steps=5, every=None, gradient={"rows_at_once": rows}) for rows in (None, 7))
    for name, value in whole.model.state_dict().items():
        torch.testing.assert_close(chunked.model.state_dict()[name], value, rtol=1e-4, atol=1e-5)


def test_clipping_limits_the_step():
    plain = {"name": "sgd", "learning_rate": 1.0, "momentum": 0.0, "weight_decay": 0.0}
    free, clipped = (train(steps=1, every=None, optimiser=plain, gradient={"clip": norm}) for norm in (None, 1e-3))
    start = train(steps=1, every=None, optimiser={**plain, "learning_rate": 1e-30})

    def moved(run):
        return torch.sqrt(
            sum((a - b).square().sum() for a, b in zip(run.model.parameters(), start.model.parameters(), strict=True))
        ).item()

    assert moved(free) > 2e-3
    assert moved(clipped) == pytest.approx(1e-3, rel=1e-3)


def test_patience_ends_a_run_that_does_not_improve_and_the_best_weights_come_back():
    run = train(steps=60, optimiser={"learning_rate": 1e-30}, every=2, patience=3, weights="best")
    assert run.history.stopped_early
    assert (run.history.best_step, run.history.steps) == (0, [0, 2, 4, 6])


def test_the_best_weights_are_those_of_the_best_evaluation():
    run = train(steps=60, optimiser={"learning_rate": 0.3}, schedule={"name": "constant"}, every=3, weights="best")
    curve = run.history.curve("ap")
    assert run.history.steps[curve.index(max(curve))] == run.history.best_step
    assert PROBLEMS["eights"][0].evaluate(run.model, EIGHTS.validation).means["ap"] == max(curve)


def test_best_needs_evaluations():
    with pytest.raises(ValueError, match="expected every to be a number of steps with patience or weights: best"):
        EvaluationOptions(every=None)


@pytest.mark.parametrize("precision", ["bf16", "64"])
def test_other_precisions_train_to_about_the_same(precision):
    usual, other = (train(steps=20, device={"precision": p}) for p in ("32", precision))
    assert other.history.losses[-1] == pytest.approx(usual.history.losses[-1], abs=0.05)
    assert other.history.losses != usual.history.losses


@pytest.mark.parametrize(
    "options, message",
    [
        ({"precision": "16"}, "precision\n  Input should be '32', '64', 'bf16' or 'fp16'"),
        ({"precision": "fp16"}, 'precision: expected "32", "64" or "bf16" on the CPU'),
        ({"accelerator": "gpu"}, "accelerator\n  Input should be 'cpu', 'cuda', 'mps', 'xpu' or 'auto'"),
        ({"devices": 0}, "devices\n  Input should be greater than or equal to 1"),
    ],
)
def test_wrong_devices_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        DeviceOptions(**options)


@pytest.mark.parametrize(
    "name, found", [("cuda", "cuda.is_available"), ("mps", "backends.mps.is_available"), ("xpu", "xpu.is_available")]
)
def test_an_accelerator_that_is_not_there_is_refused(name, found, monkeypatch):
    monkeypatch.setattr(f"torch.{found}", lambda: False)
    with pytest.raises(ValueError, match=f'expected {name.upper()} for "{name}", which this machine lacks'):
        DeviceOptions(accelerator=name)


def test_what_a_recipe_cannot_do_on_a_device_is_refused(monkeypatch):
    monkeypatch.setattr("torch.xpu.is_available", lambda: True)
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: True)
    with pytest.raises(ValueError, match="which Lightning Fabric lacks"):
        DeviceOptions(accelerator="xpu")
    for wrong in ({"devices": 2}, {"precision": "64"}):
        with pytest.raises(ValueError, match='one device and no float64 with accelerator "mps"'):
            DeviceOptions(accelerator="mps", **wrong)
    assert DeviceOptions(accelerator="mps").device_type == "mps"


def test_a_compiled_training_is_the_plain_one():
    rule = {"name": "sgd", "learning_rate": 0.1}
    plain, compiled = (train(steps=3, optimiser=rule, device={"compile": c}) for c in (False, True))
    assert compiled.history.losses == pytest.approx(plain.history.losses, rel=1e-4)
    torch.testing.assert_close(compiled.model.state_dict(), plain.model.state_dict(), rtol=1e-4, atol=1e-5)
