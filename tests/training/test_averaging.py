"""Averaged weights: the mean of those of the steps, judged and given back, without changing the training."""

from __future__ import annotations

import pytest
import torch

from rankwise.data import load_digit_retrieval, load_eights
from rankwise.recipes import make_recipe
from rankwise.tasks import RetrievalTask, TabularTask
from rankwise.training import AverageWeights, Checkpoints, adamw, averaged, cosine, fit, read_checkpoint

TASK = TabularTask(load_eights(seed=0), loss="soprc", positives=8, batch_size=100)


def train(task=TASK, **options):
    return fit(task, **{"steps": 12, "optimiser": adamw(1e-2), "schedule": cosine, "eval_every": 4, **options})


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """Those after each step of a training without averages."""
    store = Checkpoints(tmp_path_factory.mktemp("plain"), keep=100)
    train(checkpoints=store, save_every=1)
    return [read_checkpoint(path)["model"] for path in reversed(store.paths())]


def test_the_plain_mean_of_the_last_steps(weights):
    run = train(average=averaged(after=0.5))
    for name, value in run.model.state_dict().items():
        expected = torch.stack([each[name].double() for each in weights[7:]]).mean(0)
        torch.testing.assert_close(value.double(), expected, atol=1e-6, rtol=1e-5)


def test_a_moving_average_starts_as_a_mean(weights):
    run = train(average=averaged(decay=0.75))
    for name, value in run.model.state_dict().items():
        mean = torch.zeros_like(value)
        for count, each in enumerate(weights[1:], start=1):
            mean = mean + (each[name] - mean) * max(1 / count, 0.25)
        torch.testing.assert_close(value, mean, atol=1e-6, rtol=1e-5)


def test_training_is_the_same_and_the_average_is_what_is_judged(weights):
    plain, run = train(), train(average=averaged(after=0.5))
    assert run.history.losses == plain.history.losses
    assert run.history.metrics[:2] == plain.history.metrics[:2]  # nothing to average yet
    assert run.history.metrics[-1] == TASK.evaluate(run.model, "validation")
    assert any(not torch.equal(value, weights[-1][name]) for name, value in run.model.state_dict().items())


@pytest.mark.parametrize("options", [{"after": 0.25}, {"decay": 0.9}], ids=["mean", "moving"])
@pytest.mark.parametrize("take_best", [False, True])
def test_resumed_after_any_step_equals_uninterrupted(tmp_path, options, take_best):
    options = {"average": averaged(**options), "take_best": take_best}
    store = Checkpoints(tmp_path / "a", keep=100)
    straight = train(checkpoints=store, save_every=1, **options)
    for number, path in enumerate(store.paths()[1::3]):
        other = Checkpoints(tmp_path / f"b{number}")
        again = train(start=read_checkpoint(path), checkpoints=other, **options)
        left, right = straight.model.state_dict(), again.model.state_dict()
        assert all(torch.equal(left[name], right[name]) for name in left)
        assert straight.history.metrics == again.history.metrics
    # what a file calls the model is what was judged
    model = TASK.build_model()
    model.load_state_dict(read_checkpoint(store.paths()[0])["model"])
    assert TASK.evaluate(model, "validation") == straight.history.metrics[-1]


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
    recipe = make_recipe(_recipe(), ["average.after=0.25"])
    made = recipe.average.make()(torch.nn.Linear(1, 1), 100)
    assert (made.after, made.decay) == (25, None)
    with pytest.raises(ValueError, match=r"average.after: expected a number of less than 1, got 1"):
        make_recipe(_recipe(), ["average.after=1"])


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="after: expected a number of at least 0 and less than 1, got 1"):
        averaged(after=1)
    with pytest.raises(ValueError, match="decay: expected"):
        train(RetrievalTask(load_digit_retrieval(seed=0), loss="soprc"), average=averaged(decay=1.5))


def _recipe():
    return {"task": "tabular", "data": {"train": "rows.csv"}, "budget": {"steps": 10}}
