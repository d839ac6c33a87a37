"""NDCG at several cutoffs for many queries of equal length."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.speed.contest import Contender, Group, Mark, Row, Values
from rankwise.metrics import evaluate

__all__ = ["NDCG"]

_TOPK = "topk, plain torch, ties as found"
_PEERS = (("scikit-learn, ties averaged", 80.0), ("torchmetrics functional, query by query", 80.0))

_CUTOFFS = (1, 3, 5, 10)


@dataclass(frozen=True)
class _Queries:
    scores: Tensor
    grades: Tensor


def _make(queries: int, items: int, tied: bool) -> _Queries:
    random = torch.Generator().manual_seed(0)
    grades = torch.randint(0, 5, (queries, items), generator=random)
    grades[:, 0] = 4
    scores = torch.randn(queries, items, generator=random) + 0.3 * grades
    return _Queries(scores.mul(20).round().div(20) if tied else scores, grades)


def _ours(problem: _Queries) -> Callable[[], Values]:
    names = [f"ndcg@{k}" for k in _CUTOFFS]
    return lambda: evaluate(problem.scores, problem.grades, names, bootstrap=0).means


def _plain(problem: _Queries) -> Callable[[], Values]:
    most = max(_CUTOFFS)
    discounts = 1 / torch.log2(torch.arange(2.0, most + 2))

    def call() -> Values:
        gains = torch.exp2(problem.grades.float()) - 1
        found = (gains.gather(1, problem.scores.topk(most).indices) * discounts).cumsum(1)
        ideal = (gains.topk(most).values * discounts).cumsum(1)
        ndcg = (found / ideal).mean(0)
        return {f"ndcg@{k}": ndcg[k - 1] for k in _CUTOFFS}

    return call


def _sklearn(problem: _Queries) -> Callable[[], Values]:
    from sklearn.metrics import ndcg_score

    # Its gain is linear, so it is given the gains instead of the grades.
    gains, scores = (2.0**problem.grades - 1).numpy(), problem.scores.numpy()
    return lambda: {f"ndcg@{k}": float(ndcg_score(gains, scores, k=k)) for k in _CUTOFFS}


def _torchmetrics(problem: _Queries) -> Callable[[], Values]:
    from torchmetrics.functional.retrieval import retrieval_normalized_dcg

    gains = 2**problem.grades - 1

    def call() -> Values:
        means = {}
        for k in _CUTOFFS:
            pairs = zip(problem.scores, gains, strict=True)
            means[f"ndcg@{k}"] = torch.stack([retrieval_normalized_dcg(s, g, top_k=k) for s, g in pairs]).mean()
        return means

    return call


def _row(tied: bool) -> Row:
    skip = "takes ties in the order it finds them" if tied else ""
    return Row(
        name="2,000 x 120, " + ("many ties" if tied else "no ties"),
        make=lambda: _make(2000, 120, tied),
        small=lambda: _make(20, 20, tied),
        contenders=(
            Contender("rankwise evaluate, ties averaged", _ours, role="ours", checked=True),
            Contender(_PEERS[0][0], _sklearn, checked=True, needs="sklearn"),
            Contender(_TOPK, _plain, checked=True, skip=skip),
            Contender(_PEERS[1][0], _torchmetrics, checked=True, needs="torchmetrics", slow=True),
            Contender("torch.sort of the rows", lambda problem: lambda: torch.sort(problem.scores), role="limit"),
        ),
        mark=Mark(
            ms=8,
            anchor=(_TOPK, 4),
            times_faster=_PEERS,
            at_most=() if tied else ((_TOPK, 2),),
        ),
    )


NDCG = Group(
    key="ndcg",
    title="NDCG@{1, 3, 5, 10} of 2,000 queries of 120 items",
    problem="queries x items",
    about=(
        "Grades 0 to 4, gain 2^y - 1; one call for the four cutoffs where the library allows it. Scores are tied where "
        "they are rounded to steps of .05. Ours without intervals."
    ),
    rows=(_row(tied=False), _row(tied=True)),
)
