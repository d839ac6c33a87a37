"""A profile changes nothing in a training, and says where its time goes."""

from __future__ import annotations

import json
import pickle

import pytest
import torch
from torch import nn

from rankwise.problems import Tabular
from rankwise.runs import train_seeds
from rankwise.training import Profile
from workers.fitting import EIGHTS, eights, fit_with

# Adam would divide small differences of rounding by gradients that are as small.
SGD = {"name": "sgd", "learning_rate": 0.1}


def train(**options):
    return fit_with(eights(), EIGHTS, **options)


def assert_equal_weights(one, other):
    for name in ("model", "loss"):
        first, second = (getattr(run, name).state_dict() for run in (one, other))
        assert all(torch.equal(first[key], second[key]) for key in first)


def test_a_profiled_run_is_the_plain_one(tmp_path):
    profile = Profile(tmp_path, skip=2, steps=3)
    profiled = train(seed=5, profile=profile)
    assert_equal_weights(profiled, train(seed=5))
    pickle.dumps(profiled.loss)  # without the marks of the profile


def test_the_profile_has_the_parts_of_a_step(tmp_path):
    profile = Profile(tmp_path, skip=2, steps=3)
    train(profile=profile)
    times = {name: host for name, host, _ in profile.rows}
    assert list(times) == ["step", "loader", "forward", "loss", "backward", "optimiser"]
    assert times["loss"] < times["forward"]
    assert sum(times[name] for name in ("loader", "forward", "backward", "optimiser")) <= times["step"]
    assert profile.stops == 0  # on the CPU
    assert (tmp_path / "profile.md").read_text().count("|") == 5 * (len(times) + 2)
    events = json.loads((tmp_path / "profile.json").read_text())["traceEvents"]
    assert sum(event.get("name") == "rankwise: loss" for event in events) >= 3


def test_a_short_training_is_recorded_to_its_end(tmp_path):
    profile = Profile(tmp_path, skip=0, steps=10**6)
    train(profile=profile)
    assert profile.rows
    assert (tmp_path / "profile.json").exists()


def test_a_training_that_ends_before_the_first_recorded_step_writes_nothing(tmp_path):
    train(profile=Profile(tmp_path, skip=10**6))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("tf32", [False, True])
def test_tf32_is_allowed_while_a_run_trains(tf32):
    before, seen = torch.get_float32_matmul_precision(), set()
    train(device={"tf32": tf32}, on_step=lambda step: seen.add(torch.get_float32_matmul_precision()))
    assert seen == {"high" if tf32 else before}
    assert torch.get_float32_matmul_precision() == before


class Convolving(Tabular):
    """Eights as images for a convolution."""

    def build_model(self, schema):
        return nn.Sequential(
            nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 1), nn.Flatten(0)
        )

    def fit_model(self, model, train):
        pass


def test_channels_last_change_how_the_weights_are_stored_only():
    plain, other = (
        fit_with(eights(kind=Convolving), EIGHTS, device={"channels_last": last}, steps=3, every=None, optimiser=SGD)
        for last in (False, True)
    )
    filters = other.model.state_dict()["1.weight"]
    assert filters.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(filters, plain.model.state_dict()["1.weight"], rtol=1e-4, atol=1e-5)


def test_a_run_writes_its_profile_to_its_folder(tmp_path):
    problem = eights(positives=4).changed(budget={"steps": 8}, evaluation={"every": 8})
    sources = {"train": (EIGHTS.train.features.numpy(), EIGHTS.train.labels.numpy())}
    train_seeds(problem, sources=sources, out=tmp_path / "run", profile=True)
    assert "| loss |" in (tmp_path / "run" / "profile.md").read_text()
    with pytest.raises(ValueError, match="profile: expected the folder of the run"):
        train_seeds(problem, sources=sources, profile=True)
