"""Retrieval metrics, all items against all others, exact."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from benchmarks.speed.contest import Contender, Group, Mark, Row, Values
from rankwise.metrics import evaluate_retrieval

__all__ = ["RETRIEVAL_METRICS", "evaluate_items", "items_of", "product_of_items"]

_CUTOFFS = (1, 10, 100, 1000)
_BLOCK = 500
_SORT = "the sort comes on top of the product, but that explains about 1.5 x on one thread; the rest is open"


@dataclass(frozen=True)
class _Items:
    embeddings: Tensor
    labels: Tensor


def items_of(size: int, per_class: int, dimensions: int = 512) -> _Items:
    random = torch.Generator().manual_seed(0)
    classes = size // per_class
    labels = torch.arange(size) % classes
    centres = torch.randn(classes, dimensions, generator=random)
    embeddings = 0.4 * centres[labels] + torch.randn(size, dimensions, generator=random)
    return _Items(normalize(embeddings), labels)


def evaluate_items(items: _Items) -> Callable[[], Values]:
    names = ["map", *(f"recall@{k}" for k in _CUTOFFS)]
    return lambda: evaluate_retrieval(items.embeddings, items.labels, names, bootstrap=0).means


def _plain(items: _Items) -> Callable[[], Values]:
    """The rank of each relevant item is one more than the number of items above it."""
    size = len(items.labels)
    by_class = torch.argsort(items.labels, stable=True)
    members = by_class.view(len(items.labels.unique()), -1)

    def call() -> Values:
        unit = normalize(items.embeddings)
        precision, best = torch.empty(size, dtype=torch.float64), torch.empty(size, dtype=torch.int64)
        for begin in range(0, size, _BLOCK):
            rows = slice(begin, begin + _BLOCK)
            similarity = unit[rows] @ unit.T
            similarity.diagonal(begin).fill_(-torch.inf)
            own = similarity.gather(1, members[items.labels[rows]])
            ranks = torch.stack([(similarity > column[:, None]).sum(1) for column in own.unbind(1)], 1) + 1
            # The item itself is last, at minus infinity.
            ranks = ranks.sort(1).values[:, :-1]
            precision[rows] = (torch.arange(1, ranks.shape[1] + 1) / ranks.double()).mean(1)
            best[rows] = ranks[:, 0]
        recalls = {f"recall@{k}": (best <= k).double().mean() for k in _CUTOFFS}
        return {"map": precision.mean(), **recalls}

    return call


def _metric_learning(items: _Items) -> Callable[[], Values]:
    from pytorch_metric_learning.distances import CosineSimilarity
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
    from pytorch_metric_learning.utils.inference import CustomKNN

    calculator = AccuracyCalculator(
        include=("mean_average_precision", "precision_at_1"),
        device=torch.device("cpu"),
        knn_func=CustomKNN(CosineSimilarity(), batch_size=_BLOCK),
    )

    def call() -> Values:
        found = calculator.get_accuracy(items.embeddings, items.labels)
        return {"map": found["mean_average_precision"], "recall@1": found["precision_at_1"]}

    return call


def _torchmetrics(items: _Items) -> Callable[[], Values]:
    from torchmetrics.functional.retrieval import retrieval_average_precision, retrieval_hit_rate

    size = len(items.labels)

    def call() -> Values:
        unit = normalize(items.embeddings)
        found: dict[str, list[Tensor]] = {"map": [], **{f"recall@{k}": [] for k in _CUTOFFS}}
        for begin in range(0, size, _BLOCK):
            # Its average precision takes items of score 0 or less as irrelevant, so cosines are moved to [1, 3].
            similarity = unit[begin : begin + _BLOCK] @ unit.T + 2
            similarity.diagonal(begin).fill_(0)
            relevant = items.labels[begin : begin + _BLOCK, None] == items.labels
            relevant.diagonal(begin).fill_(False)
            for scores, target in zip(similarity, relevant, strict=True):
                found["map"].append(retrieval_average_precision(scores, target))
                for k in _CUTOFFS:
                    found[f"recall@{k}"].append(retrieval_hit_rate(scores, target, top_k=k))
        return {name: torch.stack(values).mean() for name, values in found.items()}

    return call


def product_of_items(items: _Items) -> Callable[[], object]:
    def call() -> None:
        for begin in range(0, len(items.labels), _BLOCK):
            items.embeddings[begin : begin + _BLOCK] @ items.embeddings.T

    return call


def _whole_products(size: int) -> Row:
    """The test set of Stanford Online Products: as many items, as many classes, 512-d; random vectors."""
    return Row(
        name=f"{size:,}, about 5 per class (Stanford Online Products)",
        make=lambda: items_of(size, 5),
        small=lambda: items_of(50, 5),
        contenders=(
            Contender("rankwise evaluate_retrieval", evaluate_items, role="ours", slow=True),
            Contender("similarity matmul, in blocks", product_of_items, role="limit", slow=True),
        ),
        mark=Mark(process_mib=2048),
        seconds=10.0,
    )


def _row(size: int, per_class: int, mark: Mark) -> Row:
    return Row(
        name=f"{size:,}, {per_class} per class",
        make=lambda: items_of(size, per_class),
        small=lambda: items_of(10 * per_class, per_class),
        contenders=(
            Contender("rankwise evaluate_retrieval", evaluate_items, role="ours", checked=True),
            Contender("rank counting, plain torch", _plain, checked=True, slow=per_class > 4),
            Contender(
                "PML AccuracyCalculator, its own exact search; mAP and recall@1 only",
                _metric_learning,
                checked=True,
                needs="pytorch_metric_learning",
                slow=True,
            ),
            Contender(
                "torchmetrics functional, query by query", _torchmetrics, checked=True, needs="torchmetrics", slow=True
            ),
            Contender("similarity matmul, in blocks", product_of_items, role="limit"),
        ),
        mark=mark,
        # Products of other block sizes round differently and swap neighbours.
        tolerance=1e-4,
        seconds=10.0,
    )


RETRIEVAL_METRICS = Group(
    key="retrieval-metrics",
    title="Retrieval metrics: mAP and recall@{1, 10, 100, 1000}, all against all",
    problem="N, 512-d",
    about=(
        "recall@k is 1 if any relevant item is among the first k. Ours without intervals. PML's usual search needs "
        "faiss, which is not among the peers; its own exact search in torch is taken instead."
    ),
    rows=(
        _row(10_000, 4, Mark(times_limit=2, peak_mib=500, why_missed=_SORT)),
        _row(10_000, 100, Mark(times_limit=2, peak_mib=500, why_missed=_SORT)),
        _whole_products(60_502),
    ),
)
