"""Image data sets as their authors ship them: read without a list made by hand, refused in one line if damaged."""

from __future__ import annotations

import io
import json
import os
import pickle
import tarfile

import numpy as np
import pytest
import torch

from rankwise.cli import main
from rankwise.data import read_images
from rankwise.data.cifar import read_cifar
from rankwise.rehearsal import make_data

pytest.importorskip("PIL")

SMALL = {
    "products": {"images": [24, 12], "classes": [6, 4], "pixels": [20, 30]},
    "vehicles": {"images": [24, 12], "classes": [6, 4], "pixels": [20, 30]},
    "species": {"images": 40, "classes": 5, "pixels": [20, 30]},
    "birds": {"images": 40, "classes": 5, "pixels": [20, 30]},
    "cars": {"images": 40, "classes": 5, "pixels": [20, 30]},
    "findings": {"images": [36, 12], "classes": 4, "pixels": [20, 20]},
    "cifar": {"classes": 10, "each": [5, 2]},
}


def made(folder, layout):
    """Paths of made data by part."""
    changes = make_data(folder, {"layout": layout, **SMALL[layout]}).changes
    return {key.removeprefix("data."): json.loads(value) for key, value in (each.split("=", 1) for each in changes)}


@pytest.mark.parametrize("layout", SMALL)
def test_check_data_reads_every_layout(layout, tmp_path, capsys):
    assert main(["check-data", *dict.fromkeys(made(tmp_path, layout).values())]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "images of a class" in out
    assert "usable: 0 errors" in out


def test_products_are_classes_and_paths_begin_at_the_list(tmp_path):
    sources = made(tmp_path, "products")
    assert (tmp_path / "Ebay_test.txt").read_text().splitlines()[:2] == [
        "image_id class_id super_class_id path",
        "1 7 1 chair_final/6_0.JPG",
    ]
    train, test = read_images(sources["train"]), read_images(sources["test"])
    assert train.classes == ("1", "2", "3", "4", "5", "6")
    assert test.classes == ("7", "8", "9", "10")
    assert torch.bincount(train.labels).tolist() == [4] * 6
    assert train.source.image(0).shape == (3, 20, 30)


def test_vehicles_lie_in_the_folder_image(tmp_path):
    sources = made(tmp_path, "vehicles")
    assert sources["test"].endswith("train_test_split/test_list_4.txt")
    assert read_images(sources["train"]).source.name(3) == "0000003.jpg"
    assert len(set(read_images(sources["train"]).classes) & set(read_images(sources["test"]).classes)) == 0


def test_species_are_read_from_both_files_or_from_lists_of_paths(tmp_path):
    folder = made(tmp_path, "species")["train"]
    images = read_images(folder)
    assert (len(images.source), images.classes) == (40, ("0", "1", "2", "3", "4"))
    assert len(read_images(tmp_path / "val2018.json").source) == 2
    (tmp_path / "splits").mkdir()
    listed = tmp_path / "splits" / "Inaturalist_test_set1.txt"
    listed.write_text("train_val2018/Aves/3/3.jpg\ntrain_val2018/Aves/4/4.jpg\n")
    assert read_images(listed).classes == ("train_val2018/Aves/3", "train_val2018/Aves/4")


@pytest.mark.parametrize("layout, named", [("birds", "train_test_split.txt"), ("cars", "cars_annos.mat")])
def test_a_folder_is_whole_and_its_list_names_the_parts(layout, named, tmp_path):
    folder = made(tmp_path, layout)["train"]
    assert read_images(folder).parts is None
    assert sorted(set(read_images(tmp_path / named).parts)) == ["test", "train"]
    assert len(read_images(folder).classes) == 5


def test_an_image_has_several_findings_or_none(tmp_path):
    images = read_images(made(tmp_path, "findings")["train"])
    lines = (tmp_path / "Data_Entry_2017.csv").read_text().splitlines()
    assert lines[5] == "00000004_000.png,Finding_2|Finding_0,0,4"
    assert images.classes == ("Finding_0", "Finding_1", "Finding_2", "Finding_3")
    assert images.labels[4].tolist() == [1, 0, 1, 0]
    assert images.labels[1].sum() == 0
    assert images.parts == ("train",) * 36 + ("test",) * 12


def python_cifar(path, **changes):
    """An archive of CIFAR-100 in the python version, as Python 2 wrote it."""
    draw = np.random.default_rng(0)
    batch = {"data": draw.integers(0, 256, (6, 3072), dtype=np.uint8), "fine_labels": [0, 1, 2, 0, 1, 2]}
    meta = {"fine_label_names": ["apple", "baby", "bear"], "coarse_label_names": ["fruit"]}
    with tarfile.open(path, "w:gz") as archive:
        for name, content in {"train": batch, "test": batch, "meta": meta, **changes}.items():
            raw = content if isinstance(content, bytes) else pickle.dumps(content, protocol=2)
            entry = tarfile.TarInfo(f"cifar-100-python/{name}")
            entry.size = len(raw)
            archive.addfile(entry, io.BytesIO(raw))
    return batch


def test_the_python_version_of_cifar_is_read_without_running_it(tmp_path):
    path = tmp_path / "cifar-100-python.tar.gz"
    batch = python_cifar(path)
    read = read_cifar(path)
    assert read.classes == ("apple", "baby", "bear")
    assert read.labels.tolist() == [0, 1, 2, 0, 1, 2] * 2
    assert (read.images[0].transpose(2, 0, 1).reshape(-1) == batch["data"][0]).all()
    assert read.parts == ("train",) * 6 + ("test",) * 6


class Trap:
    def __init__(self, sprung):
        self.sprung = str(sprung)

    def __reduce__(self):
        return os.mkdir, (self.sprung,)


def test_a_pickle_that_would_run_code_is_refused_and_runs_none(tmp_path):
    path = tmp_path / "cifar-100-python.tar.gz"
    python_cifar(path, train={"data": Trap(tmp_path / "sprung"), "fine_labels": [0]})
    with pytest.raises(ValueError, match=r"cifar-100-python\.tar\.gz, train: expected a file of CIFAR .*mkdir"):
        read_images(path)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    "train, message",
    [
        (b"", "expected a file of CIFAR"),
        (b"\x80\x02}q\x00.", "expected `data` and `labels`, got nothing"),
        (pickle.dumps([1], protocol=2), "expected a mapping, got list"),
        (pickle.dumps({"data": np.zeros((2, 3072)), "fine_labels": [0, 1]}, protocol=2), "does not hold bytes by rows"),
        ({"data": np.zeros((2, 9), dtype=np.uint8), "fine_labels": [0, 1]}, "expected 3072 bytes and a label"),
        ({"data": np.zeros((1, 3072), dtype=np.uint8), "fine_labels": [7]}, "expected labels from 0 to 2, got 0 to 7"),
    ],
)
def test_damaged_archives_of_cifar_are_refused(train, message, tmp_path):
    path = tmp_path / "cifar-100-python.tar.gz"
    python_cifar(path, train=train)
    with pytest.raises(ValueError, match="cifar-100-python") as caught:
        read_images(path)
    assert message in str(caught.value)


def test_a_pickle_that_names_itself_is_refused(tmp_path):
    path, endless = tmp_path / "cifar-100-python.tar.gz", {}
    endless["data"] = endless
    python_cifar(path, train=endless)
    with pytest.raises(ValueError, match="expected a file of CIFAR"):
        read_images(path)


def break_line(path, old, new):
    path.write_text(path.read_text().replace(old, new, 1))


@pytest.mark.parametrize(
    "layout, file, old, new, message",
    [
        ("products", "Ebay_train.txt", "chair_final/0_1.JPG", "../0_1.JPG", "line 3: expected a path below"),
        ("products", "Ebay_train.txt", "chair_final/0_1.JPG", "/etc/passwd", "line 3: expected a path below"),
        ("products", "Ebay_train.txt", "chair_final/0_1.JPG", "none.jpg", "line 3: expected the path of an image"),
        ("products", "Ebay_train.txt", "2 2 1 ", "2 2 ", "line 3: expected `image_id class_id super_class_id path`"),
        ("vehicles", "train_test_split/train_list.txt", "0000002 2", "0000002", "line 3: expected `image vehicle`"),
        ("species", "train2018.json", '"image_id": 2', '"image_id": 999', "annotation 0: expected image_id and"),
        ("species", "train2018.json", '"images"', '"pictures"', "expected a list 'images'"),
        ("species", "train2018.json", "{", "{{", "expected JSON that can be read"),
        ("birds", "image_class_labels.txt", "3 3\n", "", "expected the class of image 3, got none"),
        ("findings", "Data_Entry_2017.csv", "Finding Labels", "Labels", "expected a column 'Finding Labels'"),
        ("findings", "Data_Entry_2017.csv", "00000003_000", "nothing", "line 5: expected the name of an image"),
        ("findings", "Data_Entry_2017.csv", "Finding_2|", "|", "line 6: expected findings separated by |"),
        ("findings", "test_list.txt", "00000040_000.png\n", "", "got no '00000040_000.png'"),
    ],
)
def test_damaged_lists_are_refused_by_line(layout, file, old, new, message, tmp_path):
    source = made(tmp_path, layout)["train"]
    assert old in (tmp_path / file).read_text()
    break_line(tmp_path / file, old, new)
    with pytest.raises(ValueError, match=r"\S") as caught:
        read_images(source)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_matlab_files_that_expand_without_end_are_refused(tmp_path, monkeypatch):
    folder = made(tmp_path, "cars")["train"]
    monkeypatch.setattr("rankwise.data.image_layouts.FREE_BYTES", 1000)
    with pytest.raises(ValueError, match="when decompressed, got more"):
        read_images(folder)
    (tmp_path / "cars_annos.mat").write_bytes(b"\0" * 500)
    with pytest.raises(ValueError, match=r"cars_annos\.mat: expected `annotations`"):
        read_images(folder)
