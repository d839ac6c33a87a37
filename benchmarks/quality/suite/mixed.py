"""Tables as people have them, made from real ones: text, booleans, missing cells, and a date, an id and a constant.

A twelfth of the cells are missing at random. The date is later for positives by 60 days in 730 on average. All
contenders get the same columns; categories and the date are declared by hand for the rivals.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from lightgbm import LGBMClassifier
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score
from sklearn.model_selection import StratifiedKFold

import rankwise as rw
from benchmarks.quality.suite.tables import TABLES, choose_rows
from benchmarks.quality.suite.tabular import FOLDS, build_catboost
from rankwise.problems import Tabular
from rankwise.sklearn import APClassifier

__all__ = ["CONTENDERS", "METRIC", "OURS", "data_sets", "evaluate"]

METRIC = "AP"
OURS = "APClassifier()"
# Those with columns of text.
_NAMES = (
    "german at 10 %",
    "crx at 10 %",
    "flare-F",
    "car-good",
    "kr-vs-k-zero_vs_eight",
    "chess at 5 %",
    "tic-tac-toe at 10 %",
)
_MISSING = 1 / 12

# From frame, labels, frame to score and a seed to chances.
Contender = Callable[[pd.DataFrame, NDArray[np.int64], pd.DataFrame, int], NDArray[np.float64]]


def _ours(train: pd.DataFrame, y: NDArray[np.int64], test: pd.DataFrame, seed: int) -> NDArray[np.float64]:
    chances: NDArray[np.float64] = APClassifier(random_state=seed).fit(train, y).predict_proba(test)[:, 1]
    return chances


def _lightgbm(train: pd.DataFrame, y: NDArray[np.int64], test: pd.DataFrame, seed: int) -> NDArray[np.float64]:
    both = _days(pd.concat([train, test]))
    both = both.astype(dict.fromkeys(_words(both), "category"))
    model = LGBMClassifier(random_state=seed, n_jobs=1, verbose=-1).fit(both[: len(train)], y)
    return np.asarray(model.predict_proba(both[len(train) :]))[:, 1]


def _catboost(train: pd.DataFrame, y: NDArray[np.int64], test: pd.DataFrame, seed: int) -> NDArray[np.float64]:
    names = _words(train)
    train, test = (_days(part).fillna(dict.fromkeys(names, "missing")) for part in (train, test))
    train, test = (part.astype(dict.fromkeys(names, str)) for part in (train, test))
    model = build_catboost(seed).fit(train, y, cat_features=names)
    return np.asarray(model.predict_proba(test))[:, 1]


def _trained(train: pd.DataFrame, y: NDArray[np.int64], test: pd.DataFrame, seed: int) -> NDArray[np.float64]:
    labelled = train.assign(wanted=y)
    # The test part is required and not used here.
    run = rw.train(Tabular(data={"label": "wanted"}, seeds=(seed,)), train=labelled, test=labelled)
    return run.predict(test, probabilities=True).outputs.double().numpy()


CONTENDERS: Mapping[str, Contender] = {
    OURS: _ours,
    "rankwise train": _trained,
    "LightGBM": _lightgbm,
    "CatBoost, 300 trees": _catboost,
}


def data_sets(half: str) -> Sequence[str]:
    """Return the names of the tables of one half."""
    return [record.name for record in TABLES if record.half == half and record.name in _NAMES]


def evaluate(data: str, contender: str, cut: int) -> float:
    """Return the AP of a contender trained on four folds of a table, on the fifth."""
    X, y = _table(data)
    learn, test = list(StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(X, y))[cut]
    return float(average_precision_score(y[test], CONTENDERS[contender](X.iloc[learn], y[learn], X.iloc[test], cut)))


@functools.cache
def _table(name: str) -> tuple[pd.DataFrame, NDArray[np.int64]]:
    record = next(record for record in TABLES if record.name == name)
    columns, positive = record.read()
    rows = choose_rows(record, positive)
    frame, y = columns.iloc[rows].reset_index(drop=True), positive[rows].astype(np.int64)
    frame.columns = pd.Index([f"c{number}" for number in range(frame.shape[1])])
    random = np.random.default_rng(0)
    for column in frame:
        if frame[column].nunique() == 2:
            frame[column] = (frame[column] == frame[column].iloc[0]).astype(object)
    frame = frame.mask(random.random(frame.shape) < _MISSING)
    days = random.integers(0, 730, len(y)) + 60 * y
    frame.insert(0, "row_id", np.arange(len(y)) + 1000)
    frame["seen"] = np.datetime64("2024-01-01") + days.astype("timedelta64[D]")
    frame["unit"] = "mm"
    return frame, y


def _words(frame: Any) -> list[str]:
    return [name for name in frame if frame[name].dtype.kind not in "biufM"]


def _days(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(seen=(frame["seen"] - pd.Timestamp("2024-01-01")).dt.days)
