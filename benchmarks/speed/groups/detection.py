"""All anchors of an image of 512 x 512 pixels, 80 classes: the step of a ranking loss on the scores alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.speed.contest import Contender, Group, Row, Values
from rankwise.losses import AUPRCLoss, ListLoss, StableAPLoss
from rankwise.losses.baselines import APLoss
from rankwise.pairs import pair_sums
from rankwise.surrogates import OneSidedHuber

__all__ = ["DETECTION"]

CLASSES, TAU = 80, 1.0


@dataclass(frozen=True)
class _Anchors:
    scores: Tensor  # (A, C)
    labels: Tensor


def _make(anchors: int, positives: int, classes: int = CLASSES) -> _Anchors:
    """Every class has the same number of positive anchors, at places of their own."""
    random = torch.Generator().manual_seed(0)
    labels = torch.zeros(anchors, classes, dtype=torch.bool)
    for column in range(classes):
        labels[torch.randperm(anchors, generator=random)[:positives], column] = True
    scores = torch.randn(anchors, classes, generator=random) * 0.5 + labels * 0.5
    return _Anchors(scores.requires_grad_(), labels)


def _ours(build: Callable[[], ListLoss]) -> Callable[[_Anchors], Callable[[], object]]:
    def prepare(problem: _Anchors) -> Callable[[], object]:
        loss = build()
        return lambda: torch.autograd.grad(loss(problem.scores, problem.labels), problem.scores)

    return prepare


def _mean_over_pairs(sums: Callable[[Tensor, Tensor], Tensor]) -> Callable[[_Anchors], Callable[[], Values]]:
    """The mean over classes of the mean Huber surrogate of all pairs, from its sum over the negatives."""

    def prepare(problem: _Anchors) -> Callable[[], Values]:
        count = int(problem.labels[:, 0].sum())

        def call() -> Values:
            by_class = problem.scores.T
            positives = by_class[problem.labels.T].view(-1, count)
            negatives = by_class[~problem.labels.T].view(len(by_class), -1)
            mean = (sums(positives, negatives) / negatives.shape[1]).mean()
            return {"mean": mean.detach(), "gradient": torch.autograd.grad(mean, problem.scores)[0]}

        return call

    return prepare


def _all_pairs(positives: Tensor, negatives: Tensor) -> Tensor:
    y = (1 - (positives[:, :, None] - negatives[:, None]) / TAU).relu()
    cut = y.clamp_max(1.0)
    return (cut * (2 * y - cut)).sum(2)


def _row(anchors: int, positives: int, all_pairs: str = "") -> Row:
    return Row(
        name=f"{anchors:,} anchors, {positives} positive",
        make=lambda: _make(anchors, positives),
        small=lambda: _make(200, 4, classes=4),
        contenders=(
            Contender("rankwise StableAPLoss", _ours(lambda: StableAPLoss(lists="columns")), role="ours"),
            Contender("rankwise AUPRCLoss (SOPRC)", _ours(lambda: AUPRCLoss(lists="columns")), role="ours"),
            Contender("rankwise APLoss (rival)", _ours(lambda: APLoss(lists="columns"))),
            Contender(
                "Huber of all pairs, rankwise pair_sums",
                _mean_over_pairs(lambda a, b: pair_sums(a, b, OneSidedHuber(TAU), method="sorted")),
                checked=True,
            ),
            Contender(
                "Huber of all pairs, plain torch", _mean_over_pairs(_all_pairs), checked=True, skip=all_pairs, slow=True
            ),
        ),
        tolerance=1e-4,
    )


def _matrix(anchors: int, positives: int) -> str:
    """The size of one float32 matrix of all pairs; autograd keeps several of them."""
    gib = CLASSES * positives * (anchors - positives) * 4 / 2**30
    return f"{gib:.1f} GiB (computed) for one matrix of pairs, of which several are kept"


DETECTION = Group(
    key="detection",
    title="A detector: anchors of one image of 512 x 512 pixels, 80 classes",
    problem="anchors of an image",
    about=(
        "Forward and backward on the scores, one list per class. One anchor in a cell makes 5,456, nine make 49,104. "
        "Ours are whole steps; the Huber surrogate of all pairs, in two ways, is what they are made of."
    ),
    rows=(
        _row(5_456, 100),
        _row(49_104, 100, all_pairs=_matrix(49_104, 100)),
        _row(49_104, 1_000, all_pairs=_matrix(49_104, 1_000)),
    ),
)
