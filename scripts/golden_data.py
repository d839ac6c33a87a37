"""Small made-up data for the golden runs: one file or folder for every form that the readers take."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

Random = np.random.Generator


# Features are multiples of 1/64: exact in float32, so that reading them in more digits changes nothing.
def _numbers(random: Random, *shape: int) -> np.ndarray:
    return np.round(random.normal(size=shape) * 64) / 64


def _lines(path: Path, header: str, rows: Iterator[Any]) -> None:
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n", encoding="utf-8")


def write_rows(path: Path, random: Random, rows: int = 300) -> None:
    """Write a table with labels 0 and 1 in its last column."""
    labels = (random.random(rows) < 0.15).astype(int)
    features = _numbers(random, rows, 4) + labels[:, None] * np.array([1.5, 0.75, 0, 0.5])
    _lines(path, "a,b,c,d,ill", ((*row, label) for row, label in zip(features.tolist(), labels, strict=True)))


def write_words(path: Path, random: Random, rows: int = 300) -> None:
    """Write a table with text classes in its second column, missing cells, and a column of names."""
    positive = random.random(rows) < 0.2
    features = _numbers(random, rows, 3) + positive[:, None]
    missing = random.random((rows, 3)) < 0.1
    cells = np.where(missing, "", features.astype(str)).tolist()
    words = np.where(positive, "malignant", "benign")
    _lines(path, "patient,diagnosis,x,y,z", ((f"p{i}", words[i], *row) for i, row in enumerate(cells)))


def write_letor(path: Path, random: Random, queries: int = 40, features: int = 4) -> None:
    """Write graded documents of queries in the LETOR format; zeros are left out."""
    lines = []
    for query in range(queries):
        rows = _numbers(random, int(random.integers(8, 16)), features)
        rows[random.random(rows.shape) < 0.1] = 0
        for grade, row in zip(_grades(random, rows), rows.tolist(), strict=True):
            known = " ".join(f"{i}:{x}" for i, x in enumerate(row, 1) if x or i == features)
            lines.append(f"{grade} qid:{query + 10} {known}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_documents(path: Path, random: Random, queries: int = 40) -> None:
    """Write graded documents of queries as a table with some missing cells."""
    rows: list[tuple[Any, ...]] = []
    for query in range(queries):
        numbers = _numbers(random, int(random.integers(8, 16)), 3)
        cells = np.where(random.random(numbers.shape) < 0.05, "", numbers.astype(str)).tolist()
        rows += [
            (*row[:2], f"q{query}", *row[2:], grade) for row, grade in zip(cells, _grades(random, numbers), strict=True)
        ]
    _lines(path, "x,y,query,z,grade", iter(rows))


def _grades(random: Random, rows: np.ndarray) -> list[int]:
    values = np.round(rows[:, 0] + 0.5 * rows[:, 1] + 0.5 * random.normal(size=len(rows)))
    return np.clip(values, 0, 3).astype(int).tolist()


def write_users(path: Path, random: Random, users: int = 40, items: int = 16) -> None:
    """Write users' items, liked or not."""
    features = _numbers(random, users, items, 3)
    liked = (features[..., 0] + 0.7 * random.normal(size=(users, items)) > 0.6).astype(int)
    pairs = ((user, item) for user in range(users) for item in range(items))
    _lines(path, "user,x,y,z,liked", ((f"u{u}", *features[u, i].tolist(), liked[u, i]) for u, i in pairs))


def write_kinds(path: Path, random: Random, kinds: int = 8, each: int = 20) -> None:
    """Write a table of rows in clusters; the last column is the cluster."""
    centres = 2 * _numbers(random, kinds, 3)
    features = centres[:, None] + _numbers(random, kinds, each, 3)
    rows = ((*row, kind) for kind in range(kinds) for row in features[kind].tolist())
    _lines(path, "a,b,c,kind", rows)


def write_labels(path: Path, random: Random, rows: int = 120, features: int = 20, labels: int = 10) -> None:
    """Write examples with two of the labels each: `.arff` in MEKA's form, else as the extreme repository has them."""
    own = [sorted(random.choice(labels, 2, replace=False).tolist()) for _ in range(rows)]
    words = [sorted({*mine, *random.choice(features, 4).tolist()}) for mine in own]
    if path.suffix == ".arff":
        lines = [f"@relation 'made: -C {labels}'"]
        lines += [f"@attribute label{i} {{0,1}}" for i in range(labels)]
        lines += [f"@attribute word{i} numeric" for i in range(features)]
        lines.append("@data")
        for mine, known in zip(own, words, strict=True):
            lines.append("{" + ", ".join(f"{i} 1" for i in [*mine, *(labels + word for word in known)]) + "}")
    else:
        lines = [f"{rows} {features} {labels}"]
        for mine, known in zip(own, words, strict=True):
            lines.append(",".join(map(str, mine)) + " " + " ".join(f"{word}:1" for word in known))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_clicks(path: Path, random: Random, users: int = 40, items: int = 30) -> None:
    """Write what users chose, no pair twice: a table with times, or for `.txt` a line of items per user."""
    lists = _tastes(random, users, items)
    if path.suffix == ".txt":
        # The last two items of a user are those to test on, in a file of their own.
        for name, cut in ((path.name, slice(None, -2)), (f"{path.stem}-later.txt", slice(-2, None))):
            lines = [" ".join(map(str, (user, *chosen[cut]))) for user, chosen in enumerate(lists)]
            (path.parent / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
        return
    rows = [
        (f"u{user}", f"film {item}", 1000 + when)
        for user, chosen in enumerate(lists)
        for when, item in enumerate(chosen)
    ]
    _lines(path, "user,item,time", (rows[i] for i in random.permutation(len(rows))))


def _tastes(random: Random, users: int, items: int) -> list[list[int]]:
    """Of each user ten items, mostly from one half of all."""
    share = np.where((np.arange(items) < items // 2) == (np.arange(users) % 2 == 0)[:, None], 6.0, 1.0)
    return [random.choice(items, 10, replace=False, p=row / row.sum()).tolist() for row in share]


def _images(random: Random, classes: int, each: int, channels: int, size: int = 16) -> tuple[np.ndarray, np.ndarray]:
    """Make noise with a bright square whose corner tells the class."""
    labels = np.repeat(np.arange(classes), each)
    images = random.integers(0, 200, (len(labels), channels, size, size))
    step = size // 4
    for image, label in zip(images, labels.tolist(), strict=True):
        row, column = step * (label // 4), step * (label % 4)
        image[:, row : row + step, column : column + step] += 50
    return images.astype(np.uint8), labels


def write_images(path: Path, random: Random) -> None:
    """Write grey images and their classes as one npz file."""
    images, labels = _images(random, classes=9, each=12, channels=1)
    np.savez(path, images=images[:, 0], labels=labels)


def write_photos(path: Path, random: Random) -> None:
    """Write coloured images as files, and a list of them with their classes and parts."""
    images, labels = _images(random, classes=8, each=12, channels=3, size=20)
    (path.parent / "photos").mkdir()
    rows = []
    for number, (image, label) in enumerate(zip(images, labels.tolist(), strict=True)):
        _save_image(path.parent / "photos" / f"{number:03d}.png", image)
        parts = ("train",) if label < 4 else ("validation",) if label < 6 else ("test", "gallery", "gallery")
        rows.append((f"photos/{number:03d}.png", f"kind {label}", parts[number % len(parts)]))
    _lines(path, "path,label,split", iter(rows))


def _scenes(random: Random, count: int) -> tuple[np.ndarray, list[list[tuple[str, tuple[int, ...]]]]]:
    """Make grey images (N, 3, 48, 64) with bright squares and dark bars, and the class and corners of each object."""
    images = random.integers(110, 146, (count, 3, 48, 64)).astype(np.uint8)
    objects = []
    for image in images:
        own = []
        for _ in range(random.integers(1, 4)):
            name, height, width, colour = (("bar", 10, 22, 10), ("square", 12, 12, 240))[random.integers(2)]
            top, left = int(random.integers(48 - height)), int(random.integers(64 - width))
            image[:, top : top + height, left : left + width] = colour
            own.append((name, (left, top, left + width, top + height)))
        objects.append(own)
    return images, objects


def write_coco(folder: Path, random: Random, count: int = 24) -> None:
    """Write images with boxes in the form of COCO."""
    images, objects = _scenes(random, count)
    (folder / "images").mkdir(parents=True)
    for number, image in enumerate(images):
        _save_image(folder / "images" / f"{number:03d}.png", image)
    ids = {"bar": 3, "square": 7}
    known = {
        "images": [{"id": i, "file_name": f"{i:03d}.png", "height": 48, "width": 64} for i in range(count)],
        "categories": [{"id": number, "name": name} for name, number in ids.items()],
        "annotations": [
            {"image_id": i, "category_id": ids[name], "iscrowd": 0, "bbox": [left, top, right - left, bottom - top]}
            for i, own in enumerate(objects)
            for name, (left, top, right, bottom) in own
        ],
    }
    for number, box in enumerate(known["annotations"]):
        box["id"] = number
    (folder / "boxes.json").write_text(json.dumps(known), encoding="utf-8")


def write_voc(folder: Path, random: Random, count: int = 24) -> None:
    """Write images with boxes in the form of Pascal VOC, with lists of the three parts."""
    images, objects = _scenes(random, count)
    for name in ("JPEGImages", "Annotations", "ImageSets/Main"):
        (folder / name).mkdir(parents=True)
    for number, (image, own) in enumerate(zip(images, objects, strict=True)):
        _save_image(folder / "JPEGImages" / f"{number:03d}.png", image)
        boxes = "".join(
            f"<object><name>{name}</name><difficult>0</difficult><bndbox><xmin>{left}</xmin><ymin>{top}</ymin>"
            f"<xmax>{right}</xmax><ymax>{bottom}</ymax></bndbox></object>"
            for name, (left, top, right, bottom) in own
        )
        size = "<size><width>64</width><height>48</height><depth>3</depth></size>"
        text = f"<annotation><filename>{number:03d}.png</filename>{size}{boxes}</annotation>"
        (folder / "Annotations" / f"{number:03d}.xml").write_text(text, encoding="utf-8")
    for name, numbers in (("train", range(12)), ("val", range(12, 18)), ("test", range(18, count))):
        text = "".join(f"{number:03d}\n" for number in numbers)
        (folder / "ImageSets" / "Main" / f"{name}.txt").write_text(text, encoding="utf-8")


def _save_image(path: Path, image: np.ndarray) -> None:
    from PIL import Image

    Image.fromarray(np.moveaxis(image, 0, 2)).save(path)


def write_texts(folder: Path, rng: Random) -> None:
    """Write documents of four topics, and queries of two words with the documents of their topic."""
    folder.mkdir()
    topics = [[f"topic{topic}word{word}" for word in range(6)] for topic in range(4)]
    lines = ["id,text"]
    for number in range(32):
        words = rng.choice(topics[number % 4], 3).tolist() + [f"common{each}" for each in rng.integers(0, 20, 6)]
        lines.append(f"d{number},{' '.join(words)}")
    (folder / "corpus.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    lines = ["query,document,grade"]
    for query in range(24):
        text = f"{rng.choice(topics[query % 4])} common{rng.integers(20)} q{query}"
        lines += [f"{text},d{number},{1 + number % 2}" for number in range(query % 4, 32, 4)]
    (folder / "judgements.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


DATA: dict[str, Callable[[Path, Random], None]] = {
    "rows.csv": write_rows,
    "more.csv": write_rows,
    "other.csv": write_rows,
    "words.csv": write_words,
    "queries.txt": write_letor,
    "short.txt": lambda path, random: write_letor(path, random, features=3),
    "long.txt": lambda path, random: write_letor(path, random, features=5),
    "documents.csv": write_documents,
    "users.csv": write_users,
    "kinds.csv": write_kinds,
    "labels.txt": write_labels,
    "labels.arff": write_labels,
    "clicks.csv": write_clicks,
    "chosen.txt": write_clicks,
    "images.npz": write_images,
    "photos.csv": write_photos,
    "scenes": write_coco,
    "voc": write_voc,
    "texts": write_texts,
}


def write_data(folder: Path) -> None:
    """Write the data of all recipes; the same files every time."""
    folder.mkdir(parents=True)
    for seed, (name, write) in enumerate(DATA.items()):
        write(folder / name, np.random.default_rng(seed))
