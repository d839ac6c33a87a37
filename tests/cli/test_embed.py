"""`rankwise embed`: files that others read hold the vectors the run is judged by, and its weights."""

from __future__ import annotations

import json

import numpy as np
import polars
import pytest
import torch
from safetensors.torch import load_file

from rankwise.cli import main
from rankwise.recipes.run import open_run
from workers.pictures import write_folder

pytest.importorskip("torchvision")

RECIPE = {
    "task": "image-retrieval",
    "data": {"train": "photos", "size": 16, "held_out": "images"},
    "model": {"dimensions": 8},
    "batches": {"classes": 4, "samples_per_class": 2},
    "budget": {"steps": 3},
    "evaluation": {"every": 3},
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("embed")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_folder(folder / "photos", classes=4, each=20, size=16, channels=3)
        write_folder(folder / "other", classes=3, each=5, size=16, channels=3)
        (folder / "photos.yaml").write_text(json.dumps(RECIPE))
        assert main(["train", "photos.yaml", "--out", "run"]) == 0
    return folder


@pytest.fixture
def folder(trained, monkeypatch):
    monkeypatch.chdir(trained)
    return trained


@pytest.mark.parametrize("name", ["v.npz", "v.parquet"])
def test_vectors_of_other_images_with_labels_and_files(folder, name):
    assert main(["embed", "run", "--data", "other", "--out", name]) == 0
    run = open_run(folder / "run", data=folder / "other")
    expected = run.task.embed(run.model, "test").numpy()
    if name == "v.npz":
        found = dict(np.load(name).items())
        np.testing.assert_array_equal(found["vectors"], expected)
    else:
        table = polars.read_parquet(name)
        found = {"labels": table["label"].to_numpy(), "class": table["class"], "path": table["path"]}
        np.testing.assert_array_equal(table["vector"].to_numpy(), expected)
    np.testing.assert_array_equal(found["labels"], run.task.data.test.labels.numpy())
    assert len(expected) == 15
    for file, name in zip(found["path"], found["class"], strict=True):
        assert name in str(file).split("/")


def test_weights_are_those_of_the_best_checkpoint(folder):
    assert main(["embed", "run", "--weights", "w.safetensors"]) == 0
    own = open_run(folder / "run").model.state_dict()
    saved = load_file("w.safetensors")
    assert own.keys() == saved.keys()
    assert all(torch.equal(own[name], saved[name]) for name in own)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["run"], "expected --out, --weights or both"),
        (["run", "--out", "v.csv"], "expected .npz or .parquet, got 'v.csv'"),
        (["run", "--weights", "w.pt"], "expected .safetensors, got 'w.pt'"),
        (["run", "--out", "nowhere/v.npz"], "the folder 'nowhere' does not exist"),
    ],
)
def test_bad_arguments_are_named_before_any_work(folder, arguments, message, capsys):
    assert main(["embed", *arguments]) == 2
    assert message in " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_a_task_without_vectors_is_refused(folder, capsys):
    content = {
        **RECIPE,
        "task": "longtail",
        "data": {"train": "photos", "size": 16},
        "loss": "ce",
        "batches": {"size": 8},
    }
    del content["model"]
    (folder / "tail.yaml").write_text(json.dumps(content))
    assert main(["train", "tail.yaml", "--out", "tail"]) == 0
    assert main(["embed", "tail", "--out", "t.npz"]) == 2
    assert "expected a run whose model gives vectors (retrieval), got longtail" in " ".join(
        capsys.readouterr().err.split()
    )
