"""Boxes in the forms of COCO (one JSON file) and Pascal VOC (an XML file for each image)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from rankwise.data.boxes import BoxCollector, BoxSet
from rankwise.data.files import bad_line, is_finite_number, read_text
from rankwise.data.image_files import ENDINGS
from rankwise.data.schema import Labels

__all__ = ["read_coco", "read_voc"]

PARTS = {"train": "train", "val": "validation", "test": "test"}
EDGES = ("xmin", "ymin", "xmax", "ymax")


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


def read_voc(path: str | Path, *, classes: Sequence[str] | None = None, bad_boxes: str = "error") -> BoxSet:
    """Read boxes in the form of Pascal VOC.

    Args:
        path: the folder that holds `Annotations` and `JPEGImages`; or one of the lists in its `ImageSets/Main`, for the
            images it names. In a folder the lists `train.txt`, `val.txt` and `test.txt`, if all are there, name the
            parts, and images in none of them are left out.
        classes: names of the classes; None takes the names that occur, sorted.
        bad_boxes: "error", or "skip" to leave boxes without an area out.

    Edges are taken as they are written: `xmin` 0 or 1 is the left edge of the image, `xmax` its width at most. Objects
    marked as difficult are ignored: neither missed nor wrong. A document type or an entity in a file
    is refused, not read.
    """
    path = Path(path)
    collector = BoxCollector(classes, bad_boxes)
    if path.is_dir():
        root, stems, parts = path, *_all_stems(path)
    elif path.suffix.lower() == ".txt" and path.is_file():
        root, stems, parts = path.parent.parent.parent, _listed(path), None
    else:
        raise ValueError(f"{path}: expected a folder in the form of Pascal VOC, or a list in its ImageSets/Main")
    for stem in stems:
        _read_file(root, stem, collector)
    return collector.finish(path, parts)


def _all_stems(root: Path) -> tuple[list[str], list[str] | None]:
    """Return the images of a folder, and the part of each if its lists say so."""
    if not (root / "Annotations").is_dir():
        raise ValueError(f"{root}: expected a folder Annotations in it, in the form of Pascal VOC, got none")
    lists = {part: root / "ImageSets" / "Main" / f"{name}.txt" for name, part in PARTS.items()}
    if not all(file.is_file() for file in lists.values()):
        return sorted(file.stem for file in (root / "Annotations").glob("*.xml")), None
    list_of: dict[str, str] = {}
    for part, file in lists.items():
        for stem in _listed(file):
            if stem in list_of:
                raise ValueError(f"{file}: expected images of no other list, got {stem!r} of {list_of[stem]}")
            list_of[stem] = part
    return list(list_of), list(list_of.values())


def _listed(path: Path) -> list[str]:
    """Return the first word of each line."""
    stems: list[str] = []
    for number, line in enumerate(read_text(path).splitlines(), 1):
        if not line.strip():
            continue
        stem = line.split()[0]
        if Path(stem).name != stem:
            bad_line(path, number, "the name of an image, without a folder", repr(stem))
        stems.append(stem)
    if len(set(stems)) < len(stems):
        twice = next(stem for stem in stems if stems.count(stem) > 1)
        raise ValueError(f"{path}: expected every image once, got {twice!r} twice")
    return stems


def _read_file(root: Path, stem: str, collector: BoxCollector) -> None:
    path = root / "Annotations" / f"{stem}.xml"
    tree = _parse(path)
    size = tree.find("size")
    if size is None:
        raise ValueError(f"{path}: expected <size> with <width> and <height>, got none")
    height, width = (int(_number(path, size, "<size>", name)) for name in ("height", "width"))
    if height < 1 or width < 1:
        raise ValueError(f"{path}: expected a size of at least 1 x 1 pixels, got {width} x {height}")
    collector.add(_image_of(root, stem, tree, path), height, width, _objects(path, tree))


def _objects(path: Path, tree: ElementTree.Element) -> Iterator[tuple[str, str, list[float], bool]]:
    for number, each in enumerate(tree.iter("object"), 1):
        where = f"{path}, object {number}"
        name = (each.findtext("name") or "").strip()
        box = each.find("bndbox")
        if not name or box is None:
            raise ValueError(f"{where}: expected <name> and <bndbox>, got no {'<name>' if not name else '<bndbox>'}")
        edges = [_number(where, box, "<bndbox>", edge) for edge in EDGES]
        yield where, name, edges, (each.findtext("difficult") or "0").strip() == "1"


def _parse(path: Path) -> ElementTree.Element:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file of annotations")
    text = read_text(path)
    # Entities can be made to grow without bounds, or to read other files; annotations have no use for them. Text with
    # zeros may be taken for UTF-16 by the parser, in which entities are spelled otherwise.
    if "\0" in text:
        raise ValueError(f"{path}: expected XML in UTF-8, got a zero byte (UTF-16?)")
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise ValueError(f"{path}: expected annotations alone, got a document type or an entity")
    try:
        tree = ElementTree.fromstring(text)  # noqa: S314 (entities are refused above)
    except ElementTree.ParseError as problem:
        raise ValueError(f"{path}: expected XML that can be read ({problem})") from None
    if tree.tag != "annotation":
        raise ValueError(f"{path}: expected <annotation>, got <{tree.tag}>")
    return tree


def _number(where: object, parent: ElementTree.Element, of: str, name: str) -> float:
    text = parent.findtext(name)
    if text is None or not is_finite_number(text):
        raise ValueError(f"{where}: expected a number as <{name}> of {of}, got {text!r}")
    return float(text)


def _image_of(root: Path, stem: str, tree: ElementTree.Element, path: Path) -> Path:
    folder = root / "JPEGImages"
    # Only its name: a path in an annotation is one of the machine it was written on.
    named = Path((tree.findtext("filename") or "").strip().replace("\\", "/")).name
    wanted = [named, *(stem + ending for ending in ENDINGS)]
    file = next((folder / name for name in wanted if name and (folder / name).is_file()), None)
    if file is None:
        raise FileNotFoundError(f"{path}: expected its image {named or stem!r} in {folder}, got none there")
    return file
