"""The budget, the same for every method, and one cell of the table."""

from __future__ import annotations

from dataclasses import dataclass, replace

from benchmarks.quality.linear import LinearRun, fit_linear
from benchmarks.quality.ml100k.methods import Method
from rankwise.data import Split
from rankwise.losses import BinaryCrossEntropyLoss
from rankwise.metrics import evaluate

__all__ = ["CUTOFFS", "LONG_RATES", "PENALTIES", "RATES", "SEEDS", "STEPS", "Cell", "train_cell", "train_start"]

CUTOFFS = (8, 12, 16, 20, 24)
SEEDS = (0, 1, 2, 3, 4)
STEPS = 40
RATES = (0.03, 0.1)
# The slope of cross entropy is the distance of a probability from its label, that of a hinge is 1.
LONG_RATES = (0.3, 1.0)
PENALTIES = (0.003, 0.03)


@dataclass(frozen=True)
class Cell:
    """What one method reached with one seed and one k.

    Attributes:
        test: micro-pAp@k on the test part, validation: on the validation part.
        users: users of the test part that count, left_out: users that do not (fewer than k negatives, no positive).
        rate, penalty, step: chosen on validation.
    """

    test: float
    validation: float
    users: int
    left_out: int
    rate: float
    penalty: float
    step: int


def train_start(split: Split, k: int) -> LinearRun:
    """The cross-entropy solution every method starts from."""
    return fit_linear(
        split.train,
        split.validation,
        BinaryCrossEntropyLoss(),
        metric=f"pap@{k}",
        steps=STEPS,
        rates=LONG_RATES,
        penalties=PENALTIES,
        start="zeros",
    )


def train_cell(split: Split, start: LinearRun, k: int, method: Method) -> Cell:
    """Train from the start, choose on validation, and look at the test part once."""
    metric = f"pap@{k}"
    train = replace(split.train, query_ids=None) if method.pooled else split.train
    run = fit_linear(
        train,
        split.validation,
        method.loss(k, split.train),
        metric=metric,
        steps=STEPS,
        rates=LONG_RATES if method.gentle else RATES,
        penalties=PENALTIES,
        start=start,
    )
    test = split.test
    scores = run.model(test.features).detach()
    found = evaluate(scores, test.labels, [metric], query_ids=test.query_ids, bootstrap=0)
    left_out = found.skipped[metric]
    users = len(found.query_ids) - left_out
    return Cell(found.means[metric], run.value, users, left_out, run.rate, run.penalty, run.step)
