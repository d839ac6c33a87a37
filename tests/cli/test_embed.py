"""`rankwise embed`: files that others read hold the vectors the run is judged by, and its weights."""

from __future__ import annotations

import json
import shutil

import numpy as np
import polars
import pytest
import torch
from safetensors.torch import load_file

from rankwise.cli import main
from rankwise.runs import load_run
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
    run = load_run(folder / "run")
    part = run.schema.read(folder / "other")
    expected = run.problem.predict(run.model, part).numpy()
    if name == "v.npz":
        found = dict(np.load(name).items())
        np.testing.assert_array_equal(found["vectors"], expected)
    else:
        table = polars.read_parquet(name)
        found = {"labels": table["label"].to_numpy(), "class": table["class"], "path": table["path"]}
        np.testing.assert_array_equal(table["vector"].to_numpy(), expected)
    np.testing.assert_array_equal(found["labels"], part.labels.numpy())
    assert len(expected) == 15
    for file, name in zip(found["path"], found["class"], strict=True):
        assert name in str(file).split("/")


@pytest.mark.parametrize("name", ["u.npz", "u.parquet"])
def test_images_without_classes_get_the_same_vectors_and_no_labels(folder, name):
    assert main(["embed", "run", "--data", "other", "--out", "labelled.npz"]) == 0
    (folder / "flat").mkdir(exist_ok=True)
    for file in (folder / "other").rglob("*.png"):
        shutil.copy(file, folder / "flat" / file.name)
    assert main(["embed", "run", "--data", "flat", "--out", name]) == 0
    labelled = np.load("labelled.npz")
    if name == "u.npz":
        found = dict(np.load(name).items())
    else:
        table = polars.read_parquet(name)
        found = {"vectors": table["vector"].to_numpy(), **{key: table[key] for key in table.columns[1:]}}
    assert sorted(found) == ["path", "vectors"]
    names = [[str(path).rpartition("/")[2] for path in each["path"]] for each in (labelled, found)]
    assert names[0] == names[1]
    np.testing.assert_allclose(found["vectors"], labelled["vectors"], rtol=0, atol=1e-6)


def test_rows_without_classes_get_vectors(folder):
    random = np.random.default_rng(0)
    rows = random.normal(size=(60, 3)) + np.repeat(3 * random.normal(size=(6, 3)), 10, axis=0)
    lines = [",".join(f"{x:.4f}" for x in row) for row in rows]
    labelled = [f"{line},kind {number // 10}" for number, line in enumerate(lines)]
    (folder / "rows.csv").write_text("\n".join(["a,b,c,kind", *labelled]) + "\n")
    (folder / "new.csv").write_text("\n".join(["a,b,c", *lines]) + "\n")
    recipe = {"task": "retrieval", "data": {"train": "rows.csv"}, "model": {"dimensions": 4}, "budget": {"steps": 3}}
    (folder / "rows.yaml").write_text(json.dumps(recipe))
    assert main(["train", "rows.yaml", "--out", "rows"]) == 0
    for data in ("rows", "new"):
        assert main(["embed", "rows", "--data", f"{data}.csv", "--out", f"{data}.npz"]) == 0
    with_labels, without = np.load("rows.npz"), np.load("new.npz")
    assert without.files == ["vectors"]
    assert with_labels["labels"].tolist() == np.repeat(np.arange(6), 10).tolist()
    np.testing.assert_array_equal(without["vectors"], with_labels["vectors"])


def test_weights_are_those_of_the_best_checkpoint(folder):
    assert main(["embed", "run", "--weights", "w.safetensors"]) == 0
    own = load_run(folder / "run").model.state_dict()
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
