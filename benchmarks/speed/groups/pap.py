"""pAp@k of a million items in one list: the metric and the loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.speed.contest import Contender, Group, Mark, Row, Values
from rankwise.losses import PApLoss
from rankwise.metrics import pap

__all__ = ["PAP"]


@dataclass(frozen=True)
class _Items:
    scores: Tensor
    labels: Tensor
    k: int


def _make(size: int, k: int) -> _Items:
    random = torch.Generator().manual_seed(0)
    labels = (torch.rand(size, generator=random) < 0.01).long()
    labels[0] = 1
    return _Items(torch.randn(size, generator=random) + labels, labels, k)


def _metric(problem: _Items) -> Callable[[], Values]:
    return lambda: {"pap": pap(problem.scores, problem.labels, k=problem.k)}


def _plain_metric(problem: _Items) -> Callable[[], Values]:
    def call() -> Values:
        positives, negatives = problem.scores[problem.labels == 1], problem.scores[problem.labels == 0]
        top = positives.topk(min(problem.k, len(positives))).values
        above = torch.searchsorted(negatives.topk(problem.k).values.flip(0), top)
        return {"pap": above.double().mean() / problem.k}

    return call


def _loss(problem: _Items) -> Callable[[], Values]:
    loss = PApLoss(problem.k)

    def call() -> Values:
        scores = problem.scores.requires_grad_()
        value = loss(scores, problem.labels)
        (gradient,) = torch.autograd.grad(value, scores)
        return {"value": value.detach(), "slope": gradient.abs().sum()}

    return call


def _plain_loss(problem: _Items) -> Callable[[], Values]:
    def call() -> Values:
        scores = problem.scores.requires_grad_()
        positives, negatives = scores[problem.labels == 1], scores[problem.labels == 0]
        top = positives.topk(min(problem.k, len(positives))).values
        value = (1 + negatives.topk(problem.k).values - top[:, None]).clamp_min(0).mean()
        (gradient,) = torch.autograd.grad(value, scores)
        return {"value": value.detach(), "slope": gradient.abs().sum()}

    return call


def _sort(problem: _Items) -> Callable[[], object]:
    scores = problem.scores.detach()
    return lambda: torch.sort(scores)


def _row(
    what: str, k: int, ours: Callable[[_Items], Callable[[], Values]], plain: Callable[[_Items], Callable[[], Values]]
) -> Row:
    return Row(
        name=f"{what}, k = {k:,}",
        make=lambda: _make(1_000_000, k),
        small=lambda: _make(5000, min(k, 50)),
        contenders=(
            Contender(f"rankwise {'pap' if what == 'metric' else 'PApLoss'}", ours, role="ours", checked=True),
            Contender("topk, plain torch", plain, checked=True),
            Contender("torch.sort", _sort, role="limit"),
        ),
        mark=Mark(times_limit=3 if what == "metric" else 5),
        tolerance=1e-4,
    )


PAP = Group(
    key="pap",
    title="pAp@k of one list of a million items",
    problem="what",
    about=(
        "float32 scores, 1 % positive; the loss with its gradient. The plain version goes over all pairs of top items. "
        "The limit is one sort of all scores."
    ),
    rows=(
        _row("metric", 100, _metric, _plain_metric),
        _row("metric", 10_000, _metric, _plain_metric),
        _row("loss", 100, _loss, _plain_loss),
        _row("loss", 5_000, _loss, _plain_loss),
    ),
)
