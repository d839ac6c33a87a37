"""The defaults of `recsys` and `multilabel` beside what people use: `python -m benchmarks.quality.blends [SET ...]`.

SET is one of ml-100k, ml-100k-time, ml-1m, bibtex; by default all. Needs those data under RANKWISE_DATA. Runs are kept
in `build/blends`, the figures of each set in `blends/SET.json` beside this file, and the tables of all in `blends.md`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import LinearSVC
from torch import Tensor, nn

import rankwise as rw
from benchmarks.find import find_data
from rankwise.data import InteractionPart, SparsePart, SparseRows, Split
from rankwise.metrics import Evaluation, compare
from rankwise.models import EASE, Blend, Ridge
from rankwise.problems import MultiLabel, Problem, Recommendation
from rankwise.runs import Run

FOLDER, RUNS = Path(__file__).parent, Path("build", "blends")
LAMBDAS = (200.0, 300.0, 500.0, 1000.0)
RIDGES = (0.3, 0.6, 1.0, 2.0)
PENALTIES = (0.3, 1.0, 3.0, 10.0)
Row = tuple[str, Evaluation, float]
# One-vs-rest classifiers by name, given C.
LINEAR: dict[str, Callable[[float], Any]] = {
    "one-vs-rest logistic regression": lambda penalty: LogisticRegression(C=penalty, solver="liblinear"),
    "one-vs-rest linear SVM": lambda penalty: LinearSVC(C=penalty),
}
Parts = Run | Split[Any]

ABOUT = {
    "ml-100k": "MovieLens-100K, a fifth of each user's films for the test (`rankwise train ml-1m "
    "'data={train: movielens-100k, test: 0.2}'`).",
    "ml-100k-time": "MovieLens-100K, each user's last film for the test (`rankwise train ml-1m "
    "'data={train: movielens-100k, leave_one_out: time}'`).",
    "ml-1m": "MovieLens-1M (`rankwise train ml-1m data.train=train.txt data.test=test.txt`).",
    "bibtex": "Bibtex (`rankwise train bibtex data.train=bibtex-train.arff data.test=bibtex-test.arff`).",
}
EVERYTHING = (
    "`python -m benchmarks.quality.blends`, one seed. Every choice (step, lambda, power, share, C) is made on the "
    "validation part; then everything is fitted again to training and validation data together and judged on the test "
    "part. The three first rows are one run: the blend, its trained model alone, its closed form alone. Difference: "
    "default minus that row, on the same lists, with a 95 % bootstrap interval. CPU s: of one core, choices included."
)


def problem_of(name: str) -> Problem[Any, Any]:
    """Return the problem of a set: data only, the rest is the default."""
    if name == "ml-1m":
        folder = find_data("movielens-1m-implicit")
        data = {"train": str(folder / "train.txt"), "test": str(folder / "test.txt")}
        return Recommendation.model_validate({"data": data})
    if name == "bibtex":
        folder = find_data("bibtex")
        data = {"train": str(folder / "bibtex-train.arff"), "test": str(folder / "bibtex-test.arff")}
        return MultiLabel.model_validate({"data": data})
    cut = {"leave_one_out": "time"} if name == "ml-100k-time" else {"test": 0.2}
    return Recommendation.model_validate({"data": {"train": str(find_data("movielens-100k")), **cut}})


def train(problem: Problem[Any, Any], folder: Path) -> tuple[Run, float]:
    """Return the run of a problem and the CPU seconds of its training, from its folder if it is there."""
    began, note = time.process_time(), folder / "cpu-seconds.txt"
    run = rw.train(problem, out=folder, resume=True)
    if not note.is_file():
        note.write_text(f"{time.process_time() - began:.1f}")
    return run, float(note.read_text())


def compare_rows(name: str) -> Iterator[Row]:
    """Yield what is compared on a set: a name, its evaluation on the test part, its CPU seconds."""
    problem = problem_of(name)
    run, seconds = train(problem, RUNS / name)
    assert run.test is not None
    assert isinstance(run.model, Blend)
    yield "**default: blend**", run.test, seconds
    of = "ridge" if name == "bibtex" else "EASE"
    for title, part in (("its trained model alone", run.model.trained), (f"its {of} alone", run.model.solved)):
        yield title, problem.evaluate(part, run.part("test")), float("nan")
    if name == "bibtex":
        listnet = problem.changed(loss="listnet", model={"ridge": None})
        other, seconds = train(listnet, RUNS / f"{name}-listnet")
        assert other.test is not None
        yield "ListNet, the same network", other.test, seconds
        yield fit_ridge(problem, run)
        yield from one_vs_rest(problem, run)
    else:
        yield fit_ease(problem, run)


def fit_ease(problem: Problem[Any, Any], parts: Parts) -> Row:
    """Return EASE as its paper has it, lambda by validation."""
    began = time.process_time()
    train, validation = parts.part("train"), parts.part("validation")

    def fitted(part: InteractionPart, regularisation: float) -> EASE:
        return EASE(part.known.width, regularisation=regularisation).fit(part.known.to_torch())

    def judged(regularisation: float) -> float:
        return problem.evaluate(fitted(train, regularisation), validation).means[problem.metric]

    best = max(LAMBDAS, key=judged)
    model = fitted(train.join(validation), best)
    return f"EASE, lambda {best:g}", problem.evaluate(model, parts.part("test")), time.process_time() - began


def fit_ridge(problem: Problem[Any, Any], parts: Parts) -> Row:
    """Return ridge regression on rows of length 1, lambda by validation."""
    began = time.process_time()
    train, validation = parts.part("train"), parts.part("validation")

    def fitted(part: SparsePart, regularisation: float) -> Ridge:
        model = Ridge(part.features.width, part.labels.width, regularisation=regularisation)
        return model.fit(part.features.to_torch(), part.labels.to_torch())

    def judged(regularisation: float) -> float:
        return problem.evaluate(fitted(train, regularisation), validation).means[problem.metric]

    best = max(RIDGES, key=judged)
    model = fitted(train.join(validation), best)
    return f"ridge, lambda {best:g}", problem.evaluate(model, parts.part("test")), time.process_time() - began


class Scores(nn.Module):
    """Scores of a fitted scikit-learn classifier."""

    def __init__(self, score: Callable[[csr_matrix], Any]) -> None:
        super().__init__()
        self.score = score

    def forward(self, features: Tensor) -> Tensor:
        return torch.from_numpy(np.asarray(self.score(csr_matrix(unit(features).numpy()))))


def unit(features: Tensor) -> Tensor:
    """Return rows of length 1."""
    return torch.nn.functional.normalize(features, dim=1)


def one_vs_rest(problem: Problem[Any, Any], parts: Parts, names: Sequence[str] = tuple(LINEAR)) -> Iterator[Row]:
    """Yield a linear classifier for each label, C by validation."""
    train, validation = parts.part("train"), parts.part("validation")

    def fitted(make: Callable[[float], Any], part: SparsePart, penalty: float) -> Scores:
        labels: SparseRows = part.labels
        model = OneVsRestClassifier(make(penalty))
        model.fit(csr_matrix(unit(part.features.dense()).numpy()), csr_matrix(labels.dense().numpy()))
        return Scores(model.decision_function)

    for name in names:
        make = LINEAR[name]
        began = time.process_time()
        values = {
            penalty: problem.evaluate(fitted(make, train, penalty), validation).means[problem.metric]
            for penalty in PENALTIES
        }
        best = max(values, key=values.__getitem__)
        model = fitted(make, train.join(validation), best)
        yield f"{name}, C {best:g}", problem.evaluate(model, parts.part("test")), time.process_time() - began


def table(name: str) -> list[str]:
    """Return the lines of the table of a set."""
    rows = list(compare_rows(name))
    metrics = list(rows[0][1].means)[:4]
    lines = [
        f"{ABOUT[name]} {len(rows[0][1].query_ids):,} lists.",
        "",
        "| | " + " | ".join(metrics) + f" | difference of {metrics[0]} | CPU s |",
        "|---|" + "--:|" * (len(metrics) + 2),
    ]
    for number, (title, found, seconds) in enumerate(rows):
        pair = compare(rows[0][1], found, metric=metrics[0]) if number else None
        gap = "" if pair is None else f"{pair.difference:+.4f} ({pair.interval[0]:+.4f}, {pair.interval[1]:+.4f})"
        values = " | ".join(f"{found.means[metric]:.4f}" for metric in metrics)
        lines.append(f"| {title} | {values} | {gap} | {'' if seconds != seconds else f'{seconds:.0f}'} |")
    return lines


def main(sets: Sequence[str]) -> None:
    (FOLDER / "blends").mkdir(exist_ok=True)
    for name in sets or list(ABOUT):
        (FOLDER / "blends" / f"{name}.json").write_text(json.dumps(table(name), indent=1) + "\n")
    kept = [FOLDER / "blends" / f"{name}.json" for name in ABOUT]
    blocks = ["\n".join(json.loads(path.read_text())) for path in kept if path.is_file()]
    text = "\n\n".join([EVERYTHING, *blocks]) + "\n"
    (FOLDER / "blends.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main(sys.argv[1:])
