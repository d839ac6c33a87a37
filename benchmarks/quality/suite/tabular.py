"""Tables: average precision of classifiers, all with the same columns of numbers, on the same folds of five."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from lightgbm import LGBMClassifier
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import rankwise as rw
from benchmarks.quality.suite.tables import TABLES, load_table
from rankwise.problems import Tabular
from rankwise.sklearn import APClassifier

__all__ = ["CONTENDERS", "FOLDS", "METRIC", "OURS", "build_catboost", "data_sets", "evaluate"]

METRIC = "AP"
FOLDS = 5
OURS = "APClassifier()"


def build_catboost(seed: int) -> Any:
    """Return CatBoost with 300 trees, on one thread."""
    from catboost import CatBoostClassifier  # type: ignore[import-not-found]

    quiet = {"verbose": False, "allow_writing_files": False}
    return CatBoostClassifier(iterations=300, random_seed=seed, thread_count=1, **quiet)


def _tuned_lightgbm(seed: int) -> Any:
    grid = {"learning_rate": [0.03, 0.1], "num_leaves": [7, 31]}
    model = LGBMClassifier(n_estimators=150, random_state=seed, n_jobs=1, verbose=-1)
    return GridSearchCV(model, grid, scoring="average_precision", cv=StratifiedKFold(3, shuffle=True, random_state=0))


class Trained:
    """What `rankwise train` makes of a table, in the form of a classifier.

    Args:
        seed: of the training.
        options: of the problem.
    """

    def __init__(self, seed: int, **options: Any) -> None:
        self.problem = Tabular(seeds=(seed,), **options)

    def fit(self, X: NDArray[np.float64], y: NDArray[np.int64]) -> Trained:
        """Train on 80 % of the rows, choose on the others, refit if the problem says so."""
        # The test part is required and not used here.
        self.run = rw.train(self.problem, train=(X, y), test=(X, y))
        return self

    def predict_proba(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the probabilities (N, 2) of both classes."""
        positive = self.run.predict(X, probabilities=True).outputs.double().numpy()
        return np.stack([1 - positive, positive], axis=1)


CONTENDERS: Mapping[str, Callable[[int], Any]] = {
    OURS: lambda seed: APClassifier(random_state=seed),
    'APClassifier(model="network")': lambda seed: APClassifier(model="network", random_state=seed),
    "rankwise train": Trained,
    "rankwise train, network alone": lambda seed: Trained(seed, model={"ensemble": None}, refit=False),
    "logistic regression, balanced": lambda seed: make_pipeline(
        StandardScaler(), LogisticRegression(class_weight="balanced", max_iter=1000)
    ),
    "random forest": lambda seed: RandomForestClassifier(300, random_state=seed),
    "extra trees": lambda seed: ExtraTreesClassifier(300, random_state=seed),
    "HistGradientBoosting": lambda seed: HistGradientBoostingClassifier(random_state=seed),
    "LightGBM": lambda seed: LGBMClassifier(random_state=seed, n_jobs=1, verbose=-1),
    "LightGBM, tuned": _tuned_lightgbm,
    "CatBoost, 300 trees": build_catboost,
}


def data_sets(half: str) -> Sequence[str]:
    """Return the names of the tables of one half."""
    return [record.name for record in TABLES if record.half == half]


def evaluate(data: str, contender: str, cut: int) -> float:
    """Return the AP of a contender trained on four folds of a table, on the fifth."""
    X, y = _table(data)
    learn, test = list(StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(X, y))[cut]
    model = CONTENDERS[contender](cut).fit(X[learn], y[learn])
    return float(average_precision_score(y[test], model.predict_proba(X[test])[:, 1]))


@functools.cache
def _table(name: str) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    return load_table(next(record for record in TABLES if record.name == name))
