"""Contenders on the same folds of the same tables: average precision of each, and paired differences."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import average_precision_score
from sklearn.model_selection import StratifiedKFold

from benchmarks.find import find_data
from rankwise.metrics import compare

__all__ = ["Table", "load_table", "report", "run_folds"]

Array = NDArray[Any]
Table = tuple[Array, Array]
# Features and labels to learn from, features to score, a seed: scores.
Contender = Callable[[Array, Array, Array, int], Array]


def load_table(name: str) -> Table:
    """Features (N, D) and labels (N,): "mammography" from the folder named by RANKWISE_DATA, or "breast cancer"."""
    if name == "breast cancer":
        X, y = load_breast_cancer(return_X_y=True)
        # Malignant, the rarer class, is what is looked for.
        return X, 1 - y
    path = find_data("mammography") / "mammography.csv"
    rows = [line.split(",") for line in path.read_text().split()]
    return np.array([row[:-1] for row in rows], dtype=float), np.array([row[-1] == "'1'" for row in rows], dtype=int)


def run_folds(table: Table, contenders: Mapping[str, Contender], *, folds: int, seeds: int) -> dict[str, Array]:
    """The AP of each contender on each fold of each seed, (seeds * folds,); a seed shuffles the rows anew."""
    X, y = table
    found: dict[str, list[float]] = {name: [] for name in contenders}
    for seed in range(seeds):
        for learn, test in StratifiedKFold(folds, shuffle=True, random_state=seed).split(X, y):
            for name, contender in contenders.items():
                scores = contender(X[learn], y[learn], X[test], seed)
                found[name].append(float(average_precision_score(y[test], scores)))
            so_far = ", ".join(f"{name} {values[-1]:.4f}" for name, values in found.items())
            print(f"seed {seed}: {so_far}", file=sys.stderr, flush=True)
    return {name: np.array(values) for name, values in found.items()}


def report(path: Path, head: str, results: Mapping[str, Mapping[str, Array]], *, against: Sequence[str]) -> None:
    """Print and write a Markdown table (`path`) and every single value (the same with .csv).

    Args:
        path: of the Markdown file.
        head: what was run, and how.
        results: by table, by contender, values of the same folds.
        against: the contenders from which the differences of all others are taken.
    """
    columns = "".join(f" minus {name} (95 % interval) |" for name in against)
    lines = [
        head,
        "",
        f"| table | contender | AP x 100, mean +- std |{columns}",
        "| --- | --- | --: |" + " --: |" * len(against),
    ]
    for table, values in results.items():
        for name, own in values.items():
            cells = [_difference(own, values[other]) if name not in against else "" for other in against]
            lines.append(
                f"| {table} | {name} | {100 * own.mean():.2f} +- {100 * own.std(ddof=1):.2f} | "
                + " | ".join(cells)
                + " |"
            )
    print("\n".join(lines))
    path.write_text("\n".join(lines) + "\n")
    with path.with_suffix(".csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["table", "contender", "fold", "ap"])
        for table, values in results.items():
            for name, own in values.items():
                writer.writerows([table, name, fold, f"{value:.6f}"] for fold, value in enumerate(own))


def _difference(own: Array, other: Array) -> str:
    found = compare(torch.from_numpy(own), torch.from_numpy(other))
    low, high = found.interval
    return f"{100 * found.difference:+.2f} ({100 * low:+.2f} to {100 * high:+.2f})"
