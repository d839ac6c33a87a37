"""Many labels: NDCG@5 on bibtex, with half of its examples or a tenth of them to learn from.

A cut draws the parts anew; the halves of the suite differ in the seeds of their cuts. Every choice is made on the
validation part, then everything is fitted to training and validation parts. The defaults of `multilabel` were decided
on the published parts of bibtex, so these figures are no proof for other data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import rankwise as rw
from benchmarks.find import find_data
from benchmarks.quality.blends import LINEAR, fit_ridge, one_vs_rest
from rankwise.data import SparsePart, Split
from rankwise.problems import MultiLabel

__all__ = ["CONTENDERS", "METRIC", "OURS", "data_sets", "evaluate"]

METRIC = "NDCG@5"
OURS = "rankwise train"
NAME = "ndcg@5"
# Shares of the examples for validation and test; the others are learned from.
SHARES = {"bibtex, half": (0.1, 0.4), "bibtex, a tenth": (0.03, 0.87)}

Parts = Split[SparsePart]
Contender = Callable[[MultiLabel, Parts], float]


def _trained(problem: MultiLabel, parts: Parts) -> float:
    run = rw.train(problem)  # which cuts the examples alike
    return float(problem.evaluate(run.model, parts.part("test")).means[NAME])


def _listnet(problem: MultiLabel, parts: Parts) -> float:
    return _trained(problem.changed(loss="listnet", model={"ridge": None}), parts)


def _ridge(problem: MultiLabel, parts: Parts) -> float:
    return float(fit_ridge(problem, parts)[1].means[NAME])


def _linear(name: str) -> Contender:
    def judge(problem: MultiLabel, parts: Parts) -> float:
        ((_, evaluation, _),) = one_vs_rest(problem, parts, [name])
        return float(evaluation.means[NAME])

    return judge


CONTENDERS: Mapping[str, Contender] = {
    OURS: _trained,
    "ListNet, the same network": _listnet,
    "ridge": _ridge,
    **{name: _linear(name) for name in LINEAR},
}


def data_sets(half: str) -> Sequence[str]:
    """Return the names of the data sets of one half."""
    return [f"{name} ({half})" for name in SHARES]


def evaluate(data: str, contender: str, cut: int) -> float:
    """Return NDCG@5 of a contender on the test part."""
    name, _, half = data.partition(" (")
    seed = cut + (100 if half.startswith("confirmation") else 0)
    validation, test = SHARES[name]
    sources = {"train": str(find_data("bibtex") / "bibtex.arff"), "validation": validation, "test": test}
    problem = MultiLabel.model_validate({"data": sources, "seeds": (seed,)})
    _, split = problem.read({})
    return CONTENDERS[contender](problem, problem.cut(split, seed))
