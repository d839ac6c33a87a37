"""Infer a problem from data alone: its kind, its label, and what else a recipe would say."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from rankwise.data import read_images, read_table
from rankwise.data.arff import is_multilabel_arff
from rankwise.data.files import is_letor
from rankwise.data.image_files import ENDINGS, TARS
from rankwise.data.interactions import is_netflix
from rankwise.data.table_files import RawTable, open_table
from rankwise.data.tables import Table
from rankwise.data.text_files import find_collection
from rankwise.problems.load import KINDS, BadRecipe, make_problem
from rankwise.problems.problem import Problem
from rankwise.registry import nearest

if TYPE_CHECKING:
    import polars as pl

__all__ = ["LABEL_NAMES", "QUERY_NAMES", "Fact", "Inferred", "find_by_name", "infer_problem"]

LABEL_NAMES = re.compile(r"^(is_)?(label|labels|target|class|outcome|y|relevance|grade|response)$", re.IGNORECASE)
QUERY_NAMES = re.compile(r"^(qid|query|query_?id|search_?id|srch_id)$", re.IGNORECASE)
USER_NAMES = re.compile(r"^(user|customer|member|reader|visitor|client)s?[_ ]?(id)?$", re.IGNORECASE)
ITEM_NAMES = re.compile(
    r"^(item|movie|product|article|book|track|song|game|film|anime|sku|isbn)s?[_ ]?(id)?$", re.IGNORECASE
)
TIME_NAMES = re.compile(r"^(time|times|timestamp|date|datetime|ts)$", re.IGNORECASE)
MOVIELENS = ("u.data", "ratings.dat", "ratings.csv")
# Small networks on small images train in minutes on a CPU.
LARGEST_IMAGE, LARGEST_SCENE = 64, 192
IMAGES_LOOKED_AT = 20
MOST_CLASSES = 20
_IN_PARTS = "60 % to train, 20 % for choices, 20 % to test"
_ENSEMBLE = "networks, regressions and trees, mixed out of fold"
_IN_FOLDS = "80 % to train, in 5 folds for choices, 20 % to test"


class Fact(NamedTuple):
    """One thing that was inferred: what it is, its value with the reason, and how to change it."""

    what: str
    value: str
    change: str = ""


@dataclass(frozen=True)
class Inferred:
    """A problem and how it was inferred."""

    problem: Problem[Any, Any]
    facts: tuple[Fact, ...]


@dataclass(frozen=True)
class _Asked:
    """Options that the user gave with the data."""

    path: Path
    label: str | None
    query: str | None
    positive: str | None
    kind: str | None

    def refuse(self, kind: str) -> None:
        """Refuse options that a kind does not have."""
        for option in ("label", "query", "positive"):
            if getattr(self, option) is not None:
                raise BadRecipe(f"--{option}: expected for a table only, got it for {self.path}, read as {kind}")


def infer_problem(
    path: str | Path,
    changes: Sequence[str] = (),
    *,
    label: str | None = None,
    query: str | None = None,
    positive: str | None = None,
    task: str | None = None,
) -> Inferred:
    """Infer a problem from its training data; where that cannot be sure, raise an error that names the option to give.

    Args:
        path: a table, a LETOR file, a file or folder of ratings, a folder of texts (corpus, queries, judgements), a
            folder of images by class, boxes in the form of COCO or Pascal VOC, or a file of examples with many labels.
        changes: to the recipe that is inferred, such as "budget.steps=500".
        label, query: columns of a table.
        positive: the positive class.
        task: the kind of problem, see `KINDS`.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "cells.csv"
        >>> _ = path.write_text("size,cancer\\n" + "".join(f"{row % 9},{int(row > 30)}\\n" for row in range(40)))
        >>> infer_problem(path, label="cancer").problem.kind
        'tabular'
    """
    if task is not None and task not in KINDS:
        raise BadRecipe(f"task: unknown task {task!r}{nearest(task, KINDS)}")
    asked = _Asked(Path(path), label, query, positive, task)
    recipe, facts = _reader(asked)(asked)
    if task is not None and recipe["task"] != task:
        raise BadRecipe(f"task: expected {recipe['task']} for {path}, or a recipe that says how, got {task}")
    problem = make_problem(recipe, changes)
    loss = ", ".join([problem.loss.name, *(f"{name} {value}" for name, value in problem.loss.options.items())])
    budget = f"{problem.budget.steps} steps" if problem.budget.steps else f"{problem.budget.epochs} epochs"
    chosen = "weights are chosen" if problem.evaluation.weights == "best" else "choices are made"
    facts = [
        *facts,
        Fact("loss", loss, "loss=...  (rankwise list losses)"),
        Fact("metric", f"{', '.join(problem.measured)}; {chosen} by the first", "metrics=[...]"),
        Fact("budget", budget, "budget.steps=..."),
    ]
    return Inferred(problem, tuple(facts))


_Read = tuple[dict[str, Any], list[Fact]]


def _reader(asked: _Asked) -> Callable[[_Asked], _Read]:
    path = asked.path
    if path.is_dir():
        return _folder_reader(path)
    name = path.name.lower()
    if name.endswith(".json"):
        return _boxes
    if name.endswith(TARS):
        return _images
    if name.removesuffix(".gz").removesuffix(".xz").endswith(".arff") and is_multilabel_arff(path):
        return _many_labels
    if is_letor(path):
        return _letor
    return _many_labels if _is_extreme(path) else _table


def _folder_reader(path: Path) -> Callable[[_Asked], _Read]:
    if any((path / name).is_file() for name in MOVIELENS) or is_netflix(path):
        return _ratings_folder
    if (path / "Annotations").is_dir():
        return _boxes
    if find_collection(path) is not None:
        return _texts
    classes = [entry for entry in path.iterdir() if entry.is_dir()]
    if any(file.suffix.lower() in ENDINGS for folder in classes for file in islice(folder.iterdir(), 5)):
        return _images
    raise BadRecipe(
        f"{path}: expected a folder of ratings (u.data, ratings.dat, ratings.csv), of texts (corpus, queries, qrels), "
        "one with a folder of images per class, or one in the form of Pascal VOC (Annotations, JPEGImages), got none "
        "of these"
    )


def _table(asked: _Asked) -> _Read:
    raw = open_table(asked.path)
    columns = raw.columns
    if asked.label is None and asked.kind in (None, "recsys") and (ratings := _find_ratings(raw)) is not None:
        asked.refuse("ratings")
        return _ratings(asked, raw, *ratings)
    label, why = _find_label(asked, raw)
    query = asked.query
    if query is None and asked.kind in (None, "ltr", "pap"):
        query = next((name for name in columns if QUERY_NAMES.match(name) and name != label), None)
    words = raw.frame[label].drop_nulls()
    counts = words.value_counts(sort=True, name="rows")
    kinds = len(counts)
    if asked.kind == "retrieval":
        recipe = {"task": "retrieval", "data": {"train": str(asked.path), "label": label}}
        return recipe, [
            Fact("kind", "retrieval: rows of a class become neighbours", "--task tabular"),
            *_columns(read_table(raw, label=label)),
        ]
    if query is not None and asked.positive is None:
        return _queries(asked, raw, label, why, query)
    if kinds > 2 and asked.positive is None:
        _refuse_classes(raw, label, counts)
    data: dict[str, Any] = {"train": str(asked.path), "label": label}
    if asked.positive is not None:
        data["positive"] = asked.positive
    recipe = {"task": "tabular", "data": data}
    table = read_table(raw, label=label, positive=asked.positive, target="binary")
    positives = int((table.part.labels == 1).sum())
    rows = len(table.part)
    named = "1" if table.schema.classes is None else table.schema.classes[1]
    reason = "as given" if asked.positive else "the rarer class" if table.schema.classes else "labels are 0 and 1"
    return recipe, [
        Fact("kind", "tabular: rank the positive rows of a table first, as the label has two values", "--query COLUMN"),
        Fact("label", f"{label} ({why})", "--label COLUMN"),
        Fact(
            "positive",
            f"{named} ({reason}): {positives:,} of {rows:,} rows, {100 * positives / rows:.3g} %",
            "--positive CLASS",
        ),
        *_columns(table, _IN_FOLDS),
        Fact("model", _ENSEMBLE, "model.ensemble=null"),
    ]


def _queries(asked: _Asked, raw: RawTable, label: str, why: str, query: str) -> _Read:
    kind = asked.kind or "ltr"
    recipe = {"task": kind, "data": {"train": str(asked.path), "label": label, "query": query}}
    table = read_table(raw, label=label, query=query)
    part = table.part
    assert part.query_ids is not None
    lists = part.query_ids.unique()
    without = len(lists) - len(part.query_ids[part.labels > 0].unique())
    shown = "ltr: rank the rows of each query by grade" if kind == "ltr" else "pap: rank the rows of each list, first k"
    left = f"; {without:,} without a relevant row teach nothing" if without else ""
    return recipe, [
        Fact("kind", f"{shown}, as the table has a column of queries", "--task pap | ltr"),
        Fact("label", f"{label} ({why}), grades 0 to {part.labels.max().item():g}", "--label COLUMN"),
        Fact("query", f"{query}: {len(lists):,} lists{left}", "--query COLUMN"),
        *(_columns(table, _IN_FOLDS) if kind == "ltr" else _columns(table)),
        *_list_model(kind),
    ]


def _list_model(kind: str) -> list[Fact]:
    return [Fact("model", _ENSEMBLE, "model.ensemble=null")] if kind == "ltr" else []


def _columns(table: Table, cut: str = _IN_PARTS) -> list[Fact]:
    """Return facts about the features of a table, what is left out, and how the rows are cut."""
    encoding = table.schema.encoding
    kinds = [encoding.kind(name) for name in encoding.names]
    shown = ", ".join(f"{kinds.count(kind)} {kind}" for kind in ("number", "category", "date") if kind in kinds)
    if encoding.indicators:
        shown += f"; {len(encoding.indicators)} with missing cells"
    facts = [Fact("columns", f"{shown}: {_some(encoding.names)}", "data.features=[...]  data.categories=[...]")]
    if table.schema.left_out:
        reasons = "; ".join(f"{name} ({reason})" for name, reason in list(table.schema.left_out.items())[:5])
        more = f" and {len(table.schema.left_out) - 5} more" if len(table.schema.left_out) > 5 else ""
        facts.append(Fact("left out", f"{reasons}{more}", "data.features=[...]"))
    return [*facts, Fact("rows", f"{len(table.part):,} rows: {cut}", "data.validation=FILE  data.test=FILE")]


def _find_label(asked: _Asked, raw: RawTable) -> tuple[str, str]:
    columns = raw.columns
    if asked.label is not None:
        if asked.label not in columns:
            raise BadRecipe(f"--label: {asked.path} has no column {asked.label!r}{nearest(asked.label, columns)}")
        return asked.label, "as given"
    free = [name for name in columns if name != asked.query]
    if raw.named and (called := find_by_name(free, LABEL_NAMES)) is not None:
        return called, "by its name"
    binary = [name for name in free if raw.frame[name].drop_nulls().n_unique() == 2]
    if len(binary) == 1:
        return binary[0], "the only column of two values"
    if not raw.named and binary and binary[-1] == free[-1]:
        return binary[-1], "the last column, of two values"
    candidates = [name for name in free if raw.named and LABEL_NAMES.match(name)] or binary
    told = f"candidates: {_some(candidates)}" if candidates else f"no column of two values among {_some(columns)}"
    raise BadRecipe(f"--label: expected the column to predict, as {asked.path} leaves it open; {told}")


def find_by_name(columns: Sequence[str], names: re.Pattern[str]) -> str | None:
    """Return the only column with such a name; None if there is none, or several."""
    called = [name for name in columns if names.match(name)]
    return called[0] if len(called) == 1 else None


def _refuse_classes(raw: RawTable, label: str, counts: pl.DataFrame) -> None:
    numeric = raw.frame[label].dtype.is_numeric()
    if numeric and len(counts) > MOST_CLASSES:
        low, high = (float(value) for value in (raw.frame[label].min(), raw.frame[label].max()))  # type: ignore[arg-type]
        raise BadRecipe(
            f"--label: expected a column of two classes, got {label!r} with {len(counts)} different numbers from "
            f"{low:g} to {high:g}; make it 0 and 1 first (such as above a threshold), or, if they are "
            "grades of lists, give --query COLUMN"
        )
    shown = ", ".join(f"{word} ({rows:,} rows)" for word, rows in counts.head(5).iter_rows())
    first = counts[label][-1]
    raise BadRecipe(
        f"--positive: expected the class to rank first, as {label!r} has {len(counts)}: {shown}; such as --positive "
        f"{first}; or --query COLUMN if these are grades, or --task retrieval if rows of a class are to find each other"
    )


def _find_ratings(raw: RawTable) -> tuple[str | int, str | int, str | int | None] | None:
    """Return the columns of user, item and time, if the table has the form of ratings."""
    columns = raw.columns
    if raw.named:
        user = next((name for name in columns if USER_NAMES.match(name)), None)
        item = next((name for name in columns if ITEM_NAMES.match(name)), None)
        if user is None or item is None or len(columns) > 6:
            return None
        return user, item, next((name for name in columns if TIME_NAMES.match(name)), None)
    whole = all(raw.frame[name].dtype.is_integer() for name in columns)
    if len(columns) != 4 or not whole:
        return None
    stars, times = raw.frame[columns[2]], raw.frame[columns[3]]
    is_rating = stars.n_unique() <= 11 and times.min() > 10**8  # type: ignore[operator]
    return (0, 1, 3) if is_rating else None


def _ratings(asked: _Asked, raw: RawTable, user: str | int, item: str | int, time: str | int | None) -> _Read:
    data = {"train": str(asked.path), "user": user, "item": item, "leave_one_out": "random" if time is None else "time"}
    if time is not None:
        data["time"] = time
    users, items = (raw.frame[raw.columns[each] if isinstance(each, int) else each].n_unique() for each in (user, item))
    return {"task": "recsys", "data": data}, [
        Fact(
            "kind", "recsys: rank all other items for each user, as the columns are users and items", "--label COLUMN"
        ),
        Fact(
            "users, items", f"columns {user}, {item}: {users:,} users, {items:,} items", "data.user=... data.item=..."
        ),
        Fact(
            "rows", f"{len(raw.frame):,} pairs; each counts as a choice, whatever its rating", "leave rows out yourself"
        ),
        _left_out(time),
    ]


def _ratings_folder(asked: _Asked) -> _Read:
    asked.refuse("ratings")
    recipe = {"task": "recsys", "data": {"train": str(asked.path), "leave_one_out": "time"}}
    return recipe, [
        Fact("kind", "recsys: rank all other items for each user, as this is a folder of ratings"),
        _left_out("time"),
    ]


def _left_out(time: str | int | None) -> Fact:
    by = "random choice" if time is None else "latest choice"
    return Fact("test", f"the {by} of each user; another one for choices", "data.test=FILE data.leave_one_out=null")


def _texts(asked: _Asked) -> _Read:
    asked.refuse("texts")
    files = find_collection(asked.path)
    assert files is not None
    data = {"corpus": str(files.corpus), **{part: str(path) for part, path in files.judgements.items()}}
    if files.queries is not None:
        data["queries"] = str(files.queries)
    cut = [name for name in ("validation", "test") if name not in files.judgements]
    parts = f"{' and '.join(cut)}: 20 % of the queries each" if cut else "as the files in qrels say"
    return {"task": "text-search", "data": data}, [
        Fact("kind", "text-search: rank all documents for each query, as the folder holds a corpus and judgements"),
        Fact("queries", str(files.queries or "texts in the judgements"), "data.queries=FILE"),
        Fact("parts", parts, "data.validation=FILE  data.test=FILE"),
        Fact(
            "encoder",
            "static embeddings, learned from the corpus, or a pretrained model",
            "model.encoder=sentence-transformers/all-MiniLM-L6-v2",
        ),
    ]


def _letor(asked: _Asked) -> _Read:
    asked.refuse("LETOR")
    kind = asked.kind or "ltr"
    return {"task": kind, "data": {"train": str(asked.path)}}, [
        Fact("kind", f"{kind}: rank the rows of each query by grade, as this is a LETOR file", "--task pap"),
        Fact("queries", _IN_FOLDS if kind == "ltr" else _IN_PARTS, "data.validation=FILE  data.test=FILE"),
        *_list_model(kind),
    ]


def _many_labels(asked: _Asked) -> _Read:
    asked.refuse("examples with many labels")
    return {"task": "multilabel", "data": {"train": str(asked.path)}}, [
        Fact("kind", "multilabel: rank the labels of each example, as the file gives several to each"),
        Fact("rows", _IN_PARTS, "data.validation=FILE  data.test=FILE"),
    ]


def _images(asked: _Asked) -> _Read:
    asked.refuse("images")
    kind = asked.kind or "image-retrieval"
    images = read_images(asked.path)
    looked_at = [
        images.source.image(row) for row in range(0, len(images.source), max(1, len(images.source) // IMAGES_LOOKED_AT))
    ]
    shorter = min(min(image.shape[1:]) for image in looked_at)
    size = min(LARGEST_IMAGE, shorter)
    grey = all(bool(torch.equal(image[:1].expand_as(image), image)) for image in looked_at)
    data = {"train": str(asked.path), "size": size, "channels": 1 if grey else 3, "cache": True}
    other = "longtail" if kind == "image-retrieval" else "image-retrieval"
    does = "find the images of the same class" if kind == "image-retrieval" else "rank the images of each class first"
    colours = "grey" if grey else "colour"
    return {"task": kind, "data": data}, [
        Fact("kind", f"{kind}: {does}, as this is a folder of images by class", f"--task {other}"),
        Fact("images", f"{len(images.source):,} of {len(images.classes):,} classes, {colours}", "data.channels=..."),
        Fact(
            "size",
            f"{size} x {size} pixels, shorter sides from {shorter}, a small network",
            "data.size=224 model.name=resnet50",
        ),
    ]


def _boxes(asked: _Asked) -> _Read:
    asked.refuse("boxes")
    from rankwise.data import read_boxes

    boxes = read_boxes(asked.path, bad_boxes="skip")
    first = boxes.images[0]
    factor = min(1.0, LARGEST_SCENE / max(first.height, first.width))
    height, width = (max(32, round(side * factor / 16) * 16) for side in (first.height, first.width))
    data = {"train": str(asked.path), "height": height, "width": width, "cache": True, "resize": min(height, width)}
    form = "COCO" if asked.path.suffix == ".json" else "Pascal VOC"
    objects = sum(len(image.corners) for image in boxes.images)
    return {"task": "detection", "data": {**data, "bad_boxes": "skip"}}, [
        Fact("kind", f"detection: find objects and rank their boxes, as the data are boxes in the form of {form}"),
        Fact(
            "images",
            f"{len(boxes.images):,} with {objects:,} boxes of {len(boxes.classes)} classes: {_some(boxes.classes)}",
        ),
        Fact(
            "size",
            f"{height} x {width} pixels, a small network",
            "data.height=... data.width=... model.backbone=resnet50",
        ),
        Fact("bad boxes", "boxes without an area are left out", "data.bad_boxes=error"),
    ]


def _is_extreme(path: Path) -> bool:
    """Return whether a text file begins as those of the extreme classification repository: rows, features, labels."""
    if path.suffix.lower() not in (".txt", ".gz", ".xz"):
        return False
    from rankwise.data.files import read_line_blocks

    block = next(read_line_blocks(path, block_bytes=1 << 16), None)
    lines = [] if block is None else block.text.split(b"\n")
    return len(lines) > 1 and re.fullmatch(rb"\d+ \d+ \d+\s*", lines[0]) is not None and b":" in lines[1]


def _some(names: Sequence[str]) -> str:
    return ", ".join(map(str, names[:6])) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
