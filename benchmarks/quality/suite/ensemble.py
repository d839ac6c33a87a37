"""Measure what the parts of the tabular ensemble add: `python -m benchmarks.quality.suite.ensemble`.

Eight development tables, two of five folds each. The ensemble is trained once for each; then the mix is fitted anew to
some of its learners, or left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score
from sklearn.model_selection import StratifiedKFold
from torch import Tensor

from benchmarks.quality.suite.report import report
from benchmarks.quality.suite.tables import TABLES, load_table
from benchmarks.quality.suite.tabular import FOLDS, Trained
from rankwise.models import StackedScorer
from rankwise.models.mixing import fit_mix
from rankwise.models.stacked import out_of_fold

NAMES = (
    "yeast4",
    "vehicle3",
    "glass2",
    "phoneme at 6 %",
    "magic at 5 %",
    "german at 10 %",
    "car-good",
    "eights at 2 %",
)
CUTS = 2
# Learners by their number among the scores of a member.
LEARNERS = {
    "ensemble": (0, 1, 2, 3, 4, 5, 6),
    "without the network of cross entropy": (0, 2, 3, 4, 5, 6),
    "without the network of the ranking loss": (1, 2, 3, 4, 5, 6),
    "without networks": (2, 3, 4, 5, 6),
    "without regressions": (0, 1, 5, 6),
    "without boosting": (0, 1, 2, 3, 4, 6),
    "without extra trees": (0, 1, 2, 3, 4, 5),
    "without trees": (0, 1, 2, 3, 4),
    "network of the ranking loss": (0,),
    "network of cross entropy": (1,),
    "boosting": (5,),
    "extra trees": (6,),
}
# Scores out of fold (N, K), labels (N,) and scores of new rows (T, K) to scores (T,).
Mixed = Callable[[Tensor, Tensor, Tensor], Tensor]


def choose(learners: Sequence[int]) -> Mixed:
    """Return the mix of some learners."""

    def mixed(known: Tensor, labels: Tensor, new: Tensor) -> Tensor:
        return fit_mix(known.T[list(learners)], labels)(new.T[list(learners)])

    return mixed


def take_best(known: Tensor, labels: Tensor, new: Tensor) -> Tensor:
    """Return the scores of the learner with the highest AP out of fold."""
    values = [average_precision_score(labels, column) for column in known.T]
    return new[:, int(np.argmax(values))]


def weigh_equally(known: Tensor, labels: Tensor, new: Tensor) -> Tensor:
    """Return the mean of the standardised scores of all learners."""
    return ((new - known.mean(0)) / known.std(0)).mean(1)


MIXES: dict[str, Mixed] = {
    **{name: choose(learners) for name, learners in LEARNERS.items()},
    "the best learner out of fold": take_best,
    "equal weights": weigh_equally,
}


def main() -> None:
    torch.set_num_threads(1)
    values: dict[str, list[list[float]]] = {name: [] for name in [*MIXES, "one network, four fifths of the rows"]}
    for name in NAMES:
        record = next(record for record in TABLES if record.name == name)
        assert record.half == "development"
        cells = [evaluate(*load_table(record), cut) for cut in range(CUTS)]
        for contender, found in values.items():
            found.append([cell[contender] for cell in cells])
        print(name, {contender: round(float(np.mean(found[-1])), 4) for contender, found in values.items()}, flush=True)
    results = {name: (np.array(found), np.zeros((len(NAMES), CUTS))) for name, found in values.items()}
    text = report(results, NAMES, ours="ensemble", metric="AP").split("\n\n")[0]
    # Seconds are those of all mixes together.
    lines = [line.rsplit(" | ", 1)[0] + " |" for line in text.splitlines()]
    head = f"`python -m benchmarks.quality.suite.ensemble`: {len(NAMES)} development tables x {CUTS} cuts\n\n"
    Path(__file__).with_suffix(".md").write_text(head + "\n".join(lines) + "\n", encoding="utf-8")


def evaluate(X: NDArray[np.float64], y: NDArray[np.int64], cut: int) -> dict[str, float]:
    """Return the AP of each mix on a fold."""
    learn, test = list(StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(X, y))[cut]
    run = Trained(cut).fit(X[learn], y[learn]).run
    model, part = run.model, run.part("train")
    assert isinstance(model, StackedScorer)
    new = model.member_scores(run.read((X[test], y[test])).features).mean(1).double()
    known = out_of_fold(model.member_scores(part.features), part.folds).double()
    scores = {name: mixed(known, part.labels > 0, new) for name, mixed in MIXES.items()}
    found = {name: float(average_precision_score(y[test], own.numpy())) for name, own in scores.items()}
    alone = Trained(cut, model={"ensemble": None}, refit=False).fit(X[learn], y[learn]).predict_proba(X[test])[:, 1]
    return {**found, "one network, four fifths of the rows": float(average_precision_score(y[test], alone))}


if __name__ == "__main__":
    main()
