"""A batch of embeddings, every item a query against the rest: the step of a retrieval loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from benchmarks.speed.contest import Contender, Group, Mark, Row
from rankwise.losses import AUPRCLoss, EmbeddingLoss, StableAPLoss

__all__ = ["RETRIEVAL_BATCH"]

_DIMENSIONS = 512
_PER_CLASS = 4


@dataclass(frozen=True)
class _Batch:
    embeddings: Tensor
    labels: Tensor


def _make(size: int) -> _Batch:
    random = torch.Generator().manual_seed(0)
    labels = torch.arange(size // _PER_CLASS).repeat_interleave(_PER_CLASS)
    centres = torch.randn(size // _PER_CLASS, _DIMENSIONS, generator=random)
    embeddings = 0.3 * centres[labels] + torch.randn(size, _DIMENSIONS, generator=random)
    return _Batch(embeddings.requires_grad_(), labels)


def _step(batch: _Batch, loss: Callable[[Tensor, Tensor], Tensor]) -> Callable[[], object]:
    return lambda: torch.autograd.grad(loss(batch.embeddings, batch.labels), batch.embeddings)


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


def _metric_learning(name: str) -> Callable[[_Batch], Callable[[], object]]:
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


def _product(batch: _Batch) -> Callable[[], object]:
    upstream = torch.ones(len(batch.labels), len(batch.labels))
    return lambda: torch.autograd.grad(batch.embeddings @ batch.embeddings.T, batch.embeddings, upstream)


def _contenders(size: int) -> tuple[Contender, ...]:
    package = "pytorch_metric_learning"

    def peer(label: str, name: str, largest: int = 10**9, slow: bool = False) -> Contender:
        skip = "" if size <= largest else "too slow at this size"
        return Contender(f"PML {label}", _metric_learning(name), needs=package, skip=skip, slow=slow)

    return (
        Contender(
            "rankwise EmbeddingLoss(AUPRCLoss())", lambda batch: _step(batch, EmbeddingLoss(AUPRCLoss())), role="ours"
        ),
        Contender(
            "rankwise EmbeddingLoss(StableAPLoss())",
            lambda batch: _step(batch, EmbeddingLoss(StableAPLoss())),
            role="ours",
        ),
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
        Contender("similarity matmul, forward + backward", _product, role="limit"),
    )


def _row(size: int, ms: float, plain_ms: float, why_missed: str = "") -> Row:
    return Row(
        name=str(size),
        make=lambda: _make(size),
        small=lambda: _make(32),
        contenders=_contenders(size),
        mark=Mark(ms=ms, anchor=(_ANCHOR, plain_ms), why_missed=why_missed),
    )


_ANCHOR = "Smooth-AP over positive rows, plain torch"
_FIXED_COST = "probably the several hundred small torch calls a step (masks, quantiles, state); not tested"
_PASSES = "probably the passes over the B x B similarities and their masks beside the product; not tested"

RETRIEVAL_BATCH = Group(
    key="retrieval-batch",
    title="Retrieval batch: 512-d embeddings, 4 per class",
    problem="B",
    about=(
        "Forward and backward on the embeddings, normalisation and similarities included. PML is "
        "pytorch-metric-learning. The objectives differ."
    ),
    rows=(
        _row(112, ms=2.5, plain_ms=1.7, why_missed=_FIXED_COST),
        _row(224, ms=4.0, plain_ms=3.5, why_missed=_FIXED_COST),
        _row(448, ms=9.0, plain_ms=8.1, why_missed=_PASSES),
        _row(1024, ms=40.0, plain_ms=52.0),
        _row(2048, ms=140.0, plain_ms=332.0),
    ),
)
