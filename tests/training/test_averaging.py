"""Averaged weights: the mean of those of the steps, judged and given back, without changing the training."""

from __future__ import annotations

import pytest
import torch

from rankwise.data import TableSchema
from rankwise.problems import make_problem
from rankwise.training import AverageOptions, AverageWeights, Checkpoints, read_checkpoint
from workers.fitting import EIGHTS, eights, fit_with

PROBLEM = eights(size=100)


def train(**options):
    return fit_with(PROBLEM, EIGHTS, **{"steps": 12, "optimiser": {"learning_rate": 1e-2}, "every": 4, **options})


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """Those after each step of a training without averages."""
    store = Checkpoints(tmp_path_factory.mktemp("plain"), keep=100)
    train(checkpoints=store, save_every=1)
    return [read_checkpoint(path)["model"] for path in reversed(store.paths())]


def test_the_plain_mean_of_the_last_steps(weights):
    run = train(average={"after": 0.5})
    for name, value in run.model.state_dict().items():
        expected = torch.stack([each[name].double() for each in weights[7:]]).mean(0)
        torch.testing.assert_close(value.double(), expected, atol=1e-6, rtol=1e-5)


def test_a_moving_average_starts_as_a_mean(weights):
    run = train(average={"decay": 0.75, "after": 0.0})
    for name, value in run.model.state_dict().items():
        mean = torch.zeros_like(value)
        for count, each in enumerate(weights[1:], start=1):
            mean = mean + (each[name] - mean) * max(1 / count, 0.25)
        torch.testing.assert_close(value, mean, atol=1e-6, rtol=1e-5)


def test_training_is_the_same_and_the_average_is_what_is_judged(weights):
    plain, run = train(), train(average={"after": 0.5})
    assert run.history.losses == plain.history.losses
    assert run.history.metrics[:2] == plain.history.metrics[:2]  # nothing to average yet
    assert run.history.metrics[-1] == PROBLEM.evaluate(run.model, EIGHTS.validation).means
    assert any(not torch.equal(value, weights[-1][name]) for name, value in run.model.state_dict().items())


@pytest.mark.parametrize("options", [{"after": 0.25}, {"decay": 0.9, "after": 0.0}], ids=["mean", "moving"])
@pytest.mark.parametrize("weights", ["last", "best"])
def test_resumed_after_any_step_equals_uninterrupted(tmp_path, options, weights):
    options = {"average": options, "weights": weights}
    store = Checkpoints(tmp_path / "a", keep=100)
    straight = train(checkpoints=store, save_every=1, **options)
    for number, path in enumerate(store.paths()[1::3]):
        other = Checkpoints(tmp_path / f"b{number}")
        again = train(start=read_checkpoint(path), checkpoints=other, **options)
        left, right = straight.model.state_dict(), again.model.state_dict()
        assert all(torch.equal(left[name], right[name]) for name in left)
        assert straight.history.metrics == again.history.metrics
    # The model of a checkpoint is the one that was evaluated.
    model = PROBLEM.build_model(TableSchema.of(EIGHTS.train))
    model.load_state_dict(read_checkpoint(store.paths()[0])["model"])
    assert PROBLEM.evaluate(model, EIGHTS.validation).means == straight.history.metrics[-1]


def test_running_statistics_are_averaged_and_counts_taken():
    model = torch.nn.BatchNorm1d(1)
    average = AverageWeights(model)
    for value in (1.0, 3.0):
        model(torch.full((2, 1), value))
        average.update()
    with average.applied():
        assert model.running_mean.item() == pytest.approx((0.1 + 0.39) / 2)
        assert model.num_batches_tracked.item() == 2
    assert model.running_mean.item() == pytest.approx(0.39)


def test_a_recipe_may_ask_for_it():
    problem = make_problem(_recipe(), ["average.after=0.25"])
    made = problem.average.build(torch.nn.Linear(1, 1), 100)
    assert (made.after, made.decay) == (25, None)
    with pytest.raises(ValueError, match=r"average.after: expected a number of less than 1, got 1"):
        make_problem(_recipe(), ["average.after=1"])


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="after\n  Input should be less than 1"):
        AverageOptions(after=1)
    with pytest.raises(ValueError, match="decay: expected"):
        AverageWeights(torch.nn.Linear(1, 1), decay=1.5)


def _recipe():
    return {"task": "tabular", "data": {"train": "rows.csv"}, "budget": {"steps": 10}}
