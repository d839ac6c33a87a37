"""Trainings on tables give the same scores for the same data in other words, and others for another meaning."""

from __future__ import annotations

import gzip
from functools import cache

import numpy as np
import polars as pl
import pytest

from workers.variants import COMMON, PARTS, TOLERANCE, Change, compare, merged, table_scores, train

FEATURES = ["a", "b", "c", "d"]
NAME = "patient"


def _features(random, rows, shift):
    # Multiples of 1/64: exact in float32 in any of the units below.
    return np.round((random.normal(size=(rows, 4)) + shift) * 64) / 64


def _frame(start, features, **columns):
    names = [f"p{number:03d}" for number in range(start, start + len(features))]
    return pl.DataFrame({NAME: names, **dict(zip(FEATURES, features.T, strict=True)), **columns})


def make_rows(random, start):
    labels = np.arange(40) % 5 == 0
    random.shuffle(labels)
    return _frame(start, _features(random, 40, labels[:, None] * np.array([1.5, 0.5, 0, -1])), label=labels.astype(int))


def make_lists(random, start, most):
    lists = np.arange(48) // 6
    features = _features(random, 48, 0)
    labels = np.clip(np.round(features[:, 0] + 0.5 * random.normal(size=48)), 0, most).astype(int)
    labels[::6] = most  # something relevant in every list
    return _frame(start, features, query=lists + start, label=labels)


def make_classes(random, start):
    kinds = random.permutation(np.arange(40) % 4)
    centres = np.random.default_rng(5).normal(size=(4, 4))
    return _frame(start, _features(random, 40, 2 * centres[kinds]), label=[f"k{kind}" for kind in kinds])


# The data of each kind, the recipe, and the options of batches that hold everything and of batches that are drawn.
KINDS = {
    "tabular": (make_rows, {"model": {"hidden": [6]}}, {"size": 40}, {"size": 16, "positives": 4}),
    "ltr": (
        lambda random, start: make_lists(random, start, 3),
        {"data": {"query": "query"}, "model": {"hidden": [6], "ensemble": None}},
        {"queries": 8},
        {"queries": 3, "relevant": 2, "irrelevant": 2},
    ),
    "pap": (
        lambda random, start: make_lists(random, start, 1),
        {"k": 2, "data": {"query": "query"}, "model": {"hidden": [6]}},
        {"users": 8},
        {"users": 3},
    ),
    "retrieval": (
        make_classes,
        {"model": {"hidden": [6], "dimensions": 3}},
        {"classes": 4, "samples_per_class": 10},
        {"classes": 3, "samples_per_class": 4},
    ),
}


def shuffled(frame):
    return frame.sample(fraction=1, shuffle=True, seed=len(frame))


def shuffled_lists(frame):
    """Lists in another order, their rows in the same."""
    order = np.random.default_rng(0).permutation(frame["query"].unique().sort().to_numpy())
    rank = {int(query): number for number, query in enumerate(order)}
    return frame.sort(pl.col("query").replace_strict(rank), maintain_order=True)


def spelled(**words):
    """Labels in other words."""
    return Change(lambda frame: frame.with_columns(pl.col("label").cast(pl.String).replace_strict(words)))


def text(separator=",", ending="\n", quote="necessary", mark="", suffix=".csv"):
    def write(frame, path):
        body = frame.write_csv(separator=separator, quote_style=quote).replace("\n", ending)
        path = path.with_suffix(suffix)
        content = (mark + body).encode("utf-8")
        path.write_bytes(gzip.compress(content) if suffix.endswith(".gz") else content)
        return path

    return Change(write=write)


def write_parquet(frame, path):
    frame.write_parquet(path.with_suffix(".parquet"))
    return path.with_suffix(".parquet")


def write_arrow(frame, path):
    frame.write_ipc(path.with_suffix(".arrow"))
    return path.with_suffix(".arrow")


def write_lines(frame, path):
    frame.write_ndjson(path.with_suffix(".jsonl"))
    return path.with_suffix(".jsonl")


def quoted_numbers(frame, path):
    """Everything as text in a Parquet file, as some databases export it."""
    frame.with_columns(pl.col(FEATURES).cast(pl.String)).write_parquet(path.with_suffix(".parquet"))
    return path.with_suffix(".parquet")


SAME = {
    "rows permuted": Change(shuffled, exact=False, drawn=False),
    "columns permuted": Change(
        lambda frame: frame.select(sorted(frame.columns, reverse=True)),
        options={"data": {"features": FEATURES, "label": "label"}},
    ),
    "ids renamed": Change(
        lambda frame: frame.with_columns(pl.concat_str(pl.lit("Ötzi, "), NAME).alias(NAME)),
        original=lambda name: name.removeprefix("Ötzi, "),
    ),
    "constant column added": Change(lambda frame: frame.select(pl.lit(7.5).alias("constant"), pl.all())),
    "unused column added": Change(
        lambda frame: frame.select(pl.Series("extra", np.random.default_rng(1).normal(size=len(frame))), pl.all()),
        own={"data": {"drop": ["extra"]}},
    ),
    "columns renamed": Change(lambda frame: frame.rename({name: f"{name} (mm)" for name in FEATURES})),
    "Parquet": Change(write=write_parquet),
    "Arrow": Change(write=write_arrow),
    "JSON lines": Change(write=write_lines),
    "numbers as text": Change(write=quoted_numbers),
    "semicolons": text(";"),
    "tabs": text("\t", suffix=".tsv"),
    "quotes": text(quote="always"),
    "Windows": text(";", ending="\r\n", mark="\ufeff"),
    "gzip": text(suffix=".csv.gz"),
    "units changed": Change(lambda frame: frame.with_columns(pl.col("a") * 1024, pl.col("c") / 8), exact=False),
    "units shifted": Change(lambda frame: frame.with_columns(pl.col("b") + 4), exact=False),
    "float32 columns": Change(lambda frame: frame.with_columns(pl.col(FEATURES).cast(pl.Float32)), write_parquet),
}
OF_KIND = {
    "tabular": {
        "labels no, yes": spelled(**{"0": "no", "1": "yes"}),
        "labels false, true": spelled(**{"0": "False", "1": "TRUE"}),
        "labels 0.0, 1.0": Change(lambda frame: frame.with_columns(pl.col("label").cast(pl.Float64))),
        "labels -1, 1": spelled(**{"0": "-1", "1": "1"}),
        "labels b, a": spelled(**{"0": "b", "1": "a"}),
        "labels as booleans": Change(lambda frame: frame.with_columns(pl.col("label") == 1), write_parquet),
        # The folds of an ensemble are drawn by the number of a row.
        "rows permuted": Change(
            shuffled, exact=False, drawn=False, options={"model": {"ensemble": None}, "refit": False}
        ),
    },
    "ltr": {"grades 0.0 to 3.0": Change(lambda frame: frame.with_columns(pl.col("label").cast(pl.Float64)))},
    "pap": {
        "labels no, yes": spelled(**{"0": "no", "1": "yes"}),
        "labels false, true": spelled(**{"0": "false", "1": "true"}),
    },
    "retrieval": {
        "classes renamed": spelled(**{f"k{kind}": f"the class {kind}" for kind in range(4)}),
        "classes as numbers": spelled(**{f"k{kind}": str(kind) for kind in range(4)}),
        "classes as floats": Change(
            lambda frame: frame.with_columns(pl.col("label").str.slice(1).cast(pl.Float64)),
            write_parquet,
        ),
    },
}
OF_LISTS = {
    "lists permuted": Change(shuffled_lists, exact=False, drawn=True),
    "lists renamed": Change(lambda frame: frame.with_columns(pl.col("query") * 3 + 10**12)),
    "lists named by text": Change(lambda frame: frame.with_columns(pl.format("list {}", pl.col("query") + 1000))),
}
for lists in ("ltr", "pap"):
    OF_KIND[lists] |= OF_LISTS

OTHER = {
    "labels of other rows": Change(lambda frame: frame.with_columns(pl.col("label").reverse())),
    "one column of other rows": Change(lambda frame: frame.with_columns(pl.col("a").reverse())),
    "two columns exchanged": Change(lambda frame: frame.rename({"a": "b", "b": "a"}).select(frame.columns)),
    "a column missing": Change(lambda frame: frame.drop("b")),
}
QUICK = {"rows permuted", "columns permuted", "constant column added", "Parquet", "Windows", "lists named by text"}
QUICK |= {"labels false, true", "classes as floats", "units changed", "labels of other rows"}


@cache
def parts(kind):
    make = KINDS[kind][0]
    return {name: make(np.random.default_rng(seed), 100 * seed) for seed, name in enumerate(PARTS)}


def recipe_of(kind, change, files, own):
    _, recipe, everything, drawn = KINDS[kind]
    batches = everything if len(files) == 3 else drawn
    return merged({"task": kind, "batches": batches}, COMMON, recipe, {"data": files}, change.options, own)


def scores_of(folder, kind, change, frames, way):
    """Train on files of all parts, or on one from which parts are drawn; score the rows of the last part."""
    made = {name: change.frame(frame) for name, frame in frames.items()}
    folder.mkdir()
    if way == "drawn":
        files = {"train": change.write(pl.concat(made.values()), folder / "all")}
    else:
        files = {name: change.write(frame, folder / name) for name, frame in made.items()}
    run = train(folder, recipe_of(kind, change, files, change.own))
    return table_scores(run, change.write(made["test"], folder / "new"), NAME)


_known = {}


@pytest.fixture
def original(tmp_path_factory):
    """The scores of the data as they are, trained once for each recipe."""

    def get(kind, change, way):
        key = (kind, str(dict(change.options)), way)
        if key not in _known:
            plain = Change(options=change.options)
            _known[key] = scores_of(tmp_path_factory.mktemp("original") / "plain", kind, plain, parts(kind), way)
        return _known[key]

    return get


def cases(changes):
    return [
        pytest.param(kind, name, way, marks=() if is_quick(kind, name, way) else pytest.mark.slow)
        for kind in KINDS
        for name, change in changes(kind).items()
        for way in (("given", "drawn") if change.drawn else ("given",))
    ]


def is_quick(kind, name, way):
    return name in QUICK and (way == "given" or kind in ("tabular", "ltr"))


def changes_of(kind):
    return {**SAME, **OF_KIND[kind]}


@pytest.mark.filterwarnings("ignore::rankwise.data.DataNote")
@pytest.mark.parametrize("kind, change, way", cases(changes_of))
def test_the_same_data_in_other_words_give_the_same_scores(tmp_path, original, kind, change, way):
    changed = changes_of(kind)[change]
    found = scores_of(tmp_path / "changed", kind, changed, parts(kind), way)
    difference = compare(original(kind, changed, way), found, changed.original)
    assert difference <= (0 if changed.exact else TOLERANCE)


@pytest.mark.filterwarnings("ignore::rankwise.data.DataNote")
@pytest.mark.parametrize("kind, change, way", cases(lambda kind: OTHER))
def test_data_of_another_meaning_give_other_scores(tmp_path, original, kind, change, way):
    changed = OTHER[change]
    found = scores_of(tmp_path / "changed", kind, changed, parts(kind), way)
    before = original(kind, changed, way)
    assert compare({name: before[name] for name in found}, found) > 100 * TOLERANCE
