"""Forms of data besides tables: which one a path has, and what goes wrong with such data in training."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile, is_zipfile

import torch
from torch import Tensor

from rankwise.data.arff import is_multilabel_arff
from rankwise.data.check import Finding
from rankwise.data.cifar import is_cifar
from rankwise.data.detection import read_boxes
from rankwise.data.files import is_letor, read_line_blocks
from rankwise.data.image_files import ENDINGS, TARS, container, read_images
from rankwise.data.image_layouts import find_layout
from rankwise.data.interaction_schema import learn_interactions
from rankwise.data.interactions import is_netflix
from rankwise.data.sparse_schema import read_multilabel

__all__ = ["check_form", "form_of"]

MOVIELENS = ("u.data", "ratings.dat", "ratings.csv")
# Images that are decoded to see whether they can be read, evenly spread.
DECODED = 50


def form_of(path: Path) -> str:
    """Return the form of the data at a path: "table", "images", "boxes", "pairs" (users and items) or "labels" (rows
    with many labels)."""
    name = path.name.lower()
    if path.is_dir():
        if is_netflix(path) or any((path / each).is_file() for each in MOVIELENS):
            return "pairs"
        return "boxes" if (path / "Annotations").is_dir() else "images"
    if is_cifar(path) or name.endswith((*TARS, ".mat", *ENDINGS)) or container(path) != path:
        return "images"
    if name.endswith(".npz") and is_zipfile(path):
        with ZipFile(path) as file:
            return "images" if "images.npy" in file.namelist() else "table"
    if name.endswith(".json"):
        return "boxes" if '"bbox"' in path.read_text(encoding="utf-8", errors="replace") else "images"
    if name.endswith(".csv"):
        return "images" if find_layout(path) is not None else "table"
    if is_multilabel_arff(path):
        return "labels"
    if not name.removesuffix(".gz").removesuffix(".xz").endswith(".txt") or is_letor(path):
        return "table"
    return _form_of_text(path)


def _form_of_text(path: Path) -> str:
    first = next((line for block in read_line_blocks(path) for _, line in block.lines() if line.strip()), b"")
    fields = first.decode("utf-8", "replace").split()
    if b"\t" in first or (len(fields) == 3 and all(field.isdigit() for field in fields) and int(fields[0]) > 1):
        return "labels"
    listed = fields[-1:] == ["path"] or fields[-1].lower().endswith(ENDINGS)
    return (
        "images" if listed or (path.parent.parent / "image").is_dir() or (path.parent / "image").is_dir() else "pairs"
    )


def check_form(path: Path, form: str) -> list[Finding]:
    """Return what is noticed in data of a form other than a table.

    Args:
        path: the data.
        form: see `form_of`.
    """
    checks = {"images": _check_images, "boxes": _check_boxes, "pairs": _check_pairs, "labels": _check_labels}
    return list(checks[form](path))


def _check_images(path: Path) -> Iterator[Finding]:
    part, images = path.resolve().name, read_images(path, labels="optional")
    count = len(images.source)
    yield Finding("note", part, f"{count:,} images, {len(images.classes):,} classes")
    named = {name: (images.parts or ()).count(name) for name in dict.fromkeys(images.parts or ())}
    if named:
        yield Finding("note", part, "parts: " + ", ".join(f"{name} ({number:,})" for name, number in named.items()))
    if images.labels is None:
        yield Finding("warning", part, "images without classes", "put each class into a folder of its own")
    elif images.labels.dim() == 2:
        own = images.labels.sum(1)
        yield Finding(
            "note", part, f"{float(own.double().mean()):.2f} classes of an image, {int((own == 0).sum()):,} without"
        )
        yield from _class_sizes(part, images.labels.sum(0), images.classes)
    else:
        yield from _class_sizes(part, torch.bincount(images.labels, minlength=len(images.classes)), images.classes)
    shapes = set()
    for index in (torch.arange(min(DECODED, count)) * count // min(DECODED, count)).tolist():
        try:
            shapes.add(tuple(images.source.image(index).shape[1:]))
        except (ValueError, FileNotFoundError) as problem:
            yield Finding("error", part, str(problem), "replace the file, or leave it out")
    if shapes:
        low, high = min(min(each) for each in shapes), max(max(each) for each in shapes)
        yield Finding("note", part, f"sides of {low} to {high} pixels, of {min(DECODED, count)} that were decoded")


def _class_sizes(part: str, counts: Tensor, classes: tuple[str, ...]) -> Iterator[Finding]:
    low, high = int(counts.min()), int(counts.max())
    yield Finding("note", part, f"{low:,} to {high:,} images of a class")
    single = (counts < 2).nonzero().squeeze(1).tolist()
    if single:
        names = ", ".join(classes[number] for number in single[:3]) + (" and more" if len(single) > 3 else "")
        yield Finding(
            "warning",
            part,
            f"{len(single):,} classes with fewer than two images: {names}",
            "such an image has no match",
        )


def _check_boxes(path: Path) -> Iterator[Finding]:
    part, boxes = path.resolve().name, read_boxes(path, bad_boxes="skip")
    counts = torch.zeros(len(boxes.classes), dtype=torch.int64)
    for image in boxes.images:
        counts += torch.bincount(image.labels, minlength=len(counts))
    yield Finding("note", part, f"{len(boxes.images):,} images, {int(counts.sum()):,} boxes, {len(counts)} classes")
    empty = sum(not len(image.labels) for image in boxes.images)
    if empty:
        yield Finding("note", part, f"{empty:,} images without a box")
    if bool((counts == 0).any()):
        names = [boxes.classes[number] for number in (counts == 0).nonzero().squeeze(1).tolist()]
        yield Finding("warning", part, f"classes without a box: {', '.join(names[:5])}", "leave them out: data.classes")


def _check_pairs(path: Path) -> Iterator[Finding]:
    part, (pairs, _) = path.resolve().name, learn_interactions(path, user=0, item=1, time=None, header="auto")
    of_users = torch.bincount(pairs.users, minlength=len(pairs.user_names))
    yield Finding(
        "note",
        part,
        f"{len(pairs):,} pairs of {len(pairs.user_names):,} users and {len(pairs.item_names):,} items, "
        f"{int(of_users.min()):,} to {int(of_users.max()):,} of a user",
    )
    repeated = len(pairs) - len((pairs.users * len(pairs.item_names) + pairs.items).unique())
    if repeated:
        yield Finding("warning", part, f"{repeated:,} repeated pairs", "each pair counts once, the last time")
    short = int((of_users < 3).sum())
    if short:
        yield Finding("note", part, f"{short:,} users with fewer than three pairs stay in training in leave_one_out")


def _check_labels(path: Path) -> Iterator[Finding]:
    part, rows = path.resolve().name, read_multilabel(path)
    width = rows.features.width
    yield Finding("note", part, f"{len(rows):,} examples, {width:,} features, {rows.labels.width:,} labels")
    own = rows.labels.starts.diff()
    if bool((own == 0).any()):
        yield Finding("note", part, f"{int((own == 0).sum()):,} examples without a label", "they are no list to rank")
    unused = rows.labels.width - len(rows.labels.columns.unique())
    if unused:
        yield Finding("note", part, f"{unused:,} labels that no example has")
