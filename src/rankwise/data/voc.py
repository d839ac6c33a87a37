"""Boxes in the form of Pascal VOC: a folder with Annotations (XML), JPEGImages and lists in ImageSets/Main."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.etree import ElementTree

from rankwise.data.boxes import BoxCollector, BoxSet
from rankwise.data.files import bad_line, is_finite_number, read_text
from rankwise.data.image_files import ENDINGS

__all__ = ["read_voc"]

PARTS = {"train": "train", "val": "validation", "test": "test"}
EDGES = ("xmin", "ymin", "xmax", "ymax")


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
