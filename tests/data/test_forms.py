"""Data besides tables, before training: each flaw is named where it is there, and nowhere else."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from rankwise.data.forms import check_form, form_of
from rankwise.rehearsal import make_data
from workers.boxed_pictures import write_coco

Image = pytest.importorskip("PIL.Image")

# The layout, its sizes, the path that a user names, and its form.
LAYOUTS = [
    ("table", {"rows": 30, "features": 2, "positives": 5}, "table.csv", "table"),
    ("letor", {"queries": [3, 1, 1], "documents": 4, "features": 3}, "train.txt", "table"),
    ("movielens", {"users": 9, "items": 12, "pairs": 60}, ".", "pairs"),
    ("movielens", {"users": 9, "items": 12, "pairs": 60, "file": "u.data"}, ".", "pairs"),
    ("netflix", {"users": 9, "items": 12, "pairs": 60}, ".", "pairs"),
    ("pair-lists", {"users": 9, "items": 40, "pairs": 60}, "train.txt", "pairs"),
    ("extreme", {"rows": [9, 4], "features": 20, "labels": 6, "words": 4, "own": 2}, "train.txt", "labels"),
    ("texts", {"rows": [9, 4], "vocabulary": 20, "labels": 6, "words": 4, "own": 2}, "train.txt", "labels"),
    ("arff", {"rows": [9, 4], "features": 20, "labels": 6, "words": 4, "own": 2}, "made-train.arff", "labels"),
    ("arrays", {"classes": [3, 2], "each": 4, "pixels": 8}, "train.npz", "images"),
    ("products", {"images": [12, 6], "classes": [4, 3], "pixels": [8, 8]}, "Ebay_train.txt", "images"),
    ("vehicles", {"images": [12, 6], "classes": [4, 3], "pixels": [8, 8]}, "train_test_split/train_list.txt", "images"),
    ("species", {"images": 20, "classes": 4, "pixels": [8, 8]}, ".", "images"),
    ("species", {"images": 20, "classes": 4, "pixels": [8, 8]}, "train2018.json", "images"),
    ("birds", {"images": 12, "classes": 4, "pixels": [8, 8]}, ".", "images"),
    ("cars", {"images": 12, "classes": 4, "pixels": [8, 8]}, "cars_annos.mat", "images"),
    ("findings", {"images": [12, 6], "classes": 3, "pixels": [8, 8]}, "Data_Entry_2017.csv", "images"),
    ("cifar", {"classes": 10, "each": [5, 2]}, "cifar-10-binary.tar.gz", "images"),
    ("coco", {"images": [4, 2], "boxes": 2, "classes": 3, "pixels": [32, 48]}, "annotations/instances_train2017.json",
     "boxes"),
    ("voc", {"images": [4, 2, 2], "boxes": 2, "classes": ["a", "b"], "pixels": [32, 48]}, ".", "boxes"),
]  # fmt: skip


@pytest.mark.parametrize("layout, sizes, name, form", LAYOUTS, ids=[f"{row[0]} {row[2]}" for row in LAYOUTS])
def test_the_form_is_that_of_the_layout_and_data_without_a_flaw_have_none(layout, sizes, name, form, tmp_path):
    make_data(tmp_path, {"layout": layout, **sizes})
    path = tmp_path / name
    assert form_of(path) == form
    if form != "table":
        assert {finding.severity for finding in check_form(path, form)} == {"note"}


def found(path: Path, form: str) -> dict[str, list[str]]:
    """Return what is found, by severity."""
    findings = check_form(path, form)
    return {
        severity: [each.what for each in findings if each.severity == severity]
        for severity in ("error", "warning", "note")
    }


def write_images(folder: Path, classes: dict[str, int]) -> None:
    random = np.random.default_rng(0)
    for name, count in classes.items():
        (folder / name).mkdir(parents=True)
        for number in range(count):
            pixels = random.integers(0, 256, (6 + number, 9, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")


def test_images_alone_in_their_class_and_unreadable_ones_are_named(tmp_path):
    write_images(tmp_path, {"ant": 3, "bee": 2, "cat": 1, "dog": 1, "elk": 1, "fox": 1})
    before = found(tmp_path, "images")
    assert before["error"] == []
    assert before["warning"] == ["4 classes with fewer than two images: cat, dog, elk and more"]
    assert before["note"] == [
        "9 images, 6 classes", "1 to 3 images of a class", "sides of 6 to 9 pixels, of 9 that were decoded",
    ]  # fmt: skip
    (tmp_path / "ant" / "1.png").write_bytes(b"no image")
    (wrong,) = found(tmp_path, "images")["error"]
    assert str(tmp_path / "ant" / "1.png") in wrong


def test_images_without_classes_are_named(tmp_path):
    write_images(tmp_path / "all", {"one": 3})
    assert found(tmp_path / "all" / "one", "images")["warning"] == ["images without classes"]


def test_classes_of_an_image_are_counted_where_there_are_several(tmp_path):
    make_data(tmp_path, {"layout": "findings", "images": [12, 6], "classes": 3, "pixels": [8, 8]})
    notes = found(tmp_path, "images")["note"]
    assert notes[0] == "18 images, 3 classes"
    assert notes[1].startswith("parts: ")
    (own,) = (note for note in notes if "classes of an image" in note)
    assert own.endswith("9 without")  # every second one


def test_images_without_boxes_and_classes_without_boxes_are_named(tmp_path):
    content = write_coco(tmp_path, count=6)
    assert found(tmp_path / "boxes.json", "boxes")["warning"] == []
    content["categories"].append({"id": 9, "name": "ring"})
    content["annotations"] = [each for each in content["annotations"] if each["image_id"] != 102]
    (tmp_path / "boxes.json").write_text(json.dumps(content))
    left = found(tmp_path / "boxes.json", "boxes")
    assert left["warning"] == ["classes without a box: ring"]
    assert left["note"] == [f"6 images, {len(content['annotations'])} boxes, 3 classes", "1 images without a box"]


def test_repeated_pairs_and_short_histories_are_named(tmp_path):
    pairs = [(user, item) for user in range(4) for item in range(3)]
    path = tmp_path / "pairs.txt"
    path.write_text("".join(f"{user} {item}\n" for user, item in pairs))
    assert found(path, "pairs") == {
        "error": [],
        "warning": [],
        "note": ["12 pairs of 4 users and 3 items, 3 to 3 of a user"],
    }
    path.write_text("".join(f"{user} {item}\n" for user, item in [*pairs[:-1], pairs[0], pairs[4]]))
    again = found(path, "pairs")
    assert again["warning"] == ["2 repeated pairs"]
    assert again["note"][1] == "1 users with fewer than three pairs stay in training in leave_one_out"


def test_examples_without_labels_and_labels_without_examples_are_counted(tmp_path):
    path = tmp_path / "train.txt"
    path.write_text("4 3 3\n0,2 0:1.0\n 1:1.0 2:0.5\n2 1:2.0\n0 0:1.0\n")
    assert found(path, "labels")["note"] == [
        "4 examples, 3 features, 3 labels", "1 examples without a label", "1 labels that no example has",
    ]  # fmt: skip
    path.write_text("3 3 3\n0,2 0:1.0\n1 1:1.0 2:0.5\n2 1:2.0\n")
    assert found(path, "labels")["note"] == ["3 examples, 3 features, 3 labels"]
