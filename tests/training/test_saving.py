"""Checkpoints written in the background: the same files, complete or not there, and waited for at the end."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.multiprocessing import ProcessExitedException

from rankwise.data import TableSchema
from rankwise.training import Checkpoints, fit, read_checkpoint
from workers.fitting import EIGHTS, eights
from workers.processes import rank_environments, run_ranks
from workers.saved_in_background import fit_in_background, train_in_background

pytestmark = pytest.mark.filterwarnings("ignore")


def train(folder, world, *, killed=False, background=True):
    folder.mkdir(exist_ok=True)
    if world == 1:
        fit_in_background(folder, 1, killed=killed, background=background)
    else:
        run_ranks(train_in_background, world, rank_environments(world), str(folder), killed, background)
    return torch.load(folder / "end.pt", weights_only=True)


def assert_equal_states(first, second):
    if isinstance(first, dict):
        assert first.keys() == second.keys()
        for key in first.keys() - {"seconds", "files"}:
            assert_equal_states(first[key], second[key])
    elif isinstance(first, list | tuple):
        for ours, theirs in zip(first, second, strict=True):
            assert_equal_states(ours, theirs)
    elif isinstance(first, torch.Tensor):
        assert torch.equal(first, second)
    else:
        assert first == second


def everything_of(path):
    """A checkpoint with the shares of all processes."""
    state = read_checkpoint(path)
    shards = state.pop("shards", None)
    return {**state, "shares": [] if shards is None else [load_file(each) for each in share_files(shards["folder"])]}


def share_files(folder):
    return sorted(Path(folder).glob("*.safetensors"))


@pytest.mark.parametrize("world", [1, 2])
def test_the_training_goes_on_meanwhile_and_writes_the_same(tmp_path, world):
    """The checkpoint of step 4 is not written before step 6 is done, and has the state of step 4."""
    at_once = train(tmp_path / "at once", world, background=False)
    meanwhile = train(tmp_path / "background", world)
    assert_equal_states(meanwhile, at_once)
    paths = Checkpoints(tmp_path / "background").paths()
    assert [path.name for path in paths] == [f"step-{step:08d}.pt" for step in (16, 12, 8, 4, 0)]
    for path in paths:
        assert_equal_states(*(everything_of(tmp_path / way / path.name) for way in ("background", "at once")))


def test_a_training_killed_in_the_middle_goes_on_from_the_checkpoint_before(tmp_path):
    straight = train(tmp_path / "straight", 2, background=False)
    with pytest.raises(ProcessExitedException):
        train(tmp_path / "killed", 2, killed=True)
    # The shares of step 12 are there, but nothing takes them for a checkpoint.
    assert (tmp_path / "killed" / "step-00000012.shards").is_dir()
    state, damaged = Checkpoints(tmp_path / "killed").newest()
    assert (state["step"], damaged) == (8, [])
    assert_equal_states(train(tmp_path / "killed", 2), straight)


def test_the_end_waits_for_the_last_checkpoint(tmp_path):
    class Slow(Checkpoints):
        def save(self, state, step, *, best=False):
            time.sleep(0.2)
            super().save(state, step, best=best)

    store = Slow(tmp_path)
    chosen = eights().changed(checkpoints={"background": True}, budget={"steps": 4}, evaluation={"every": 2})
    fitted = fit(chosen, TableSchema.of(EIGHTS.train), EIGHTS, checkpoints=store)
    assert read_checkpoint(store.paths()[0])["step"] == 4
    best = read_checkpoint(store.best)["model"]
    assert_equal_states(dict(fitted.model.state_dict()), dict(best))


def test_an_error_of_the_writing_ends_the_training(tmp_path):
    class Full(Checkpoints):
        def save(self, state, step, *, best=False):
            raise OSError("no space left")

    chosen = eights().changed(checkpoints={"background": True}, budget={"steps": 8}, evaluation={"every": 2})
    steps = []
    with pytest.raises(OSError, match="no space left"):
        fit(
            chosen, TableSchema.of(EIGHTS.train), EIGHTS, checkpoints=Full(tmp_path),
            on_step=lambda step: steps.append(step.number),
        )  # fmt: skip
    assert max(steps) == 2


def test_an_error_of_the_training_is_raised_after_the_checkpoint_is_complete(tmp_path):
    def fail(step):
        if step.number == 3:
            raise RuntimeError("stop here")

    chosen = eights().changed(checkpoints={"background": True}, budget={"steps": 8}, evaluation={"every": 2})
    with pytest.raises(RuntimeError, match="stop here"):
        fit(chosen, TableSchema.of(EIGHTS.train), EIGHTS, checkpoints=Checkpoints(tmp_path), on_step=fail)
    assert Checkpoints(tmp_path).newest()[0]["step"] == 2
