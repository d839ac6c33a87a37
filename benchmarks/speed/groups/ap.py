"""Average precision of a million scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.speed.contest import Contender, Group, Mark, Row, Values
from rankwise.metrics import average_precision

__all__ = ["AP"]


@dataclass(frozen=True)
class _Scores:
    scores: Tensor
    labels: Tensor


def _make(size: int) -> _Scores:
    random = torch.Generator().manual_seed(0)
    labels = (torch.rand(size, generator=random) < 0.01).long()
    labels[0] = 1
    return _Scores(torch.sigmoid(torch.randn(size, generator=random) + labels), labels)


def _ours(problem: _Scores) -> Callable[[], Values]:
    return lambda: {"ap": average_precision(problem.scores, problem.labels)}


def _plain(problem: _Scores) -> Callable[[], Values]:
    def call() -> Values:
        relevant = problem.labels[torch.argsort(problem.scores, descending=True)]
        places = relevant.nonzero()[:, 0].double() + 1
        return {"ap": (torch.arange(1, len(places) + 1) / places).mean()}

    return call


def _torchmetrics(problem: _Scores) -> Callable[[], Values]:
    from torchmetrics.functional.classification import binary_average_precision

    return lambda: {"ap": binary_average_precision(problem.scores, problem.labels)}


def _sklearn(problem: _Scores) -> Callable[[], Values]:
    from sklearn.metrics import average_precision_score

    scores, labels = problem.scores.numpy(), problem.labels.numpy()
    return lambda: {"ap": float(average_precision_score(labels, scores))}


AP = Group(
    key="ap",
    title="Average precision of one long list",
    problem="scores",
    about=(
        "float32 scores, 1 % positive. The plain version takes ties in the order it finds them, the others as one "
        "threshold."
    ),
    rows=(
        Row(
            name="1,000,000",
            make=lambda: _make(1_000_000),
            small=lambda: _make(1000),
            contenders=(
                Contender("rankwise average_precision", _ours, role="ours", checked=True),
                Contender("scikit-learn", _sklearn, checked=True, needs="sklearn"),
                Contender("argsort, plain torch", _plain, checked=True),
                Contender("torchmetrics functional", _torchmetrics, checked=True, needs="torchmetrics"),
                Contender("torch.sort", lambda problem: lambda: torch.sort(problem.scores), role="limit"),
            ),
            mark=Mark(ms=135, anchor=("argsort, plain torch", 132), at_most=(("argsort, plain torch", 1),)),
            tolerance=1e-4,
        ),
    ),
)
