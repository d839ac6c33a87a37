"""Made data in the layouts of real data sets: true numbers of classes, items, features and pixels, random content."""

from __future__ import annotations

import inspect
import io
import json
import os
import shutil
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankwise.extras import require

__all__ = ["LAYOUTS", "Made", "make_data"]

# Rows of documents, ratings of a user and different pictures that are made; the rest would only repeat them.
MOST_DOCUMENTS, MOST_RATINGS, PICTURES = 60_000, 30, 24
SEED = 0


@dataclass(frozen=True)
class Made:
    """Data that were made.

    Attributes:
        changes: what a recipe needs to read them, `key=value` each.
        rows: made rows (users, images, lists) per row of the real data.
        content: made numbers in memory per number of the real data.
    """

    changes: tuple[str, ...]
    rows: float = 1.0
    content: float = 1.0


def make_data(folder: Path, shape: Mapping[str, Any]) -> Made:
    """Write data of a shape into a folder.

    Args:
        folder: empty.
        shape: `layout`, a name of `LAYOUTS`, and the sizes that its function takes.
    """
    sizes = dict(shape)
    layout = sizes.pop("layout", None)
    if layout not in LAYOUTS:
        raise ValueError(f"about.shape.layout: expected one of {', '.join(LAYOUTS)}, got {layout!r}")
    try:
        inspect.signature(LAYOUTS[layout]).bind(folder, **sizes)
    except TypeError as problem:
        raise ValueError(f"about.shape: {problem}, the sizes of the layout {layout}") from None
    return LAYOUTS[layout](folder, **sizes)


def _table(folder: Path, *, rows: int, features: int, positives: int) -> Made:
    """A CSV file with names of columns, the label last."""
    draw = np.random.default_rng(SEED)
    names = [f"feature {number}" for number in range(features)]
    columns = {name: draw.normal(size=rows).astype(np.float32) for name in names}
    _write_csv(folder / "table.csv", {**columns, "label": (np.arange(rows) < positives).astype(np.int64)})
    return Made((_path("data.train", folder / "table.csv"),))


def _user_tables(folder: Path, *, users: Sequence[int], items: int, features: int, separator: str = "\t") -> Made:
    """Tables as the authors of pAp@k write them: user_id, f0, f1, ..., label; for training, validation and test."""
    draw = np.random.default_rng(SEED)
    changes, first = [], 0
    for part, name, count in zip(("train", "validation", "test"), ("train", "val", "test"), users, strict=True):
        user = first + np.repeat(np.arange(count), items)
        columns: dict[str, NDArray[Any]] = {"user_id": np.char.add("u", user.astype(str))}
        columns |= {f"f{number}": draw.random(len(user)).astype(np.float32) for number in range(features)}
        path = folder / f"{name}_data_d{features}.tsv"
        _write_csv(path, {**columns, "label": (np.arange(len(user)) % 6 == 0).astype(np.float32)}, separator=separator)
        changes.append(_path(f"data.{part}", path))
        first += count
    return Made(tuple(changes))


def _letor(folder: Path, *, queries: Sequence[int], documents: int, features: int, filled: float = 1.0) -> Made:
    """Files of lines `grade qid:1 1:0.5 ...` for training, validation and test; `filled` features of a line are given.

    Fewer lists are made, of the true length.
    """
    draw = np.random.default_rng(SEED)
    share = min(1.0, MOST_DOCUMENTS / (sum(queries) * documents))
    changes = ["data.cache=null", f"data.features={features}"]
    for part, count in zip(("train", "validation", "test"), queries, strict=True):
        path = folder / f"{part}.txt"
        with path.open("w") as file:
            for query in range(max(1, round(count * share))):
                for _ in range(documents):
                    given = np.flatnonzero(draw.random(features) < filled)
                    numbers = " ".join(
                        f"{index + 1}:{value:.4f}" for index, value in zip(given, draw.random(len(given)), strict=True)
                    )
                    file.write(f"{draw.integers(0, 5)} qid:{query + 1} {numbers}\n")
        changes.append(_path(f"data.{part}", path))
    return Made(tuple(changes), rows=share, content=share)


def _movielens(
    folder: Path, *, users: int, items: int, pairs: int, file: str = "ratings.csv", each: int | None = None
) -> Made:
    """A MovieLens folder: all users and items, fewer ratings of each user, or `each` of so many."""
    user, item, each = _pairs(users, items, pairs, each)
    draw = np.random.default_rng(SEED)
    columns = {"userId": user + 1, "movieId": item + 1, "rating": draw.integers(1, 6, len(user))}
    columns["timestamp"] = np.arange(len(user))
    separator, header = {"ratings.csv": (",", True), "u.data": ("\t", False)}[file]
    _write_csv(folder / file, columns, separator=separator, header=header)
    return Made((_path("data.train", folder),), content=each * users / pairs)


def _netflix(folder: Path, *, users: int, items: int, pairs: int) -> Made:
    """Netflix Prize files: all users and films, fewer ratings of each user."""
    user, item, each = _pairs(users, items, pairs)
    order = np.argsort(item, kind="stable")
    user, item = user[order], item[order]
    starts = np.flatnonzero(np.diff(item, prepend=-1))
    pieces = np.array_split(np.arange(len(starts)), 4)
    for number, piece in enumerate(pieces, 1):
        with (folder / f"combined_data_{number}.txt").open("w") as file:
            for start in starts[piece]:
                end = start + np.searchsorted(item[start:], item[start], side="right")
                rows = "\n".join(f"{each + 1},4,2005-0{1 + each % 9}-1{each % 8}" for each in user[start:end].tolist())
                file.write(f"{item[start] + 1}:\n{rows}\n")
    return Made((_path("data.train", folder), f"data.least={each}"), content=each * users / pairs)


def _pair_lists(folder: Path, *, users: int, items: int, pairs: int) -> Made:
    """Files of lines `user item item ...`, a tenth of the pairs for the test."""
    each = max(2, pairs // users)
    for part, first, last in (("train", 0, each * 9 // 10), ("test", each * 9 // 10, each)):
        with (folder / f"{part}.txt").open("w") as file:
            for user in range(users):
                own = (user * 7919 + np.arange(first, last)) % items
                file.write(f"{user} {' '.join(map(str, own.tolist()))}\n")
    return Made(tuple(_path(f"data.{part}", folder / f"{part}.txt") for part in ("train", "test")))


def _extreme(folder: Path, *, rows: Sequence[int], features: int, labels: int, words: int, own: int) -> Made:
    """Files of the extreme classification repository: `words` features and `own` labels in a line."""
    draw = np.random.default_rng(SEED)
    for part, count in zip(("train", "test"), rows, strict=True):
        with (folder / f"{part}.txt").open("w") as file:
            file.write(f"{count} {features} {labels}\n")
            for row in range(count):
                given = ",".join(map(str, sorted({(row + 17 * each * each) % labels for each in range(own)})))
                used = np.unique(draw.integers(0, features, words)).tolist()
                file.write(f"{given} {' '.join(f'{word}:1.0' for word in used)}\n")
    return Made(tuple(_path(f"data.{part}", folder / f"{part}.txt") for part in ("train", "test")))


def _texts(folder: Path, *, rows: Sequence[int], vocabulary: int, labels: int, words: int, own: int) -> Made:
    """Files of LibMultiLabel: `words` words and `own` labels in a line."""
    draw = np.random.default_rng(SEED)
    for part, count in zip(("train", "test"), rows, strict=True):
        with (folder / f"{part}.txt").open("w") as file:
            for row in range(count):
                given = " ".join(f"l{each}" for each in sorted({(row + 17 * n * n) % labels for n in range(own)}))
                used = (draw.zipf(1.2, words) % vocabulary).tolist()
                file.write(f"{given}\t{' '.join(f'w{word}' for word in used)}\n")
    return Made(tuple(_path(f"data.{part}", folder / f"{part}.txt") for part in ("train", "test")))


def _arff(folder: Path, *, rows: Sequence[int], features: int, labels: int, words: int, own: int) -> Made:
    """Sparse ARFF files of Mulan with the XML file of the labels beside them."""
    draw = np.random.default_rng(SEED)
    names = [f"TAG_{number}" for number in range(labels)]
    head = [f"@attribute w{number} {{0,1}}" for number in range(features)]
    head += [f"@attribute {name} {{0,1}}" for name in names]
    listed = "".join(f'<label name="{name}"></label>' for name in names)
    (folder / "made.xml").write_text(f'<labels xmlns="http://mulan.sourceforge.net/labels">{listed}</labels>')
    for part, count in zip(("train", "test"), rows, strict=True):
        lines = ["@relation made", *head, "@data"]
        for row in range(count):
            own_labels = {features + (row + 17 * each * each) % labels for each in range(own)}
            used = sorted({*draw.integers(0, features, words).tolist(), *own_labels})
            lines.append("{" + ",".join(f"{column} 1" for column in used) + "}")
        (folder / f"made-{part}.arff").write_text("\n".join(lines) + "\n")
    return Made(tuple(_path(f"data.{part}", folder / f"made-{part}.arff") for part in ("train", "test")))


def _arrays(folder: Path, *, classes: Sequence[int], each: int, pixels: int) -> Made:
    """Files npz of black and white images, `each` of a class, for training and test."""
    draw = np.random.default_rng(SEED)
    for part, count in zip(("train", "test"), classes, strict=True):
        images = draw.random((count * each, pixels, pixels)) < 0.1
        np.savez(folder / f"{part}.npz", images=images, labels=np.repeat(np.arange(count), each))
    return Made(tuple(_path(f"data.{part}", folder / f"{part}.npz") for part in ("train", "test")))


def _products(folder: Path, *, images: Sequence[int], classes: Sequence[int], pixels: Sequence[int]) -> Made:
    """Stanford Online Products: `Ebay_train.txt`, `Ebay_test.txt` and folders of images."""
    changes, first = [], 0
    for part, count, own in zip(("train", "test"), images, classes, strict=True):
        files = [f"chair_final/{first + number // own}_{number % own}.JPG" for number in range(count)]
        _pictures(folder, files, pixels)
        lines = ["image_id class_id super_class_id path"]
        lines += [f"{number + 1} {first + 1 + number % own} 1 {file}" for number, file in enumerate(files)]
        path = folder / f"Ebay_{part}.txt"
        path.write_text("\n".join(lines) + "\n")
        changes.append(_path(f"data.{part}", path))
        first += own
    return Made(tuple(changes))


def _vehicles(folder: Path, *, images: Sequence[int], classes: Sequence[int], pixels: Sequence[int]) -> Made:
    """VehicleID: `image` and lists in `train_test_split`, the test list named by its vehicles."""
    (folder / "train_test_split").mkdir()
    changes, first = [], 0
    for part, count, own in zip(("train", "test"), images, classes, strict=True):
        names = [f"{first + number:07d}" for number in range(count)]
        _pictures(folder / "image", [f"{name}.jpg" for name in names], pixels)
        path = folder / "train_test_split" / ("train_list.txt" if part == "train" else f"test_list_{own}.txt")
        path.write_text("".join(f"{name} {first + number % own}\n" for number, name in enumerate(names)))
        changes.append(_path(f"data.{part}", path))
        first += count
    return Made(tuple(changes))


def _species(folder: Path, *, images: int, classes: int, pixels: Sequence[int]) -> Made:
    """iNaturalist: `train2018.json`, a twentieth of the images in `val2018.json`."""
    files = [f"train_val2018/Aves/{number % classes}/{number}.jpg" for number in range(images)]
    _pictures(folder, files, pixels)
    held = images // 20
    for name, first, last in (("train", held, images), ("val", 0, held)):
        listed = [{"id": number, "file_name": files[number]} for number in range(first, last)]
        said = [{"id": number, "image_id": number, "category_id": number % classes} for number in range(first, last)]
        (folder / f"{name}2018.json").write_text(json.dumps({"images": listed, "annotations": said}))
    return Made((_path("data.train", folder),))


def _birds(folder: Path, *, images: int, classes: int, pixels: Sequence[int]) -> Made:
    """CUB-200-2011: its four lists and `images`."""
    names = [f"{number + 1:03d}.Bird_{number}" for number in range(classes)]
    files = [f"{names[number % classes]}/Bird_{number}.jpg" for number in range(images)]
    _pictures(folder / "images", files, pixels)
    lists: dict[str, Sequence[object]] = {
        "classes.txt": names,
        "images.txt": files,
        "image_class_labels.txt": [number % classes + 1 for number in range(images)],
        "train_test_split.txt": [number // classes % 2 for number in range(images)],
    }
    for name, values in lists.items():
        (folder / name).write_text("".join(f"{number} {value}\n" for number, value in enumerate(values, 1)))
    return Made((_path("data.train", folder),))


def _cars(folder: Path, *, images: int, classes: int, pixels: Sequence[int]) -> Made:
    """Cars-196: `cars_annos.mat` and `car_ims`."""
    require("making MATLAB files", ("scipy",), extra="data")
    from scipy.io import savemat

    files = [f"car_ims/{number + 1:06d}.jpg" for number in range(images)]
    _pictures(folder, files, pixels)
    fields = [("relative_im_path", object), ("class", object), ("test", object)]
    annotations = np.zeros(images, dtype=fields)
    for number, file in enumerate(files):
        annotations[number] = (file, number % classes + 1, number // classes % 2)
    savemat(folder / "cars_annos.mat", {"annotations": annotations}, do_compression=True)
    return Made((_path("data.train", folder),))


def _findings(folder: Path, *, images: Sequence[int], classes: int, pixels: Sequence[int]) -> Made:
    """ChestX-ray14: the sheet, its two lists and `images_001/images`; every second image has findings, some two."""
    files = [f"{number:08d}_000.png" for number in range(sum(images))]
    _pictures(folder / "images_001" / "images", files, pixels, grey=True)
    lines = ["Image Index,Finding Labels,Follow-up #,Patient ID"]
    for number, file in enumerate(files):
        own = [f"Finding_{number // 2 % classes}", f"Finding_{number // 7 % classes}"][: 1 + number % 6 // 4]
        said = "|".join(dict.fromkeys(own)) if number % 2 == 0 else "No Finding"
        lines.append(f"{file},{said},0,{number}")
    (folder / "Data_Entry_2017.csv").write_text("\n".join(lines) + "\n")
    (folder / "train_val_list.txt").write_text("\n".join(files[: images[0]]) + "\n")
    (folder / "test_list.txt").write_text("\n".join(files[images[0] :]) + "\n")
    return Made((_path("data.train", folder),))


def _cifar(folder: Path, *, classes: int, each: Sequence[int]) -> Made:
    """The binary archive of CIFAR-10 or CIFAR-100, `each` training and test images of a class."""
    draw = np.random.default_rng(SEED)
    before = 1 if classes == 10 else 2
    names = "".join(f"class {number}\n" for number in range(classes)).encode()
    counts = [each[0] // 5] * 5 if classes == 10 else [each[0]]
    batches = [f"data_batch_{number}.bin" for number in range(1, 6)] if classes == 10 else ["train.bin"]
    batches.append("test_batch.bin" if classes == 10 else "test.bin")
    path = folder / f"cifar-{classes}-binary.tar.gz"
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for name, count in zip(batches, [*counts, each[1]], strict=True):
            rows = draw.integers(0, 256, (classes * count, before + 3072), dtype=np.uint8)
            rows[:, before - 1] = np.arange(len(rows)) % classes
            _add_to(archive, f"cifar-{classes}-batches-bin/{name}", rows.tobytes())
        _add_to(archive, "batches.meta.txt" if classes == 10 else "fine_label_names.txt", names)
    return Made((_path("data.train", path), _path("data.test", path)))


def _add_to(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))


def _coco(folder: Path, *, images: Sequence[int], boxes: int, classes: int, pixels: Sequence[int]) -> Made:
    """Files of COCO for training and test, `boxes` in an image of (height, width) pixels."""
    draw = np.random.default_rng(SEED)
    height, width = pixels
    categories = [{"id": number + 1, "name": f"class {number}"} for number in range(classes)]
    (folder / "annotations").mkdir()
    changes = []
    for part, name, count in zip(("train", "test"), ("train2017", "val2017"), images, strict=True):
        files = [f"{number:012d}.jpg" for number in range(count)]
        _pictures(folder / name, files, pixels)
        listed = [
            {"id": number, "file_name": file, "height": height, "width": width} for number, file in enumerate(files)
        ]
        left, top = draw.integers(0, width // 2, count * boxes), draw.integers(0, height // 2, count * boxes)
        sides = draw.integers(8, min(height, width) // 2, (count * boxes, 2))
        of_class = draw.integers(1, classes + 1, count * boxes)
        annotations = [
            {"id": number, "image_id": number // boxes, "category_id": label, "bbox": [x, y, w, h], "iscrowd": 0}
            for number, (label, x, y, (w, h)) in enumerate(
                zip(of_class.tolist(), left.tolist(), top.tolist(), sides.tolist(), strict=True)
            )
        ]
        path = folder / "annotations" / f"instances_{name}.json"
        path.write_text(json.dumps({"images": listed, "annotations": annotations, "categories": categories}))
        changes.append(_path(f"data.{part}", path))
    return Made(tuple(changes))


def _voc(folder: Path, *, images: Sequence[int], boxes: int, classes: Sequence[str], pixels: Sequence[int]) -> Made:
    """A Pascal VOC folder with lists for training, validation and test."""
    draw = np.random.default_rng(SEED)
    height, width = pixels
    for name in ("Annotations", "ImageSets/Main"):
        (folder / name).mkdir(parents=True)
    names = [f"image_{number:05d}" for number in range(sum(images))]
    _pictures(folder / "JPEGImages", [f"{name}.jpg" for name in names], pixels)
    for name in names:
        objects = ""
        for number in range(boxes):
            left, top = draw.integers(1, width // 2), draw.integers(1, height // 2)
            edges = {"xmin": left, "ymin": top, "xmax": left + 20, "ymax": top + 20}
            said = "".join(f"<{edge}>{value}</{edge}>" for edge, value in edges.items())
            objects += f"<object><name>{classes[number % len(classes)]}</name><bndbox>{said}</bndbox></object>"
        size = f"<size><width>{width}</width><height>{height}</height><depth>3</depth></size>"
        said = f"<annotation><filename>{name}.jpg</filename>{size}{objects}</annotation>"
        (folder / "Annotations" / f"{name}.xml").write_text(said)
    ends = np.cumsum(images).tolist()
    for part, first, last in zip(("train", "val", "test"), [0, *ends], ends, strict=False):
        (folder / "ImageSets" / "Main" / f"{part}.txt").write_text("\n".join(names[first:last]) + "\n")
    return Made((_path("data.train", folder),))


def _pairs(
    users: int, items: int, pairs: int, each: int | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Return users and items of pairs, different ones for each user, and the number of pairs of a user."""
    each = max(4, min(MOST_RATINGS, pairs // users), -(-items // users)) if each is None else each
    user = np.repeat(np.arange(users), each)
    return user, (user * 7919 + np.tile(np.arange(each), users)) % items, each


def _pictures(folder: Path, files: Sequence[str], pixels: Sequence[int], *, grey: bool = False) -> None:
    """Write smooth random pictures of (height, width) pixels under these names; there are few different ones."""
    require("making images", ("PIL",))
    from PIL import Image

    draw = np.random.default_rng(SEED)
    height, width = pixels
    folder.mkdir(parents=True, exist_ok=True)
    for parent in sorted({str(Path(file).parent) for file in files}):
        (folder / parent).mkdir(parents=True, exist_ok=True)
    first = list(files[:PICTURES])
    for file in first:
        shape = (max(2, height // 16), max(2, width // 16), *(() if grey else (3,)))
        coarse = Image.fromarray(draw.integers(0, 256, shape, dtype=np.uint8))
        coarse.resize((width, height)).save(folder / file)
    for source, file in zip(cycle(first), files[PICTURES:], strict=False):
        try:
            os.link(folder / source, folder / file)
        except OSError:  # a file system without hard links, or with too many
            shutil.copyfile(folder / source, folder / file)


def _write_csv(path: Path, columns: Mapping[str, NDArray[Any]], *, separator: str = ",", header: bool = True) -> None:
    require("making tables", ("polars",), extra="data")
    import polars as pl

    pl.DataFrame(dict(columns)).write_csv(path, separator=separator, include_header=header)


def _path(key: str, path: Path) -> str:
    return f"{key}={json.dumps(str(path))}"


LAYOUTS: dict[str, Callable[..., Made]] = {
    "table": _table,
    "letor": _letor,
    "user-tables": _user_tables,
    "movielens": _movielens,
    "netflix": _netflix,
    "pair-lists": _pair_lists,
    "extreme": _extreme,
    "texts": _texts,
    "arff": _arff,
    "arrays": _arrays,
    "products": _products,
    "vehicles": _vehicles,
    "species": _species,
    "birds": _birds,
    "cars": _cars,
    "findings": _findings,
    "cifar": _cifar,
    "coco": _coco,
    "voc": _voc,
}
