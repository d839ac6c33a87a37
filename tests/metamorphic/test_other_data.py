"""Trainings on lists, choices, labelled texts, images and boxes: the same data in other words give the same scores."""

from __future__ import annotations

import gzip
import json
import shutil
import tarfile

import numpy as np
import polars as pl
import pytest

from rankwise.cli import main
from workers.boxed_pictures import write_coco, write_voc
from workers.pictures import make_pictures
from workers.variants import COMMON, TOLERANCE, compare, merged, train

# Each variant writes its data into a folder and returns the options of the data, the file to score, the names of what
# is scored in its order (None: as in the original), and whether the scores are equal bit for bit.


def random():
    return np.random.default_rng(0)


# LETOR files. Features are multiples of 1/64, some of them 0.
def letor_lists(seed):
    draw = np.random.default_rng(seed)
    lists = []
    for query in range(8):
        features = np.round(draw.normal(size=(6, 4)) * 64) / 64
        features[draw.random(features.shape) < 0.2] = 0
        grades = np.clip(np.round(features[:, 0] + 0.5 * draw.normal(size=6)), 0, 3).astype(int)
        grades[0] = 3
        lists.append((query + 10 * seed + 10, list(zip(range(6), grades, features, strict=True))))
    return lists


def letor_line(query, grade, row, *, zeros=False, comment=""):
    shown = " ".join(f"{index}:{value}" for index, value in enumerate(row, 1) if value or zeros or index == 4)
    return f"{grade} qid:{query} {shown}{comment}"


def letor(folder, *, lists=lambda lists: lists, suffix=".txt", join="\n".join, exact=True, **options):
    files, names = {}, []
    for seed, part in enumerate(("train", "validation", "test")):
        found = [
            (f"{query} {position}", letor_line(query, grade, row, **options))
            for query, rows in lists(letor_lists(seed))
            for position, grade, row in rows
        ]
        text = (join([line for _, line in found]) + "\n").encode()
        files[part] = folder / f"{part}{suffix}"
        files[part].write_bytes(gzip.compress(text) if suffix.endswith(".gz") else text)
        names = [name for name, _ in found]
    return files, files["test"], names, exact


def letor_as_table(folder):
    files = {}
    for seed, part in enumerate(("train", "validation", "test")):
        rows = [[query, grade, *row] for query, own in letor_lists(seed) for _, grade, row in own]
        files[part] = folder / f"{part}.parquet"
        pl.DataFrame(rows, schema=["qid", "label", "1", "2", "3", "4"], orient="row").write_parquet(files[part])
    return {**files, "query": "qid", "label": "label"}, files["test"], None, True


LETOR = {
    "": letor,
    "lists permuted": lambda folder: letor(folder, lists=lambda lists: lists[::-1], exact=False),
    "rows permuted": lambda folder: letor(folder, lists=permuted_rows, exact=False),
    "ids renamed": lambda folder: (*letor(folder, lists=renamed_lists)[:2], None, True),
    "zeros written": lambda folder: letor(folder, zeros=True),
    "comments": lambda folder: letor(folder, comment=" # doc 7 qid:3"),
    "Windows": lambda folder: letor(folder, join="\r\n".join),
    "gzip": lambda folder: letor(folder, suffix=".txt.gz"),
    "Parquet": letor_as_table,
    "grades of other rows": lambda folder: letor(folder, lists=other_grades),
}


def permuted_rows(lists):
    return [(query, rows[::-1]) for query, rows in lists]


def renamed_lists(lists):
    return [(2**40 + 5 * query, rows) for query, rows in lists]


def other_grades(lists):
    return [
        (query, [(name, grade, row) for (name, _, row), (_, grade, _) in zip(rows, rows[::-1], strict=True)])
        for query, rows in lists
    ]


# Choices of users.
def choices():
    draw = random()
    rows = []
    for user in range(14):
        share = np.where(np.arange(12) % 2 == user % 2, 5.0, 1.0)
        for when, item in enumerate(draw.choice(12, 6, replace=False, p=share / share.sum())):
            rows.append((f"u{user:02d}", f"i{item:02d}", 1000 + 50 * when + int(draw.integers(50))))
    return pl.DataFrame(rows, schema=["user", "item", "time"], orient="row")


def clicks(folder, change=lambda frame: frame, suffix=".csv", separator=","):
    frame, path = change(choices()), folder / f"clicks{suffix}"
    if suffix == ".parquet":
        frame.write_parquet(path)
    else:
        frame.write_csv(path, separator=separator)
    return {"train": path, "leave_one_out": "time", "user": "user", "item": "item", "time": "time"}, path, None, True


def netflix(folder, files):
    """The same choices in the form of the Netflix Prize, in so many files."""
    frame = choices().with_columns(pl.col("user", "item").str.slice(1).cast(pl.Int64), pl.col("time") % 1000)
    days = pl.date(2001, 1, 1) + pl.duration(days=pl.col("time"))
    frame = frame.with_columns(days.alias("day"))
    where = folder / "ratings"
    where.mkdir()
    items = sorted(frame["item"].unique())
    for number, own in enumerate(np.array_split(items, files), 1):
        lines = [
            line
            for item in own
            for line in (
                f"{item}:",
                *(f"{user},3,{day}" for user, _, _, day in frame.filter(pl.col("item") == item).iter_rows()),
            )
        ]
        (where / f"combined_data_{number}.txt").write_text("\n".join(lines) + "\n")
    return {"train": where, "leave_one_out": "time"}, where, None, True


RECSYS = {
    "": clicks,
    "rows permuted": lambda folder: clicks(folder, lambda frame: frame.sample(fraction=1, shuffle=True, seed=1)),
    "columns permuted": lambda folder: clicks(folder, lambda frame: frame.select("time", "item", "user")),
    "ids renamed": lambda folder: clicks(folder, lambda frame: frame.with_columns("Ann " + pl.col("user"))),
    "unused column added": lambda folder: clicks(folder, lambda frame: frame.with_columns(stars=pl.lit(3))),
    "units changed": lambda folder: clicks(folder, lambda frame: frame.with_columns(pl.col("time") * 1000 - 5)),
    "Parquet": lambda folder: clicks(folder, suffix=".parquet"),
    "dates": lambda folder: clicks(
        folder, lambda frame: frame.with_columns(pl.from_epoch("time", time_unit="s")), suffix=".parquet"
    ),
    "semicolons": lambda folder: clicks(folder, separator=";"),
    "Netflix files": lambda folder: netflix(folder, 1),
    "file split in two": lambda folder: netflix(folder, 2),
    "times of other rows": lambda folder: clicks(folder, lambda frame: frame.with_columns(pl.col("time").reverse())),
}


# Texts with many labels.
def texts(seed):
    draw = np.random.default_rng(seed)
    rows = []
    for _ in range(24):
        labels = sorted(draw.choice(5, 2, replace=False).tolist())
        rows.append((labels, dict.fromkeys(sorted({*labels, *draw.choice(12, 3).tolist()}), 1.5)))
    return rows


def extreme(folder, change=lambda rows: rows, *, backwards=False, suffix=".txt", exact=True, order=None):
    files = {}
    for seed, part in enumerate(("train", "validation", "test")):
        rows = change(texts(seed))
        lines = [f"{len(rows)} 12 5"]
        for labels, words in rows:
            shown = labels[::-1] if backwards else labels
            lines.append(",".join(map(str, shown)) + " " + " ".join(f"{word}:{value}" for word, value in words.items()))
        content = ("\n".join(lines) + "\n").encode()
        files[part] = folder / f"{part}{suffix}"
        files[part].write_bytes(gzip.compress(content) if suffix.endswith(".gz") else content)
    return files, files["test"], order, exact


def arff(folder, *, dense):
    files = {}
    for seed, part in enumerate(("train", "validation", "test")):
        lines = ["@relation 'made: -C 5'", *(f"@attribute label{index} {{0,1}}" for index in range(5))]
        lines += [*(f"@attribute word{index} numeric" for index in range(12)), "@data"]
        for labels, words in texts(seed):
            cells = {**dict.fromkeys(labels, 1), **{5 + word: value for word, value in words.items()}}
            if dense:
                lines.append(",".join(str(cells.get(index, 0)) for index in range(17)))
            else:
                lines.append("{" + ", ".join(f"{index} {value}" for index, value in sorted(cells.items())) + "}")
        files[part] = folder / f"{part}.arff"
        files[part].write_text("\n".join(lines) + "\n")
    return files, files["test"], None, True


ROWS = [str(number) for number in range(24)]
MULTILABEL = {
    "": lambda folder: extreme(folder, order=ROWS),
    "rows permuted": lambda folder: extreme(folder, lambda rows: rows[::-1], exact=False, order=ROWS[::-1]),
    "labels permuted": lambda folder: extreme(folder, backwards=True, order=ROWS),
    "gzip": lambda folder: extreme(folder, suffix=".txt.gz", order=ROWS),
    "ARFF": lambda folder: arff(folder, dense=False),
    "dense ARFF": lambda folder: arff(folder, dense=True),
    "labels of other rows": lambda folder: extreme(
        folder,
        lambda rows: [(labels, words) for (labels, _), (_, words) in zip(rows, rows[::-1], strict=True)],
        order=ROWS,
    ),
}


# Images with classes.
def pictures():
    images, labels = make_pictures(classes=4, each=10, size=16)
    return images[:, 0].numpy(), labels.tolist()


def image_folder(folder, *, suffix=".png", place=lambda label: f"kind {label}", stem=lambda number: f"{number:03d}"):
    from PIL import Image

    for number, (image, label) in enumerate(zip(*pictures(), strict=True)):
        own = folder / "images" / place(label)
        own.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(own / f"{stem(number)}{suffix}")
    return folder / "images"


def as_folder(folder, **options):
    path = image_folder(folder, **options)
    return {"train": path}, path, None, True


def as_list(folder):
    files = sorted(image_folder(folder).rglob("*.png"))
    lines = [f"{file.relative_to(folder)},{file.parent.name}" for file in files]
    (folder / "images.csv").write_text("\n".join(["path,label", *lines]) + "\n")
    return {"train": folder / "images.csv"}, folder / "images.csv", None, True


def as_tar(folder):
    with tarfile.open(folder / "images.tar.gz", "w:gz") as archive:
        archive.add(image_folder(folder), "images")
    return {"train": folder / "images.tar.gz"}, folder / "images.tar.gz", None, True


def as_arrays(folder, dtype=np.uint8, shift=0):
    images, labels = pictures()
    pixels = images.astype(dtype) * (257 if dtype is np.uint16 else 1)
    np.savez(folder / "images.npz", images=pixels, labels=np.roll(labels, shift))
    return {"train": folder / "images.npz"}, folder / "images.npz", None, True


IMAGES = {
    "": as_folder,
    "files renamed": lambda folder: as_folder(folder, stem=lambda number: f"photo of {number + 500}"),
    "labels renamed": lambda folder: as_folder(folder, place=lambda label: "ABCD"[label]),
    "another file format": lambda folder: as_folder(folder, suffix=".bmp"),
    "a list": as_list,
    "a tar file": as_tar,
    "an array": as_arrays,
    "16 bits": lambda folder: as_arrays(folder, np.uint16),
    "labels of other rows": lambda folder: as_arrays(folder, shift=5),
}


# Boxes.
def coco(folder, change=lambda content: content, exact=True):
    write_coco(folder, count=12)
    path = folder / "boxes.json"
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    return {"train": path}, folder / "images", None, exact


def voc(folder):
    write_voc(folder / "voc", count=12, lists=False)
    return {"train": folder / "voc"}, folder / "voc" / "JPEGImages", None, True


def other_image_ids(content):
    images = [{**each, "id": 5000 - each["id"], "license": 3} for each in content["images"]]
    boxes = [{**each, "image_id": 5000 - each["image_id"]} for each in content["annotations"]]
    return {**content, "images": images, "annotations": boxes, "info": {"year": 2026}}


def other_classes(content):
    number = {3: 40, 7: 41}
    kinds = [{**each, "id": number[each["id"]], "name": f"a {each['name']}"} for each in content["categories"]]
    boxes = [{**each, "category_id": number[each["category_id"]]} for each in content["annotations"]]
    return {**content, "categories": kinds[::-1], "annotations": boxes}


def moved_boxes(content):
    boxes = [{**each, "bbox": [0, 0, *each["bbox"][2:]]} for each in content["annotations"]]
    return {**content, "annotations": boxes}


DETECTION = {
    "": coco,
    "rows permuted": lambda folder: coco(
        folder, lambda content: {**content, "annotations": content["annotations"][::-1]}, exact=False
    ),
    "ids renamed": lambda folder: coco(folder, other_image_ids),
    "labels renamed": lambda folder: coco(folder, other_classes),
    "Pascal VOC": voc,
    "boxes moved": lambda folder: coco(folder, moved_boxes),
}

IMAGE_DATA = {"size": 16, "channels": 1, "validation": 0.2, "test": 0.2}
KINDS = {
    "ltr": (LETOR, {"model": {"hidden": [6], "ensemble": None}, "batches": {"queries": 8}}),
    "recsys": (
        RECSYS,
        {"model": {"dimensions": 4}, "batches": {"users": 5}, "optimiser": {"weight_decay": 0}},
    ),
    "multilabel": (MULTILABEL, {"model": {"hidden": [6], "dropout": 0.0}, "batches": {"size": 24}, "refit": False}),
    "image-retrieval": (
        IMAGES,
        {
            "data": {**IMAGE_DATA, "held_out": "images"},
            "model": {"dimensions": 4},
            "batches": {"classes": 3, "samples_per_class": 3},
            "budget": {"steps": 2},
        },
    ),
    "longtail": (IMAGES, {"data": IMAGE_DATA, "batches": {"size": 12}, "budget": {"steps": 2}}),
    "detection": (
        DETECTION,
        {
            "data": {"height": 48, "width": 64},
            "model": {"channels": 8, "scale": 2},
            "batches": {"size": 4},
            "budget": {"steps": 2},
        },
    ),
}
OTHER_MEANING = {"grades of other rows", "times of other rows", "labels of other rows", "boxes moved"}
QUICK = {"lists permuted", "file split in two", "ARFF", "an array", "rows permuted", *OTHER_MEANING}
FIRST = {"ltr", "recsys", "multilabel", "image-retrieval"}


def scores_of(folder, kind, variant):
    """By name what a training gives to each row, list or image; and whether it should be so bit for bit."""
    folder.mkdir()
    variants, recipe = KINDS[kind]
    data, new, names, exact = variants[variant](folder)
    run = train(folder, merged({"task": kind}, COMMON, recipe, {"data": data}))
    if kind == "detection":
        out = folder / "found.json"
        assert main(["detect", str(run), "--images", str(new), "--out", str(out)]) == 0
        # A network of two steps finds boxes everywhere: the scores of those it is surest of say enough.
        found = sorted((each["score"] for each in json.loads(out.read_text())), reverse=True)
        return {str(rank): (score,) for rank, score in enumerate(found[:50])}, exact
    out = folder / "scores.parquet"
    assert main(["predict", str(run), "--data", str(new), "--out", str(out)]) == 0
    frame = pl.read_parquet(out)
    kept = [name for name in frame.columns if name not in ("row", "label", "query")]
    rows = frame.select(kept).rows()
    if kind == "recsys":  # in the order of their first choice, under names that end with the same number
        names = [str(int(name[-2:].lstrip("u"))) for name in frame["row"].cast(pl.String)]
    if names is None:
        names = [str(number) for number in range(len(rows))]
    return dict(zip(names, rows, strict=True)), exact


_known = {}


@pytest.fixture
def original(tmp_path_factory):
    """The scores of the data as they are, trained once for each kind, in the order of their rows."""

    def get(kind):
        if kind not in _known:
            folder = tmp_path_factory.mktemp("original")
            _known[kind] = scores_of(folder / "plain", kind, "")[0]
            shutil.rmtree(folder)
        return _known[kind]

    return get


def cases(wanted):
    return [
        pytest.param(kind, variant, marks=() if variant in QUICK and kind in FIRST else pytest.mark.slow)
        for kind, (variants, _) in KINDS.items()
        for variant in variants
        if variant and (variant in OTHER_MEANING) is wanted
    ]


def difference(original, found):
    if found.keys() != original.keys():  # rows without names: in the order of the original
        found = dict(zip(original, found.values(), strict=True))
    return compare(original, found)


@pytest.mark.filterwarnings("ignore::rankwise.data.DataNote")
@pytest.mark.parametrize("kind, change", cases(False))
def test_the_same_data_in_other_words_give_the_same_scores(tmp_path, original, kind, change):
    found, exact = scores_of(tmp_path / "changed", kind, change)
    assert difference(original(kind), found) <= (0 if exact else TOLERANCE)


@pytest.mark.filterwarnings("ignore::rankwise.data.DataNote")
@pytest.mark.parametrize("kind, change", cases(True))
def test_data_of_another_meaning_give_other_scores(tmp_path, original, kind, change):
    found, _ = scores_of(tmp_path / "changed", kind, change)
    assert difference(original(kind), found) > 100 * TOLERANCE
