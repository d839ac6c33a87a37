"""Lists of scores as a text reranker or a retriever has them: list losses beside those of sentence-transformers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from benchmarks.speed.contest import Contender, Group, Row
from rankwise.losses import create_loss

__all__ = ["TEXT_LISTS"]

_RELEVANT = 8
# All pairs of a list of more items than this do not fit into memory, or take minutes.
_ALL_PAIRS = 10_000


class _Lists(NamedTuple):
    """Scores (Q, L) and grades 0 to 4 of lists."""

    scores: Tensor
    grades: Tensor


class _Scored(nn.Module):
    """A cross-encoder whose scores are known: what is timed is the loss alone."""

    num_labels = 1

    def __init__(self, scores: Tensor) -> None:
        super().__init__()
        self.scores = scores
        self.device = scores.device

    def preprocess(self, pairs: Any, **_: Any) -> dict[str, Any]:
        return {}

    def forward(self, _: Any) -> dict[str, Tensor]:
        return {"scores": self.scores.flatten()}


def _make(lists: int, items: int) -> _Lists:
    random = torch.Generator().manual_seed(0)
    grades = torch.zeros(lists, items)
    grades[:, :_RELEVANT] = torch.randint(1, 5, (lists, _RELEVANT), generator=random).float()
    return _Lists((torch.randn(lists, items, generator=random) + 0.3 * grades).requires_grad_(), grades)


def _ours(name: str, **options: Any) -> Callable[[_Lists], Callable[[], object]]:
    def prepare(lists: _Lists) -> Callable[[], object]:
        loss = create_loss(name, **options)
        return lambda: torch.autograd.grad(loss(lists.scores, lists.grades), lists.scores)

    return prepare


def _theirs(name: str) -> Callable[[_Lists], Callable[[], object]]:
    def prepare(lists: _Lists) -> Callable[[], object]:
        from sentence_transformers.cross_encoder import losses

        loss = getattr(losses, name)(_Scored(lists.scores), mini_batch_size=-1)
        count, items = lists.scores.shape
        inputs = [[""] * count, [[""] * items] * count]
        labels = list(lists.grades)
        return lambda: torch.autograd.grad(loss(inputs, labels), lists.scores)

    return prepare


def _row(lists: int, items: int) -> Row:
    pairs = "" if items <= _ALL_PAIRS else f"all pairs of {items:,} items"
    peer = "sentence_transformers"
    return Row(
        f"{lists} x {items:,}",
        lambda: _make(lists, items),
        lambda: _make(2, 20),
        (
            Contender("rankwise NDCG", _ours("ndcg", margin=2.0, discount_shift=30.0), role="ours"),
            Contender("rankwise softmax", _ours("listwise-cross-entropy"), role="ours"),
            Contender("sentence-transformers LambdaLoss", _theirs("LambdaLoss"), needs=peer, skip=pairs),
            Contender("sentence-transformers RankNetLoss", _theirs("RankNetLoss"), needs=peer, skip=pairs),
            Contender("sentence-transformers ListNetLoss", _theirs("ListNetLoss"), needs=peer),
            Contender("sentence-transformers PListMLELoss", _theirs("PListMLELoss"), needs=peer),
        ),
    )


TEXT_LISTS = Group(
    key="text-lists",
    title="Lists of a reranker or a retriever",
    problem="lists x documents",
    about="Loss and gradient of scores (lists, documents) with 8 relevant documents each, grades 1 to 4; the model is "
    "left out. Of sentence-transformers' losses the time includes their loop over pairs of texts, which are empty.",
    rows=(_row(8, 100), _row(8, 1_400), _row(1, 5_000), _row(8, 100_000)),
)
