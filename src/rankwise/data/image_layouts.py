"""Image data sets in the layouts in which their authors ship them."""

from __future__ import annotations

import csv
import io
import json
import struct
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from rankwise.data.files import FREE_BYTES, bad_line, check_file, read_text
from rankwise.extras import require

__all__ = ["ListedImages", "find_layout"]

PRODUCTS = ("image_id", "class_id", "super_class_id", "path")
NO_FINDING = "No Finding"
# Type of a compressed element of a MATLAB file, and the bytes before the first element.
COMPRESSED, MATLAB_HEAD = 15, 128


class ListedImages(NamedTuple):
    """Encoded images: path or content and name of each; its class, or all its classes; its part where it is known."""

    files: list[tuple[Path | bytes, str]]
    words: list[str] | list[tuple[str, ...]] | None = None
    parts: list[str] | None = None


def find_layout(path: Path) -> Callable[[Path], ListedImages] | None:
    """Return the reader of a data set in its native layout; None if the path is none that is known.

    | data set | path |
    | --- | --- |
    | Stanford Online Products | `Ebay_train.txt`, `Ebay_test.txt` |
    | VehicleID | `train_test_split/train_list.txt`, `test_list_800.txt`, ... |
    | iNaturalist | `train2018.json`, `val2018.json`, a folder with both; a text file with a path in each line |
    | CUB-200-2011 | the folder; `train_test_split.txt` in it names the parts |
    | Cars-196 | the folder; `cars_annos.mat` in it names the parts; `cars_train_annos.mat` of the devkit |
    | ChestX-ray14 | `Data_Entry_2017.csv`, or the folder that holds it |
    """
    name = path.name.lower()
    if path.is_dir():
        if (path / "images.txt").is_file() and (path / "image_class_labels.txt").is_file():
            return _read_birds
        if (path / "cars_annos.mat").is_file():
            return lambda folder: _read_cars(folder / "cars_annos.mat")._replace(parts=None)
        if sheet := _sheet(path):
            return lambda folder: _read_findings(sheet)
        return _read_species if _species_files(path) else None
    if name.endswith(".mat"):
        return _read_cars
    if name.endswith(".json"):
        return _read_species
    if name.startswith("data_entry_2017") and name.endswith(".csv"):
        return _read_findings
    if name == "train_test_split.txt" and (path.parent / "image_class_labels.txt").is_file():
        return _read_birds
    return _read_text_list if name.endswith(".txt") else None


def _read_text_list(path: Path) -> ListedImages:
    """Read a list with a line per image: that of Stanford Online Products, of VehicleID, or paths alone."""
    lines = [(number, line.split()) for number, line in enumerate(read_text(path).splitlines(), 1) if line.strip()]
    if not lines:
        raise ValueError(f"{path}: expected images, got a list without lines")
    first = tuple(lines[0][1])
    if first == PRODUCTS:
        rows = _fields(path, lines[1:], "`image_id class_id super_class_id path`", 4)
        return _listed(path, ((number, row[3], row[1]) for number, row in rows), path.parent)
    if len(first) == 2:
        rows = _fields(path, lines, "`image vehicle`", 2)
        folder = next((each / "image" for each in (path.parent, path.parent.parent) if (each / "image").is_dir()), None)
        if folder is None:
            raise FileNotFoundError(f"{path}: expected the folder `image` beside the list or its folder, got none")
        return _listed(path, ((number, f"{row[0]}.jpg", row[1]) for number, row in rows), folder)
    rows = _fields(path, lines, "`image_id class_id super_class_id path`, `image vehicle` or the path of an image", 1)
    folder = next((each for each in (path.parent, path.parent.parent) if (each / rows[0][1][0]).is_file()), path.parent)
    return _listed(path, ((number, row[0], str(PurePosixPath(row[0]).parent)) for number, row in rows), folder)


def _read_species(path: Path) -> ListedImages:
    """Read iNaturalist's JSON: `images` with `file_name`, `annotations` with `image_id` and `category_id`.

    A folder holds the files of training and validation images, all of which are read: a competition's validation part
    has the classes of its training part, while retrieval holds classes out.
    """
    files = _species_files(path) if path.is_dir() else [path]
    listed = [_species_of(file) for file in files]
    return ListedImages([each for one in listed for each in one[0]], [word for one in listed for word in one[1]])


def _species_files(folder: Path) -> list[Path]:
    return [file for year in ("2018", "2017", "2019") for file in sorted(folder.glob(f"*{year}.json"))
            if file.name.startswith(("train", "val"))]  # fmt: skip


def _species_of(path: Path) -> tuple[list[tuple[Path | bytes, str]], list[str]]:
    try:
        content = json.loads(read_text(path))
    except (json.JSONDecodeError, RecursionError) as problem:
        raise ValueError(f"{path}: expected JSON that can be read ({problem})") from None
    names: dict[int, str] = {}
    for index, each in enumerate(_records(path, content, "images")):
        if not isinstance(each, Mapping) or not _whole(each.get("id")) or not isinstance(each.get("file_name"), str):
            raise ValueError(f"{path}, image {index}: expected id and file_name, got {_short(each)}")
        names[each["id"]] = each["file_name"]
    rows = []
    for index, each in enumerate(_records(path, content, "annotations")):
        known = isinstance(each, Mapping) and _whole(each.get("image_id")) and _whole(each.get("category_id"))
        if not known or each["image_id"] not in names:
            raise ValueError(f"{path}, annotation {index}: expected image_id and category_id, got {_short(each)}")
        rows.append((index, names[each["image_id"]], str(each["category_id"])))
    if not rows:
        raise ValueError(f"{path}: expected annotations, got none")
    listed = _listed(path, rows, path.parent, what="annotation")
    return listed.files, list(map(str, listed.words or ()))


def _read_birds(path: Path) -> ListedImages:
    """Read CUB-200-2011; the parts are named if the path is its `train_test_split.txt`."""
    folder = path if path.is_dir() else path.parent
    images, labels = (_numbered(folder / name) for name in ("images.txt", "image_class_labels.txt"))
    names = _numbered(folder / "classes.txt") if (folder / "classes.txt").is_file() else {}
    rows = []
    for line, (number, file) in enumerate(images.items(), 1):
        if number not in labels:
            raise ValueError(f"{folder / 'image_class_labels.txt'}: expected the class of image {number}, got none")
        rows.append((line, file, names.get(labels[number], labels[number])))
    listed = _listed(folder / "images.txt", rows, folder / "images")
    if path.is_dir():
        return listed
    split = _numbered(path)
    if missing := [number for number in images if split.get(number) not in ("0", "1")]:
        raise ValueError(f"{path}: expected 0 or 1 for image {missing[0]}, got {split.get(missing[0])!r}")
    return listed._replace(parts=["train" if split[number] == "1" else "test" for number in images])


def _read_cars(path: Path) -> ListedImages:
    """Read the MATLAB files of Cars-196: `cars_annos.mat`, which names the parts, or one of the devkit."""
    require("reading MATLAB files", ("scipy",), extra="data")
    from scipy.io import loadmat

    _check_matlab(path)
    try:
        content = loadmat(path, squeeze_me=True, chars_as_strings=True)
        annotations = content["annotations"].reshape(-1)
        fields = annotations.dtype.names or ()
        file = "relative_im_path" if "relative_im_path" in fields else "fname"
        if "class" not in fields or file not in fields:
            raise ValueError(f"annotations with the fields {', '.join(fields) or 'none'}")
        rows = [(index, str(each[file]), str(int(each["class"]))) for index, each in enumerate(annotations)]
        tested = [int(each["test"]) for each in annotations] if "test" in fields else None
    except Exception as problem:  # scipy has errors of many kinds for a file that is none
        said = " ".join(str(problem).split()) or type(problem).__name__
        raise ValueError(f"{path}: expected `annotations` with file and class of each image ({said})") from None
    if not rows:
        raise ValueError(f"{path}: expected images, got none")
    folder = path.parent
    if file == "fname":
        part = "cars_train" if "train" in path.name else "cars_test"
        folder = next((each / part for each in (folder, folder.parent) if (each / part).is_dir()), folder)
    listed = _listed(path, rows, folder, what="annotation")
    return listed if tested is None else listed._replace(parts=["test" if each else "train" for each in tested])


def _check_matlab(path: Path) -> None:
    """Refuse a MATLAB file whose compressed elements hold far more than such files do."""
    content, left = check_file(path).read_bytes(), FREE_BYTES
    start = MATLAB_HEAD
    while start + 8 <= len(content):
        kind, size = struct.unpack("<II", content[start : start + 8])
        if kind == COMPRESSED:
            try:
                left -= len(zlib.decompressobj().decompress(content[start + 8 : start + 8 + size], left + 1))
            except zlib.error as problem:
                raise ValueError(f"{path}: expected a whole MATLAB file ({problem})") from None
        if left < 0:
            raise ValueError(f"{path}: expected at most {FREE_BYTES >> 20} MiB when decompressed, got more")
        start += 8 + size


def _read_findings(path: Path) -> ListedImages:
    """Read ChestX-ray14: an image may have several findings, or none.

    `train_val_list.txt` and `test_list.txt` beside the sheet name the parts. Images lie in `images`, or in
    `images_001/images` and so on.
    """
    reader = csv.DictReader(io.StringIO(read_text(path)))
    columns = [name.strip() for name in reader.fieldnames or ()]
    reader.fieldnames = columns
    for wanted in ("Image Index", "Finding Labels"):
        if wanted not in columns:
            raise ValueError(f"{path}: expected a column {wanted!r}, got {', '.join(columns) or 'none'}")
    where = _images_below(path.parent)
    files: list[tuple[Path | bytes, str]] = []
    words: list[tuple[str, ...]] = []
    for row in reader:
        name, said = (str(row.get(key) or "").strip() for key in ("Image Index", "Finding Labels"))
        if name not in where:
            bad_line(path, reader.line_num, "the name of an image in `images`", f"{name!r}, which is none there")
        found = tuple(word.strip() for word in said.split("|"))
        if not all(found):
            bad_line(path, reader.line_num, "findings separated by |", repr(said))
        files.append((where[name], str(where[name])))
        words.append(tuple(word for word in found if word != NO_FINDING))
    if not files:
        raise ValueError(f"{path}: expected images, got a sheet without rows")
    return ListedImages(files, words, _parts_of_findings(path, [Path(name).name for _, name in files]))


def _parts_of_findings(path: Path, names: Sequence[str]) -> list[str] | None:
    part_of: dict[str, str] = {}
    for part, name in (("train", "train_val_list.txt"), ("test", "test_list.txt")):
        listed = path.parent / name
        if not listed.is_file():
            return None
        part_of |= {line.strip(): part for line in read_text(listed).splitlines() if line.strip()}
    if unlisted := [name for name in names if name not in part_of]:
        raise ValueError(f"{path}: expected every image in train_val_list.txt or test_list.txt, got no {unlisted[0]!r}")
    return [part_of[name] for name in names]


def _images_below(folder: Path) -> dict[str, Path]:
    """Return the images of ChestX-ray14 by name."""
    folders = [folder / "images", *sorted(folder.glob("images_*/images"))]
    found = {file.name: file for each in folders if each.is_dir() for file in each.iterdir()}
    if not found:
        raise FileNotFoundError(f"{folder}: expected images in `images` or `images_001/images`, got none")
    return found


def _sheet(folder: Path) -> Path | None:
    return next((file for file in sorted(folder.glob("Data_Entry_2017*.csv")) if file.is_file()), None)


def _listed(path: Path, rows: Iterable[tuple[int, str, str]], folder: Path, *, what: str = "line") -> ListedImages:
    """Return images from their line in a list, their path below a folder and their class."""
    files: list[tuple[Path | bytes, str]] = []
    words: list[str] = []
    for line, name, word in rows:
        inside = PurePosixPath(name)
        if inside.is_absolute() or ".." in inside.parts:
            raise ValueError(f"{path}, {what} {line}: expected a path below {folder}, got {_short(name)}")
        file = folder / inside
        if not file.is_file():
            raise ValueError(f"{path}, {what} {line}: expected the path of an image, got {name!r}, no file in {folder}")
        files.append((file, str(file)))
        words.append(word)
    return ListedImages(files, words)


def _fields(
    path: Path, lines: Sequence[tuple[int, list[str]]], expected: str, count: int
) -> list[tuple[int, list[str]]]:
    """Return the fields of lines, all of which have so many."""
    for number, fields in lines:
        if len(fields) != count:
            bad_line(path, number, expected, repr(" ".join(fields)))
    if not lines:
        raise ValueError(f"{path}: expected images, got a list without them")
    return list(lines)


def _numbered(path: Path) -> dict[str, str]:
    """Return lines `number value` as a mapping."""
    lines = [
        (number, line.split(maxsplit=1)) for number, line in enumerate(read_text(path).splitlines(), 1) if line.strip()
    ]
    return {fields[0]: fields[1].strip() for _, fields in _fields(path, lines, "`number value`", 2)}


def _records(path: Path, content: Any, key: str) -> list[Any]:
    if not isinstance(content, dict) or not isinstance(content.get(key), list):
        raise ValueError(f"{path}: expected a list {key!r}, in the form of iNaturalist, got none")
    records: list[Any] = content[key]
    return records


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
