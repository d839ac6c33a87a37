"""Checkpoints: whole or not at all, damage is seen, and a resumed run is the uninterrupted one, bit for bit."""

from __future__ import annotations

import os
import pickle
import signal

import pytest
import torch

from rankwise.files import write_whole
from rankwise.problems import Tabular
from rankwise.training import Checkpoints, Interrupted, read_checkpoint
from workers.fitting import DIGITS, EIGHTS, digits, eights, fit_with

PROBLEMS = {
    "tabular": (eights(size=100), EIGHTS),
    "shuffled": (eights("cross-entropy", size=100, positives=None), EIGHTS),
    "retrieval": (digits(), DIGITS),
    "classifier": (digits("classifier"), DIGITS),
}
ADAMW = {"learning_rate": 1e-2, "weight_decay": 0.1}
STATE = {"step": 3, "weights": torch.arange(5000.0), "words": ["a", "b"], "table": {"x": 1.5}}


def train(problem=PROBLEMS["tabular"], **options):
    return fit_with(*problem, **{"steps": 25, "optimiser": ADAMW, **options})


def assert_same(first, second):
    for name in ("model", "loss"):
        left, right = (getattr(run, name).state_dict() for run in (first, second))
        assert left.keys() == right.keys()
        assert all(torch.equal(left[key], right[key]) for key in left), name
    assert first.history.losses == second.history.losses
    assert first.history.metrics == second.history.metrics
    assert first.history.steps == second.history.steps


@pytest.mark.parametrize("name", PROBLEMS)
def test_resumed_after_any_step_equals_uninterrupted(name, tmp_path):
    problem = PROBLEMS[name]
    straight = train(problem, checkpoints=Checkpoints(tmp_path, keep=100), save_every=1)
    assert len(Checkpoints(tmp_path).paths()) == 26
    for path in Checkpoints(tmp_path).paths()[1::4]:
        assert_same(straight, train(problem, start=read_checkpoint(path), save_every=1))


@pytest.mark.parametrize(
    "options",
    [
        {"gradient": {"accumulate": 2, "clip": 0.1}},
        {"gradient": {"rows_at_once": 16}},
        {"schedule": {"warmup": 5}},
        {"schedule": {"name": "constant"}},
    ],
    ids=["accumulate and clip", "in chunks", "warm-up", "no schedule"],
)
@pytest.mark.filterwarnings("ignore:accumulate")
def test_resuming_holds_with_every_option(options, tmp_path):
    straight = train(checkpoints=Checkpoints(tmp_path, keep=100), save_every=7, **options)
    for path in Checkpoints(tmp_path).paths():
        assert_same(straight, train(start=read_checkpoint(path), **options))


def test_dropout_goes_on_from_the_saved_random_state(tmp_path):
    class Dropping(Tabular):
        def build_model(self, schema):
            layers = [torch.nn.Linear(64, 16), torch.nn.ReLU(), torch.nn.Dropout(), torch.nn.Linear(16, 1)]
            return torch.nn.Sequential(*layers, torch.nn.Flatten(0))

    problem = eights(kind=Dropping), EIGHTS
    straight = train(problem, checkpoints=Checkpoints(tmp_path, keep=100), save_every=9)
    for path in Checkpoints(tmp_path).paths():
        assert_same(straight, train(problem, start=read_checkpoint(path)))


def test_early_stopping_is_remembered(tmp_path):
    options = {"optimiser": {"learning_rate": 1e-30}, "every": 2, "patience": 3, "weights": "best"}
    straight = train(checkpoints=Checkpoints(tmp_path), **options)
    assert straight.history.stopped_early
    for path in Checkpoints(tmp_path).paths():
        resumed = train(start=read_checkpoint(path), checkpoints=Checkpoints(tmp_path), **options)
        assert_same(straight, resumed)


def test_the_best_checkpoint_is_kept_and_taken(tmp_path):
    store = Checkpoints(tmp_path, keep=2)
    options = {"optimiser": {"learning_rate": 0.3}, "schedule": {"name": "constant"}, "every": 3, "steps": 60}
    run = train(checkpoints=store, weights="best", **options)
    best = read_checkpoint(store.best)
    assert best["step"] == run.history.best_step
    assert all(torch.equal(best["model"][key], value) for key, value in run.model.state_dict().items())
    assert len(store.paths()) == 2


def test_a_signal_between_steps_saves_and_says_so(tmp_path):
    store = Checkpoints(tmp_path)

    def interrupt(step):
        if step.number == 7:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted, match="stopped after step 7, which is saved"):
        train(checkpoints=store, on_step=interrupt)
    state, damaged = store.newest()
    assert (state["step"], damaged) == (7, [])
    assert_same(train(), train(start=state))


def test_signals_are_as_before_after_a_run(tmp_path):
    before = signal.getsignal(signal.SIGINT)
    train(steps=2, checkpoints=Checkpoints(tmp_path))
    assert signal.getsignal(signal.SIGINT) is before


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    train(steps=2, checkpoints=Checkpoints(tmp_path))
    state, _ = Checkpoints(tmp_path).newest()
    other = eights(model={"hidden": (7,), "scaling": "none"}), EIGHTS
    with pytest.raises(ValueError, match="start: expected a checkpoint of this problem, model and loss"):
        train(other, start=state)


def test_every_flipped_byte_is_seen_or_harmless(tmp_path):
    path = tmp_path / "step-00000001.pt"
    Checkpoints(tmp_path).save(STATE, 1)
    whole = path.read_bytes()
    seen = 0
    for place in range(0, len(whole), 97):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        try:
            state = read_checkpoint(path)
        except ValueError:
            seen += 1
        else:
            assert torch.equal(state["weights"], STATE["weights"])
            assert state["table"] == STATE["table"]
    assert seen > 190  # the tensor alone is 20,000 bytes


@pytest.mark.parametrize("length", [0, 1, 100, 5000, 20000])
def test_a_truncated_file_is_named_and_the_one_before_taken(tmp_path, length):
    store = Checkpoints(tmp_path)
    store.save(STATE, 1)
    store.save(STATE, 2)
    newest = store.paths()[0]
    newest.write_bytes(newest.read_bytes()[:length])
    state, damaged = store.newest()
    assert state["step"] == 3
    assert [d.path for d in damaged] == [newest]
    assert "not a complete checkpoint" in damaged[0].reason


def test_without_any_checkpoint_there_is_none(tmp_path):
    assert Checkpoints(tmp_path / "nothing").newest() == (None, [])


class Evil:
    def __reduce__(self):
        return os.mkdir, ("pwned",)


def test_a_file_that_would_run_code_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"step": 1, "model": Evil()}, tmp_path / "step-00000001.pt")
    with pytest.raises(ValueError, match="holds something other than tensors and plain values; refused"):
        read_checkpoint(tmp_path / "step-00000001.pt")
    assert not (tmp_path / "pwned").exists()
    (tmp_path / "old.pt").write_bytes(pickle.dumps({"step": 1}))
    with pytest.raises(ValueError, match="not a complete checkpoint"):
        read_checkpoint(tmp_path / "old.pt")


def test_a_failed_write_leaves_what_was_there(tmp_path, monkeypatch):
    store = Checkpoints(tmp_path)
    store.save(STATE, 1)
    monkeypatch.setattr(os, "fsync", _no_space)
    with pytest.raises(OSError, match="No space left"):
        store.save(STATE, 2, best=True)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001.pt"]
    assert store.newest()[0]["step"] == 3


def _no_space(descriptor):
    raise OSError(28, "No space left on device")


def test_write_whole_replaces(tmp_path):
    write_whole(tmp_path / "a", b"one")
    write_whole(tmp_path / "a", b"two")
    assert (tmp_path / "a").read_bytes() == b"two"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("keep, error", [(0, ValueError), (True, TypeError), (1.5, TypeError)])
def test_a_wrong_number_to_keep_is_refused(tmp_path, keep, error):
    with pytest.raises(error, match="keep: expected a whole number of at least 1"):
        Checkpoints(tmp_path, keep=keep)


def test_previous_weights_are_saved_and_loaded(tmp_path):
    problem = eights({"name": "stable-ap", "update_rate": 0.1}), EIGHTS
    store, gradient = Checkpoints(tmp_path, keep=100), {"previous_weights": True}
    straight = train(problem, checkpoints=store, save_every=6, gradient=gradient)
    assert straight.history.losses != train(problem).history.losses
    for path in store.paths():
        assert_same(straight, train(problem, start=read_checkpoint(path), gradient=gradient))


def test_best_weights_from_before_the_start_are_not_forgotten(tmp_path):
    options = {"every": 2, "weights": "best"}
    train(checkpoints=Checkpoints(tmp_path), **options)
    state, _ = Checkpoints(tmp_path).newest()
    with pytest.raises(ValueError, match="checkpoints: expected where the best weights"):
        train(start=state, **options)
