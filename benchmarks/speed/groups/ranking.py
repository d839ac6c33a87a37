"""Queries with relevant and irrelevant items: the step of an NDCG loss on the scores alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from benchmarks.speed.contest import Contender, Group, Mark, Row
from rankwise.losses import ListLoss, ListStatistics, NDCGLoss, TopKNDCGLoss
from rankwise.metrics._ndcg import ideal_dcg

__all__ = ["RANKING", "sampled_batch"]

_RELEVANT = 10
_SHORT, _LONG = 1_000, 1_000_000


@dataclass(frozen=True)
class _Batch:
    """Queries with their 10 relevant items first, drawn from lists of `size` items."""

    scores: Tensor
    grades: Tensor
    items: Tensor
    size: int = 10_000

    def statistics(self, size: int | None = None) -> ListStatistics:
        query_ids = torch.arange(len(self.grades)).repeat_interleave(self.grades.shape[1])
        return ListStatistics(self.grades.flatten(), query_ids, size=size or self.size)

    def step(self, loss: ListLoss) -> Callable[[], object]:
        queries = torch.arange(len(self.scores))
        return lambda: torch.autograd.grad(
            loss(self.scores, self.grades, query_ids=queries, sample_ids=self.items), self.scores
        )


def sampled_batch(queries: int, items: int, relevant: int = _RELEVANT) -> _Batch:
    random = torch.Generator().manual_seed(0)
    grades = torch.zeros(queries, items, dtype=torch.int64)
    grades[:, :relevant] = torch.randint(1, 5, (queries, relevant), generator=random)
    scores = torch.randn(queries, items, generator=random) + 0.3 * grades
    return _Batch(scores.requires_grad_(), grades, torch.arange(queries * items).view(queries, items))


def _ours(**options: Any) -> Callable[[_Batch], Callable[[], object]]:
    build = TopKNDCGLoss if "k" in options else NDCGLoss
    return lambda batch: batch.step(build(statistics=batch.statistics(), **options))


def _libauc(**options: Any) -> Callable[[_Batch], Callable[[], object]]:
    def prepare(batch: _Batch) -> Callable[[], object]:
        from libauc.losses import NDCGLoss as Peer

        queries = len(batch.scores)
        loss = Peer(
            N=batch.items.numel(),
            num_user=queries,
            num_item=batch.size,
            num_pos=_RELEVANT,
            gamma0=0.1,
            device=torch.device("cpu"),
            **options,
        )
        given = {
            "rating": batch.grades,
            "user_id": torch.arange(queries),
            "num_pos_items": torch.full((queries,), _RELEVANT),
            "ideal_dcg": ideal_dcg(torch.exp2(batch.grades.double()) - 1),
            "user_item_id": batch.items,
        }
        return lambda: torch.autograd.grad(loss(batch.scores, given), batch.scores)

    return prepare


def _list_net(batch: _Batch) -> Callable[[], object]:
    wanted = torch.softmax(batch.grades.float(), 1)
    return lambda: torch.autograd.grad(-(wanted * torch.log_softmax(batch.scores, 1)).sum(1).mean(), batch.scores)


def _all_pairs(batch: _Batch) -> Callable[[], object]:
    """The squared hinge over relevant x all items in plain torch, without memory, strata or checks."""
    gains = torch.exp2(batch.grades[:, :_RELEVANT].float()) - 1

    def call() -> object:
        anchors = batch.scores[:, :_RELEVANT, None]
        ranks = (1 + batch.scores[:, None, :] - anchors).relu().square().sum(2)
        return torch.autograd.grad(-(gains / torch.log2(1 + ranks)).sum(1).mean(), batch.scores)

    return call


def _approx_ndcg(batch: _Batch) -> Callable[[], object]:
    """1 - the mean of sum_i gain_i / log2(1 + rank_i) / ideal, rank_i = 1 + sum_{j != i} sigmoid(s_j - s_i)."""
    gains = torch.exp2(batch.grades.double()) - 1
    ideal = ideal_dcg(gains).float()
    gains = gains.float()

    def call() -> object:
        gradients = []
        for rows in torch.arange(len(gains)).split(16):
            scores = batch.scores.detach()[rows].requires_grad_()
            # The item's own sigmoid(0) = 1/2 is in the sum.
            ranks = 0.5 + torch.sigmoid(scores[:, None, :] - scores[:, :, None]).sum(2)
            value = -((gains[rows] / torch.log2(1 + ranks)).sum(1) / ideal[rows]).sum() / len(gains)
            gradients.append(torch.autograd.grad(value, scores)[0])
        return torch.cat(gradients)

    return call


def _row(queries: int, items: int, method: str, ms: float, **options: Any) -> Row:
    peer = {"SONG": {}, "K-SONG": {"topk": 10, "topk_version": "prac"}}
    peer["K-SONG, full gradient"] = {"topk": 10, "topk_version": "theo"}
    return Row(
        name=f"{queries} x {items}, {method}",
        make=lambda: sampled_batch(queries, items),
        small=lambda: sampled_batch(8, 20),
        contenders=(
            Contender(f"rankwise {method}, sampled lists", _ours(**options), role="ours"),
            Contender(f"LibAUC {method}", _libauc(**peer[method]), needs="libauc"),
            Contender(_ANCHOR, _list_net),
            Contender("squared hinge and discount only, plain torch", _all_pairs),
        ),
        mark=Mark(ms=ms, at_most=((f"LibAUC {method}", 0.8),) if queries > 64 else (), why_missed=_FIXED_COST),
    )


def _filled(rows: int) -> Callable[[_Batch], Callable[[], object]]:
    """A loss that already remembers so many pairs beside those of the batch."""

    def prepare(batch: _Batch) -> Callable[[], object]:
        loss = NDCGLoss(batch.statistics())
        assert loss.averages is not None
        others = torch.arange(rows)
        loss.averages.table.update(torch.stack([others + len(batch.scores), others], 1), torch.ones(rows, 1), 1.0)
        return batch.step(loss)

    return prepare


_FIXED_COST = "the 250 (SONG) to 380 (K-SONG, full gradient) small torch calls of a step (checks, shares, memory)"
_ANCHOR = "ListNet, plain torch"
_APPROX = "ApproxNDCG, all pairs, plain torch, 16 lists at a time"
_SORT = Contender(
    "torch.sort of the rows", lambda batch: lambda: torch.sort(batch.scores.detach(), dim=1), role="limit"
)
_METHODS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("SONG", {}),
    ("K-SONG", {"k": 10}),
    ("K-SONG, full gradient", {"k": 10, "selector_gradient": "full"}),
)

RANKING = Group(
    key="ranking",
    title="Learning to rank: queries x items, 10 of them relevant",
    problem="queries x items",
    about=(
        "Forward and backward on the scores. Of lists of 10,000 items the batch holds a sample; ours and LibAUC's "
        "remember a moving average per relevant item. ListNet is another, lighter objective."
    ),
    rows=(
        *(_row(64, 100, method, 2.5, **options) for method, options in _METHODS),
        *(_row(256, 310, method, 8.0, **options) for method, options in _METHODS),
        Row(
            name=f"256 x 310 of lists of {_LONG:,}",
            make=lambda: sampled_batch(256, 310),
            small=lambda: sampled_batch(8, 20),
            contenders=(
                Contender("rankwise SONG", lambda batch: batch.step(NDCGLoss(batch.statistics(_LONG))), role="ours"),
                Contender(
                    f"the same of lists of {_SHORT:,}",
                    lambda batch: batch.step(NDCGLoss(batch.statistics(_SHORT))),
                    role="limit",
                ),
            ),
            mark=Mark(times_limit=1.1),
        ),
        Row(
            name=f"256 x 310, {_LONG:,} pairs remembered",
            make=lambda: sampled_batch(256, 310),
            small=lambda: sampled_batch(8, 20),
            contenders=(
                Contender("rankwise SONG", _filled(_LONG), role="ours"),
                Contender(f"the same, {_SHORT:,} pairs remembered", _filled(_SHORT), role="limit"),
            ),
            mark=Mark(times_limit=1.1),
        ),
        Row(
            name="256 x 1,000, whole lists, 100 relevant",
            make=lambda: sampled_batch(256, 1000, 100),
            small=lambda: sampled_batch(8, 40, 10),
            contenders=(
                Contender("rankwise SONG, whole lists", lambda batch: batch.step(NDCGLoss()), role="ours"),
                Contender(_APPROX, _approx_ndcg, slow=True),
                Contender(_ANCHOR, _list_net),
                _SORT,
            ),
            mark=Mark(times_faster=((_APPROX, 20),)),
        ),
        Row(
            name="128 x 3,706, whole lists, 130 relevant",
            make=lambda: sampled_batch(128, 3706, 130),
            small=lambda: sampled_batch(8, 40, 10),
            contenders=(
                Contender("rankwise SONG, whole lists", lambda batch: batch.step(NDCGLoss()), role="ours"),
                Contender(_ANCHOR, _list_net),
                _SORT,
            ),
            mark=Mark(ms=40),
        ),
    ),
)
