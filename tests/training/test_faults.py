"""What goes wrong in the middle of a training: nothing bad is saved, and the message says what happened."""

from __future__ import annotations

import json
import os
import resource
import signal

import pytest
import torch
from lightning_fabric import Fabric

from rankwise.cli import main
from rankwise.runs import RunFolder
from rankwise.training import Checkpoints
from workers.fitting import EIGHTS, eights, fit_with
from workers.pictures import write_folder
from workers.rows import write_all


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_all(tmp_path)
    return tmp_path


def spoil_gradients(monkeypatch, at, value):
    """The gradient of one step is multiplied by something that is no number."""
    backward, calls = Fabric.backward, []

    def spoilt(fabric, loss, *rest, **options):
        calls.append(loss)
        backward(fabric, loss * value if len(calls) == at else loss, *rest, **options)

    monkeypatch.setattr(Fabric, "backward", spoilt)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_gradient_that_is_no_number_never_reaches_a_checkpoint(tmp_path, monkeypatch, value):
    spoil_gradients(monkeypatch, at=7, value=value)
    store = Checkpoints(tmp_path)
    with pytest.raises(
        ValueError, match=r"^gradient: expected finite numbers, got \d+ NaN or infinite of \d+ in step 7"
    ):
        fit_with(eights(), EIGHTS, steps=20, every=None, checkpoints=store, save_every=1)
    state, damaged = store.newest()
    assert not damaged
    assert state["step"] == 6
    assert all(bool(torch.isfinite(tensor).all()) for tensor in state["model"].values())


def test_a_spoilt_gradient_is_refused_without_anyone_watching(monkeypatch):
    spoil_gradients(monkeypatch, at=3, value=float("nan"))
    with pytest.raises(ValueError, match=r"in step 3; the weights are as before it"):
        fit_with(eights(), EIGHTS, steps=5, every=None)


def test_gradients_that_are_only_huge_are_no_fault(monkeypatch):
    spoil_gradients(monkeypatch, at=2, value=1e30)
    assert len(fit_with(eights(), EIGHTS, steps=3, every=None).history.losses) == 3


@pytest.mark.parametrize("how", ["cut", "missing"])
def test_without_its_best_checkpoint_a_run_is_done_again(folder, capsys, how):
    for name in ("straight", "again"):
        assert main(["train", "rows.yaml", "--out", name]) == 0
    best = folder / "again" / "checkpoints" / "best.pt"
    if how == "cut":
        best.write_bytes(best.read_bytes()[:-100])
    else:
        best.unlink()
    capsys.readouterr()
    assert main(["train", "rows.yaml", "--out", "again", "--resume"]) == 0
    err = capsys.readouterr().err
    assert "the best checkpoint cannot be used: again/checkpoints/best.pt" in err
    assert "starting from the beginning" in err
    first, second = (Checkpoints(folder / name / "checkpoints").newest()[0] for name in ("straight", "again"))
    assert all(torch.equal(first["model"][key], second["model"][key]) for key in first["model"])


def test_files_that_may_not_grow_are_a_full_disk(folder, capsys):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        assert main(["train", "rows.yaml", "--out", "small"]) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (
        capsys.readouterr().err.splitlines()[-1].startswith("rankwise: the disk is full; the checkpoints saved before")
    )
    assert not list((folder / "small").rglob("*.tmp"))
    assert main(["train", "rows.yaml", "--out", "small", "--resume"]) == 0


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"recipe": 1, "seed": 0, "data": {}}', "[" * 100_000, "\x00"])
def test_a_damaged_record_of_a_run_is_named(folder, capsys, content):
    (folder / "run.json").write_text(content)
    with pytest.raises(ValueError, match=r"run\.json: expected the record of a run"):
        RunFolder(folder).read_record()


def test_a_dead_worker_process_is_named_and_the_run_resumes(folder, capsys, monkeypatch):
    pytest.importorskip("torchvision")
    from rankwise.data import ImagePart

    write_folder(folder / "photos", classes=6, each=16, size=20, channels=3)
    recipe = {
        "task": "longtail",
        "data": {"train": "photos", "size": 16, "imbalance": 3, "workers": 1},
        "batches": {"size": 16},
        "budget": {"steps": 4},
        "evaluation": {"every": 2},
    }
    (folder / "photos.yaml").write_text(json.dumps(recipe))
    parent, batch = os.getpid(), ImagePart.batch

    def dies(part, indices, view):
        if os.getpid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
        return batch(part, indices, view)

    with monkeypatch.context() as patched:
        patched.setattr(ImagePart, "batch", dies)
        assert main(["train", "photos.yaml", "--out", "run"]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("rankwise: a worker process that reads the data has ended (DataLoader worker")
    assert said.endswith("go on with: rankwise train photos.yaml --out run --resume")
    assert main(["train", "photos.yaml", "--out", "run", "--resume"]) == 0
