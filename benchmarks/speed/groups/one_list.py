"""One list of scores, a few positives among many negatives: the step of an AP loss on the scores alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from benchmarks.speed.contest import Contender, Group, Mark, Row, Values
from rankwise.losses import AUPRCLoss, ListLoss, StableAPLoss
from rankwise.pairs import pair_sums
from rankwise.surrogates import SquaredHinge

__all__ = ["ONE_LIST", "list_of", "on_list"]


@dataclass(frozen=True)
class _List:
    scores: Tensor
    labels: Tensor


def list_of(positives: int, negatives: int) -> _List:
    random = torch.Generator().manual_seed(0)
    labels = torch.zeros(positives + negatives, dtype=torch.int64)
    labels[torch.randperm(len(labels), generator=random)[:positives]] = 1
    scores = torch.tanh(0.4 * torch.randn(len(labels), generator=random) + 0.3 * labels)
    return _List(scores.requires_grad_(), labels)


def on_list(build: Callable[[], ListLoss]) -> Callable[[_List], Callable[[], object]]:
    def prepare(problem: _List) -> Callable[[], object]:
        loss = build()
        return lambda: torch.autograd.grad(loss(problem.scores, problem.labels), problem.scores)

    return prepare


def _libauc(problem: _List) -> Callable[[], object]:
    from libauc.losses import APLoss

    index = torch.arange(len(problem.labels))
    loss = APLoss(data_len=len(index), device=torch.device("cpu"))
    return lambda: torch.autograd.grad(loss(problem.scores, problem.labels, index), problem.scores)


def _mean_over_pairs(sums: Callable[[Tensor, Tensor], Tensor]) -> Callable[[_List], Callable[[], Values]]:
    """The mean of a squared hinge of margin 1 over all pairs, from its sum over the negatives for each positive."""

    def prepare(problem: _List) -> Callable[[], Values]:
        chosen = problem.labels == 1

        def call() -> Values:
            positives, negatives = problem.scores[chosen], problem.scores[~chosen]
            mean = (sums(positives, negatives) / len(negatives)).mean()
            return {"mean": mean.detach(), "gradient": torch.autograd.grad(mean, problem.scores)[0]}

        return call

    return prepare


def _all_pairs(positives: Tensor, negatives: Tensor) -> Tensor:
    return (1 - (positives[:, None] - negatives)).relu().square().sum(1)


def _sorted_plainly(positives: Tensor, negatives: Tensor) -> Tensor:
    """sum_j max(0, c_j)^2, c_j = 1 - a + b_j: over the best b_j while c_j > 0, from prefix sums of b and b^2."""
    best = negatives.double().sort(descending=True).values
    powers = torch.stack([best, best.square()]).cumsum(1)
    first, second = torch.nn.functional.pad(powers, (1, 0))
    gap = 1 - positives.double()
    count = torch.searchsorted(-best.detach(), gap.detach())
    sums: Tensor = count * gap.square() + 2 * gap * first[count] + second[count]
    return sums.float()


def _contenders(all_pairs: str = "") -> tuple[Contender, ...]:
    return (
        Contender("rankwise AUPRCLoss (SOPRC)", on_list(AUPRCLoss), role="ours"),
        Contender("rankwise StableAPLoss", on_list(StableAPLoss), role="ours"),
        Contender("squared hinge, all pairs, plain torch", _mean_over_pairs(_all_pairs), checked=True, skip=all_pairs),
        Contender("the same sum, sorted, plain torch", _mean_over_pairs(_sorted_plainly), checked=True),
        Contender(
            "the same sum, rankwise pair_sums",
            _mean_over_pairs(lambda a, b: pair_sums(a, b, SquaredHinge(1.0), method="sorted")),
            checked=True,
        ),
        Contender("LibAUC APLoss", _libauc, needs="libauc", skip=all_pairs),
        Contender("torch.sort", lambda problem: lambda: torch.sort(problem.scores.detach()), role="limit"),
        Contender("numpy sort (values only)", lambda problem: lambda: np.sort(problem.scores.detach().numpy())),
    )


def _row(positives: int, negatives: int, mark: Mark, all_pairs: str = "") -> Row:
    return Row(
        name=f"{positives:,} + {negatives:,}",
        make=lambda: list_of(positives, negatives),
        small=lambda: list_of(16, 240),
        contenders=_contenders(all_pairs),
        mark=mark,
        tolerance=1e-4,
    )


_ANCHOR = "squared hinge, all pairs, plain torch"
_FIXED_COST = "the two hundred small torch calls of a step (checks, quantiles, spread)"

ONE_LIST = Group(
    key="one-list",
    title="One list: positives + negatives",
    problem="n+ + n-",
    about=(
        "Forward and backward on the scores. Ours are the whole steps of SOPRC and stable AP; the squared hinge, its "
        "mean over all pairs computed in three ways, is a lighter objective."
    ),
    rows=(
        _row(64, 960, Mark(ms=1.5, anchor=(_ANCHOR, 0.6), why_missed=_FIXED_COST)),
        _row(512, 7680, Mark(ms=4, anchor=(_ANCHOR, 20))),
        _row(2000, 30000, Mark(ms=20, anchor=(_ANCHOR, 1226), times_faster=(("LibAUC APLoss", 100),), peak_mib=50)),
        _row(10_000, 990_000, Mark(times_limit=5), all_pairs="37 GiB for one matrix of pairs"),
        _row(100_000, 9_900_000, Mark(times_limit=5), all_pairs="3.6 TiB for one matrix of pairs"),
    ),
)
