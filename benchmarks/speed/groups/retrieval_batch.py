"""A batch of embeddings, every item a query against the rest: the step of a retrieval loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from benchmarks.speed.contest import Contender, Group, Mark, Row
from rankwise.losses import AUPRCLoss, EmbeddingLoss, ListLoss, StableAPLoss

__all__ = ["RETRIEVAL_BATCH", "batch_of", "metric_learning_step", "on_batch", "product_step"]

_DIMENSIONS = 512
_PER_CLASS = 4


@dataclass(frozen=True)
class _Batch:
    embeddings: Tensor
    labels: Tensor


def batch_of(size: int) -> _Batch:
    random = torch.Generator().manual_seed(0)
    labels = torch.arange(size // _PER_CLASS).repeat_interleave(_PER_CLASS)
    centres = torch.randn(size // _PER_CLASS, _DIMENSIONS, generator=random)
    embeddings = 0.3 * centres[labels] + torch.randn(size, _DIMENSIONS, generator=random)
    return _Batch(embeddings.requires_grad_(), labels)


def _step(batch: _Batch, loss: Callable[[Tensor, Tensor], Tensor]) -> Callable[[], object]:
    return lambda: torch.autograd.grad(loss(batch.embeddings, batch.labels), batch.embeddings)


def on_batch(build: Callable[[], ListLoss]) -> Callable[[_Batch], Callable[[], object]]:
    return lambda batch: _step(batch, EmbeddingLoss(build()))


def _smooth_ap(embeddings: Tensor, labels: Tensor, temperature: float = 0.01) -> Tensor:
    """Smooth-AP (Brown et al., ECCV 2020): 1 - the mean over queries and their positives i of

        (1 + sum_{positives j != i} g(s_j - s_i)) / (1 + sum_{items j != i} g(s_j - s_i)),   g(x) = sigmoid(x / t),

    with only the rows of positives written out: (B, positives, B) numbers.
    """
    size = len(labels)
    itself = torch.eye(size, dtype=torch.bool)
    relevant = (labels[:, None] == labels).masked_fill_(itself, False)
    unit = normalize(embeddings)
    similarity = (unit @ unit.T).masked_fill(itself, -torch.inf)
    positives = similarity.gather(1, relevant.nonzero()[:, 1].view(size, -1))
    # The item's own g(0) = 1/2 is in each sum: 1/2 more makes it the 1 of the formula.
    rank = 0.5 + torch.sigmoid((similarity[:, None, :] - positives[:, :, None]) / temperature).sum(2)
    rank_among_positives = 0.5 + torch.sigmoid((positives[:, None, :] - positives[:, :, None]) / temperature).sum(2)
    return 1 - (rank_among_positives / rank).mean()


def metric_learning_step(name: str) -> Callable[[_Batch], Callable[[], object]]:
    def prepare(batch: _Batch) -> Callable[[], object]:
        from pytorch_metric_learning import losses

        return _step(batch, getattr(losses, name)())

    return prepare


def _libauc(batch: _Batch) -> Callable[[], object]:
    """Every query is a task of its own; the item itself stays in its list, as the loss has no mask."""
    from libauc.losses import mAPLoss

    size = len(batch.labels)
    index = torch.arange(size)
    relevant = (batch.labels[:, None] == batch.labels).masked_fill_(torch.eye(size, dtype=torch.bool), False).long()
    loss = mAPLoss(data_len=size, num_labels=size, device=torch.device("cpu"))

    def on_similarities(embeddings: Tensor, _: Tensor) -> Tensor:
        unit = normalize(embeddings)
        value: Tensor = loss(unit @ unit.T, relevant, index)
        return value

    return _step(batch, on_similarities)


def product_step(batch: _Batch) -> Callable[[], object]:
    upstream = torch.ones(len(batch.labels), len(batch.labels))
    return lambda: torch.autograd.grad(batch.embeddings @ batch.embeddings.T, batch.embeddings, upstream)


def _contenders(size: int) -> tuple[Contender, ...]:
    package = "pytorch_metric_learning"

    def peer(label: str, name: str, largest: int = 10**9, slow: bool = False) -> Contender:
        skip = "" if size <= largest else "too slow at this size"
        return Contender(f"PML {label}", metric_learning_step(name), needs=package, skip=skip, slow=slow)

    return (
        Contender("rankwise EmbeddingLoss(AUPRCLoss())", on_batch(AUPRCLoss), role="ours"),
        Contender("rankwise EmbeddingLoss(StableAPLoss())", on_batch(StableAPLoss), role="ours"),
        Contender(_ANCHOR, lambda batch: _step(batch, _smooth_ap)),
        peer("contrastive", "ContrastiveLoss"),
        peer("multi-similarity", "MultiSimilarityLoss"),
        peer("triplet (all)", "TripletMarginLoss", largest=448),
        peer("FastAP", "FastAPLoss", slow=size > 448),
        peer("SmoothAPLoss", "SmoothAPLoss", largest=224),
        Contender(
            "LibAUC mAPLoss",
            _libauc,
            needs="libauc",
            skip="" if size <= 448 else "too slow at this size",
            slow=size > 112,
        ),
        Contender("similarity matmul, forward + backward", product_step, role="limit"),
    )


def _row(size: int, mark: Mark) -> Row:
    return Row(
        name=str(size),
        make=lambda: batch_of(size),
        small=lambda: batch_of(32),
        contenders=_contenders(size),
        mark=mark,
    )


_ANCHOR = "Smooth-AP over positive rows, plain torch"
_PASSES = (
    "besides one and a half of the limit's three products there are passes over 4 million similarities: three for the "
    "pairs and as many for their gradient, one to add the transpose"
)
_FIXED_COST = "the two hundred small torch calls of a step (masks, quantiles, state)"

RETRIEVAL_BATCH = Group(
    key="retrieval-batch",
    title="Retrieval batch: 512-d embeddings, 4 per class",
    problem="B",
    about=(
        "Forward and backward on the embeddings, normalisation and similarities included. PML is "
        "pytorch-metric-learning. The objectives differ."
    ),
    rows=(
        _row(112, Mark(ms=2.5, anchor=(_ANCHOR, 1.7), why_missed=_FIXED_COST)),
        _row(224, Mark(ms=4.0, anchor=(_ANCHOR, 3.5), why_missed=_FIXED_COST)),
        _row(448, Mark(ms=9.0, anchor=(_ANCHOR, 8.1))),
        _row(1024, Mark(ms=40.0, anchor=(_ANCHOR, 52.0))),
        _row(
            2048,
            Mark(
                ms=140.0,
                anchor=(_ANCHOR, 332.0),
                times_limit=1.5,
                times_faster=(("PML multi-similarity", 2),),
                why_missed=_PASSES,
            ),
        ),
    ),
)
