"""The same data in other words, and what a training by the command line makes of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from rankwise.cli import main

PARTS = ("train", "validation", "test")
# Few steps of plain gradient descent, in float64: sums in another order differ by 1e-16 of their size, and no step can
# multiply that by much. What is read and written is float32, which rounds by 6e-8.
COMMON = {
    "optimiser": {"name": "sgd", "learning_rate": 0.1, "momentum": 0},
    "schedule": {"name": "constant"},
    "budget": {"steps": 5},
    "evaluation": {"every": None, "weights": "last"},
    "device": {"precision": "64"},
}
TOLERANCE = 2e-6

Frame = pl.DataFrame
Scores = dict[str, Any]


def same(value: Any) -> Any:
    return value


def write_csv(frame: Frame, path: Path) -> Path:
    frame.write_csv(path.with_suffix(".csv"))
    return path.with_suffix(".csv")


@dataclass(frozen=True)
class Change:
    """A change of the data that leaves their meaning alone, or not.

    Attributes:
        frame: from the table of a part to the changed one.
        write: writes a table and returns its path, given a path without an ending.
        options: of the recipe, with and without the change: groups of values.
        own: further options that the changed data need.
        original: from a name of a row in the changed data to that in the original.
        exact: whether scores are equal bit for bit; else to within `TOLERANCE`, as sums are taken in another order.
        drawn: whether the change keeps the order of rows, and thereby the parts and batches that are drawn.
    """

    frame: Callable[[Frame], Frame] = same
    write: Callable[[Frame, Path], Path] = write_csv
    options: Mapping[str, Any] = field(default_factory=dict)
    own: Mapping[str, Any] = field(default_factory=dict)
    original: Callable[[str], str] = same
    exact: bool = True
    drawn: bool = True


def merged(*recipes: Mapping[str, Any]) -> dict[str, Any]:
    """Recipes on top of each other, group by group."""
    found: dict[str, Any] = {}
    for recipe in recipes:
        for key, value in recipe.items():
            found[key] = {**found.get(key, {}), **value} if isinstance(value, Mapping) else value
    return found


def train(folder: Path, recipe: Mapping[str, Any]) -> Path:
    """Train by the command line; return the folder of the run."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "recipe.yaml").write_text(json.dumps(recipe, default=str))
    assert main(["train", str(folder / "recipe.yaml"), "--out", str(folder / "run")]) == 0
    return folder / "run"


def table_scores(run: Path, data: Path, name: str) -> Scores:
    """By the name of a row its score, or its vector."""
    out = run.parent / "scores.parquet"
    assert main(["predict", str(run), "--data", str(data), "--out", str(out), "--keep", name]) == 0
    frame = pl.read_parquet(out)
    outputs = [column for column in frame.columns if column == "score" or column.startswith("output ")]
    return dict(zip(frame[name].cast(pl.String).to_list(), frame.select(outputs).rows(), strict=True))


def compare(expected: Scores, found: Scores, original: Callable[[str], str] = same) -> float:
    """Return the largest difference of scores of the same row, relative to the largest score."""
    renamed = {original(name): values for name, values in found.items()}
    assert renamed.keys() == expected.keys()
    left, right = (np.array([scores[name] for name in expected], dtype=np.float64) for scores in (expected, renamed))
    assert left.shape == right.shape
    assert np.isfinite(left).all()
    assert np.ptp(left) > 0
    return float(np.abs(left - right).max() / np.abs(left).max())
