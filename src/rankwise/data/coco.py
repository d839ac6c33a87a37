"""Boxes in the form of COCO: one JSON file, images in a folder."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rankwise.data.boxes import BoxCollector, BoxSet
from rankwise.data.files import read_text
from rankwise.data.schema import Labels

__all__ = ["read_coco"]


def read_coco(
    path: str | Path,
    images: str | Path | None = None,
    *,
    classes: Sequence[str] | None = None,
    bad_boxes: str = "error",
    labels: Labels = "required",
) -> BoxSet:
    """Read boxes in the form of COCO: `images`, `annotations` (`bbox` = left, top, width, height) and `categories`.

    Args:
        path: the JSON file.
        images: the folder of the images; None looks beside the file, in `images` there, and, as COCO itself has it, in
            the folder that is called like the file, one up (`train2017` for `annotations/instances_train2017.json`).
        classes: names of the classes; None takes the categories in the order of their ids.
        bad_boxes: "error", or "skip" to leave boxes without an area out.
        labels: "optional" reads a file without `annotations`, too.

    Crowds are ignored: neither missed nor wrong.
    """
    path = Path(path)
    content = _load(path, labels)
    annotated = "annotations" in content
    names = _categories(path, content.get("categories", ()))
    collector = BoxCollector(tuple(names.values()) if classes is None else classes, bad_boxes)
    known = _images(path, content["images"])
    objects: dict[Any, list[tuple[str, str, list[float], bool]]] = {number: [] for number in known}
    for index, each in enumerate(content.get("annotations", ())):
        image, box = _annotation(f"{path}, annotation {index}", each, known, names)
        objects[image].append(box)
    folder = _folder(path, images, next(iter(known.values()))["file_name"]) if known else path.parent
    for number, image in known.items():
        file = folder / image["file_name"]
        if not file.is_file():
            raise FileNotFoundError(f"{path}, image {number}: expected the file {file}, got none there")
        collector.add(file, image["height"], image["width"], iter(objects[number]))
    return replace(collector.finish(path), annotated=annotated)


def _load(path: Path, labels: Labels) -> Mapping[str, list[Any]]:
    try:
        content = json.loads(read_text(path))
    except (json.JSONDecodeError, RecursionError) as problem:
        raise ValueError(f"{path}: expected JSON that can be read ({problem})") from None
    unlabelled = labels == "optional" and isinstance(content, dict) and "annotations" not in content
    for key in ("images",) if unlabelled else ("images", "annotations", "categories"):
        if not isinstance(content, dict) or not isinstance(content.get(key), list):
            raise ValueError(f"{path}: expected a list {key!r}, in the form of COCO, got none")
    records: dict[str, list[Any]] = content
    return records


def _categories(path: Path, categories: Sequence[Any]) -> dict[Any, str]:
    names: dict[Any, str] = {}
    for index, each in enumerate(categories):
        if not _has(each, id=int, name=str):
            raise ValueError(f"{path}, category {index}: expected an id and a name, got {_short(each)}")
        if each["id"] in names:
            raise ValueError(f"{path}, category {index}: expected an id of its own, got {each['id']} again")
        names[each["id"]] = each["name"]
    return dict(sorted(names.items()))


def _images(path: Path, images: Sequence[Any]) -> dict[Any, Mapping[str, Any]]:
    by_id: dict[Any, Mapping[str, Any]] = {}
    for index, each in enumerate(images):
        where = f"{path}, image {index}"
        if not _has(each, id=int, file_name=str, height=int, width=int):
            raise ValueError(f"{where}: expected id, file_name, height and width, got {_short(each)}")
        if each["height"] < 1 or each["width"] < 1:
            raise ValueError(f"{where}: expected at least 1 x 1 pixels, got {each['width']} x {each['height']}")
        if each["id"] in by_id:
            raise ValueError(f"{where}: expected an id of its own, got {each['id']} again")
        file = Path(each["file_name"])
        if file.is_absolute() or ".." in file.parts:
            raise ValueError(f"{where}: expected a file_name inside the folder of the images, got {str(file)!r}")
        by_id[each["id"]] = each
    return by_id


def _annotation(
    where: str, each: Any, known: Mapping[Any, object], names: Mapping[Any, str]
) -> tuple[Any, tuple[str, str, list[float], bool]]:
    if not _has(each, image_id=int, category_id=int, bbox=list):
        raise ValueError(f"{where}: expected image_id, category_id and bbox, got {_short(each)}")
    if each["image_id"] not in known:
        raise ValueError(f"{where}: expected the id of an image, got {each['image_id']}, which no image has")
    if each["category_id"] not in names:
        raise ValueError(f"{where}: expected the id of a category, got {each['category_id']}, which none has")
    box = each["bbox"]
    numbers = [value for value in box if isinstance(value, int | float) and math.isfinite(value)]
    if len(box) != 4 or len(numbers) != 4:
        raise ValueError(f"{where}: expected left, top, width and height as bbox, got {_short(box)}")
    left, top, width, height = map(float, numbers)
    corners = [left, top, left + width, top + height]
    return each["image_id"], (where, names[each["category_id"]], corners, bool(each.get("iscrowd", 0)))


def _folder(path: Path, images: str | Path | None, first: str) -> Path:
    if images is not None:
        return Path(images)
    above = path.parent.parent
    tried = [path.parent, path.parent / "images", above / path.stem.removeprefix("instances_"), above / "images"]
    chosen = next((folder for folder in tried if (folder / first).is_file()), None)
    if chosen is None:
        folders = ", ".join(map(str, tried))
        raise FileNotFoundError(f"{path}: expected the image {first!r} in one of {folders}; say where images are")
    return chosen


def _has(value: Any, **kinds: type) -> bool:
    return isinstance(value, dict) and all(_is(value.get(key), kind) for key, kind in kinds.items())


def _is(value: Any, kind: type) -> bool:
    return isinstance(value, kind) and not (kind is int and isinstance(value, bool))


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
