"""Runs over images and classes: used anywhere, without the training data, on images or rows without classes."""

from __future__ import annotations

import json
import shutil
import tarfile

import numpy as np
import polars
import pytest
import torch

from rankwise.data import DataNote, EncodedImages
from rankwise.problems import ImageRetrieval, LongTail, Retrieval, make_problem
from rankwise.rehearsal import make_data
from rankwise.runs import load_run, train
from workers.pictures import make_pictures, write_folder

SHORT = {"budget": {"steps": 6}, "evaluation": {"every": 3}, "optimiser": {"learning_rate": 0.005}}
IMAGES = {"train": "photos", "size": 16, "channels": 1}
RECIPES = {
    "image-retrieval": {
        "data": {**IMAGES, "held_out": "images"},
        "model": {"dimensions": 8},
        "batches": {"classes": 4, "samples_per_class": 2},
    },
    "longtail": {"data": {**IMAGES, "imbalance": 2}, "batches": {"size": 16}},
}


@pytest.fixture(scope="module", params=RECIPES)
def trained(request, tmp_path_factory):
    """A run whose folder was moved and whose training data are gone, its test images without classes, and their
    outputs at the time of training."""
    pytest.importorskip("PIL")
    folder = tmp_path_factory.mktemp(request.param)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_folder(folder / "photos", classes=5, each=16, size=20)
        problem = make_problem({"task": request.param, **SHORT, **RECIPES[request.param]})
        run = train(problem, out="run")
        test = run.part("test")
        assert isinstance(test.source, EncodedImages)
        names = [test.source.names[row] for row in test.rows.tolist()]
        (folder / "test").mkdir()
        for name in names:
            (folder / "test" / name.rpartition("/")[2]).write_bytes((folder / name).read_bytes())
        expected = problem.predict(run.model, test)
        shutil.rmtree(folder / "photos")
        shutil.move("run", folder / "moved")
    return folder, expected, test, run.test


def test_images_without_classes_get_the_outputs_of_the_test_part(trained):
    folder, expected, *_ = trained
    outputs = load_run(folder / "moved").predict(folder / "test").outputs
    assert len(outputs) == len(expected)
    torch.testing.assert_close(outputs, expected, rtol=0, atol=1e-6)


def test_the_order_of_the_images_is_that_of_the_source(trained):
    folder, *_ = trained
    run, files = load_run(folder / "moved"), sorted((folder / "test").iterdir())
    forwards, backwards = (run.predict(each).outputs for each in (files, files[::-1]))
    torch.testing.assert_close(forwards.flip(0), backwards, rtol=0, atol=1e-6)
    # Another number of images is rounded otherwise by the convolutions, and whitening divides by small spreads.
    torch.testing.assert_close(run.predict(files[3]).outputs, forwards[3:4], rtol=0, atol=2e-5)


def test_the_moved_run_evaluates_as_when_it_was_trained(trained, tmp_path):
    folder, _, test, before = trained
    for index, file in enumerate(sorted((folder / "test").iterdir())):
        classes = tmp_path / "again" / test.classes[int(test.labels[index])]
        classes.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, classes / file.name)
    after = load_run(folder / "moved").evaluate(tmp_path / "again", bootstrap=0)
    assert after.means == pytest.approx(before.means, abs=1e-9, nan_ok=True)


def test_a_tar_file_is_read_like_its_folder(trained, tmp_path):
    folder, expected, *_ = trained
    with tarfile.open(tmp_path / "test.tar.gz", "w:gz") as archive:
        archive.add(folder / "test", arcname=".")
    outputs = load_run(folder / "moved").predict(tmp_path / "test.tar.gz").outputs
    torch.testing.assert_close(outputs, expected, rtol=0, atol=1e-6)


def test_images_of_unknown_classes_are_scored_without_labels_or_refused(trained, tmp_path):
    folder, expected, *_ = trained
    shutil.copytree(folder / "test", tmp_path / "new" / "newcomers")
    shutil.copytree(folder / "test", tmp_path / "new" / "others")
    run = load_run(folder / "moved")
    twice = torch.cat([expected, expected])
    if isinstance(run.problem, LongTail):
        with pytest.warns(DataNote, match="read without labels, because of classes .*: 'newcomers', 'others'"):
            found = run.predict(tmp_path / "new")
        assert found.labels is None
        with pytest.raises(ValueError, match="expected classes of the training images, got 'newcomers', 'others'"):
            run.evaluate(tmp_path / "new")
    else:
        found = run.predict(tmp_path / "new")
        assert sorted(set(found.labels.tolist())) == [5, 6]
        assert 0 < run.evaluate(tmp_path / "new", bootstrap=0).means["map"] < 1
    torch.testing.assert_close(found.outputs, twice, rtol=0, atol=1e-6)


@pytest.mark.parametrize("change", [{"size": 12}, {"classes": ["a"]}, {"channels": 3}, {"size": "x"}, {"more": 1}])
def test_a_changed_schema_file_is_named(trained, tmp_path, change):
    folder, *_ = trained
    shutil.copytree(folder / "moved", tmp_path / "run")
    path = tmp_path / "run" / "schema.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    if load_run(folder / "moved").problem.kind == "image-retrieval" and "classes" in change:
        load_run(tmp_path / "run")  # no size of the model depends on them
        return
    with pytest.raises(ValueError, match=r"expected the (weights of this run's model|schema of a)"):
        load_run(tmp_path / "run")


def test_weights_to_start_from_are_not_needed_to_use_a_run(tmp_path):
    vision = pytest.importorskip("torchvision")
    images, labels = make_pictures(classes=4, each=10, size=32, channels=3)
    torch.save(vision.models.resnet18().state_dict(), tmp_path / "start.pt")
    problem = ImageRetrieval(
        data={"size": 32, "held_out": "images", "validation": 0.2},
        model={"name": "resnet18", "weights": tmp_path / "start.pt", "frozen_batch_norm": True, "dimensions": 4},
        batches={"classes": 2, "samples_per_class": 2},
        budget={"steps": 1},
        evaluation={"every": 1},
    )
    pixels = images.permute(0, 2, 3, 1).numpy()
    run = train(problem, train=(pixels, labels.numpy()), out=tmp_path / "run")
    start = torch.load(tmp_path / "start.pt", weights_only=True)
    assert torch.equal(run.model.network.body.bn1.running_mean, start["bn1.running_mean"])
    assert str(tmp_path / "start.pt") in run.record["data"]
    (tmp_path / "start.pt").unlink()
    outputs = load_run(tmp_path / "run").predict(pixels[:6]).outputs
    torch.testing.assert_close(outputs, run.predict(pixels[:6]).outputs, rtol=0, atol=1e-6)


def test_a_folder_in_a_tar_file_is_trained_on_and_fingerprinted(tmp_path, monkeypatch):
    pytest.importorskip("PIL")
    monkeypatch.chdir(tmp_path)
    write_folder(tmp_path / "photos", classes=4, each=8)
    with tarfile.open("photos.tar", "w") as archive:
        archive.add("photos", arcname="all/train")
    shutil.rmtree("photos")
    problem = make_problem({"task": "longtail", **SHORT, "data": {"size": 16, "channels": 1}, "batches": {"size": 8}})
    named = problem.changed(data={**dict(problem.data), "train": "photos.tar/all/train"})
    runs = [train(problem, train="photos.tar/all/train", out="given"), train(named, out="named")]
    assert all(list(run.record["data"]) == ["photos.tar"] for run in runs)
    assert runs[0].test.means == pytest.approx(runs[1].test.means, nan_ok=True)


def rows(classes, each=12, seed=0):
    """Rows of classes by name, as a frame."""
    random = np.random.default_rng(seed)
    centres = {name: 3 * np.random.default_rng(ord(name[0])).normal(size=3) for name in classes}
    values = np.concatenate([centres[name] + random.normal(size=(each, 3)) for name in classes])
    return polars.DataFrame(
        {**{name: values[:, index] for index, name in enumerate("abc")}, "kind": np.repeat(list(classes), each)}
    )


@pytest.fixture
def rows_run(tmp_path):
    problem = Retrieval(data={"label": "kind"}, model={"dimensions": 4}, **SHORT)
    train(problem, train=rows("pqrstu"), out=tmp_path / "run")
    shutil.move(tmp_path / "run", tmp_path / "moved")
    return load_run(tmp_path / "moved")


def test_rows_are_embedded_whatever_the_order_of_columns_and_without_classes(rows_run):
    table = rows("pqrstu", seed=1)
    expected = rows_run.predict(table).outputs
    assert expected.shape == (72, 4)
    for other in (table.select("c", "kind", "a", "b"), table.drop("kind"), table.select("c", "b", "a")):
        assert torch.equal(rows_run.predict(other).outputs, expected)
    with pytest.warns(DataNote, match="ignored 1 columns that the training data did not have: d"):
        more = rows_run.predict(table.with_columns(d=1)).outputs
    assert torch.equal(more, expected)
    with pytest.raises(ValueError, match="got none called 'b'"):
        rows_run.predict(table.drop("b"))


def test_rows_of_classes_that_training_did_not_have_are_neighbours_too(rows_run):
    new = rows(["q", "w", "z"], seed=2)
    part = rows_run.read(new)
    assert part.labels.tolist() == [1] * 12 + [6] * 12 + [7] * 12  # known by name, new ones after those of training
    as_numbers = new.with_columns(kind=polars.Series(np.repeat(["x", "y", "z"], 12)))
    results = [rows_run.evaluate(table, bootstrap=0).means for table in (new, as_numbers)]
    assert results[0] == pytest.approx(results[1])


def test_one_class_to_learn_from_is_refused():
    problem = Retrieval(data={"label": "kind"}, **SHORT)
    table = rows("pq").with_columns(kind=polars.lit("p"))
    with pytest.raises(ValueError, match="data: expected at least 2 classes in train, got 1"):
        train(problem, train=table)


def test_images_with_several_classes_are_trained_on_and_scored(tmp_path):
    make_data(tmp_path, {"layout": "findings", "images": [90, 30], "classes": 3, "pixels": [20, 20]})
    problem = LongTail(
        data={"train": tmp_path, "validation": 0.2, "size": 16},
        loss="stable-ap",
        batches={"size": 16},
        budget={"steps": 4},
        evaluation={"every": 2},
    )
    run = train(problem, out=tmp_path / "run")
    assert set(run.test.means) >= {"ap", "auroc", "ap tail"}
    assert (tmp_path / "run" / "report.html").is_file()
    again = load_run(tmp_path / "run")
    predicted = again.predict(tmp_path / "images_001" / "images")
    assert predicted.outputs.shape == (120, 3)
    assert again.evaluate(tmp_path, bootstrap=0).means["ap"] == pytest.approx(run.test.means["ap"], abs=1e-6)
    with pytest.raises(ValueError, match="expected one class of each image, got several"):
        ImageRetrieval(data={"train": tmp_path, "size": 16}).read({})
    with pytest.raises(ValueError, match="to make a long tail of them, got images with several"):
        problem.changed(data={"train": tmp_path, "size": 16, "imbalance": 3}).read({})
