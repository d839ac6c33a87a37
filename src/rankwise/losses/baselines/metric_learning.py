"""Losses of pytorch-metric-learning, called like `EmbeddingLoss`. Needs `pip install "rankwise[peers]"`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from rankwise.checks import (
    ExactModule,
    check_count,
    first_order_only,
    full_precision,
    in_graphs,
    outside_inference_mode,
)
from rankwise.distributed import gather_inputs
from rankwise.estimators import RecentRows
from rankwise.losses.base import CountsSteps, MarkedModule
from rankwise.losses.embedding import check_embeddings
from rankwise.registry import LossRecord

__all__ = [
    "CrossBatchMemoryLoss",
    "LateMemoryPairs",
    "MetricLearningLoss",
    "contrastive",
    "cross_batch_memory",
    "multi_similarity",
    "pair_histograms",
    "triplet",
]


class MetricLearningLoss(MarkedModule):
    """Loss of pytorch-metric-learning over the pairs or triplets of a batch.

    Called as `loss(embeddings, labels)` with (B, d) vectors and (B,) integer classes. With an initialised process group
    every rank computes the loss of the gathered batch. Half precision is computed in float32.

    Args:
        loss: one of that library's losses over embeddings.

    Example:
        >>> loss = triplet(margin=0.1)
        >>> bool(loss(torch.eye(4), torch.tensor([0, 0, 1, 1])) > 0)
        True
    """

    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        self.loss = loss

    @in_graphs
    @outside_inference_mode
    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        def prepare() -> dict[str, Tensor | None]:
            vectors, classes = check_embeddings("", embeddings, labels)
            half = vectors.dtype in (torch.float16, torch.bfloat16)
            return {"embeddings": vectors.float() if half else vectors, "labels": classes}

        vectors, classes = gather_inputs(prepare, pad=False).values()
        with full_precision(vectors.device.type):
            return self.of_batch(vectors, classes)

    def of_batch(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """Compute the loss of a batch that is checked and gathered."""
        value: Tensor = self.loss(embeddings, labels)
        return value


class CrossBatchMemoryLoss(ExactModule, MetricLearningLoss):
    """Pair loss between the batch and a memory of vectors of the last batches.

    The batch is added to the memory first; a vector is not compared with itself. The memory is in buffers, so a
    checkpoint contains all of it (that library saves the vectors but not their number). Eval mode does not write it.

    Args:
        loss: a loss of that library over pairs.
        memory: number of vectors in memory, at least the size of a batch.

    Example:
        >>> loss = cross_batch_memory(memory=6)
        >>> for _ in range(2):
        ...     value = loss(torch.eye(4), torch.tensor([0, 0, 1, 1]))
        >>> loss.vectors.shape, loss.classes
        (torch.Size([6, 4]), tensor([1, 1, 0, 0, 1, 1]))

    Paper: Wang et al., Cross-Batch Memory for Embedding Learning, CVPR 2020.
    """

    remembers = ()
    traceable = False
    vectors: Tensor
    classes: Tensor

    def __init__(self, loss: nn.Module, memory: int = 1024) -> None:
        super().__init__(loss)
        check_count("memory", memory)
        self.memory = memory
        self.register_buffer("vectors", torch.empty(0, 0))
        self.register_buffer("classes", torch.empty(0, dtype=torch.int64))

    def of_batch(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        vectors, classes = self._with_batch(embeddings.detach(), labels)
        if self.training:
            self.vectors, self.classes = vectors, classes
        pairs = _pairs(labels, classes, own=len(classes) - len(labels))
        value: Tensor = self.loss(embeddings, labels, pairs, vectors, classes)
        return first_order_only(value, type(self).__name__, "its gradient holds the copy of the batch in memory fixed")

    def _with_batch(self, embeddings: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        if len(embeddings) > self.memory:
            raise ValueError(f"embeddings: expected at most memory={self.memory} rows, got {len(embeddings)}")
        if not len(self.classes):
            return embeddings.clone(), labels.clone()
        if self.vectors.shape[1] != embeddings.shape[1]:
            raise ValueError(
                f"embeddings: expected {self.vectors.shape[1]} numbers each, as in memory, got {embeddings.shape[1]}"
            )
        vectors = torch.cat([self.vectors.to(embeddings), embeddings])
        return vectors[-self.memory :], torch.cat([self.classes.to(labels.device), labels])[-self.memory :]

    @outside_inference_mode
    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        for name in ("vectors", "classes"):
            saved = state_dict.get(prefix + name)
            if saved is not None:
                setattr(self, name, torch.empty_like(saved, device=getattr(self, name).device))
        super()._load_from_state_dict(state_dict, prefix, *others)


class LateMemoryPairs(CountsSteps, MetricLearningLoss):
    """Counterpart of `LateMemoryLoss` for losses of pytorch-metric-learning, with the same memory and schedule.

    After `after` steps the loss is the mean of two: that of the batch, and that of the batch against itself and the
    memory of earlier vectors, which get no gradient.

    Args:
        loss: one of that library's losses over embeddings.
        memory, after: see `LateMemoryLoss`.

    Example:
        >>> loss = LateMemoryPairs(triplet(margin=0.1).loss, memory=6, after=1)
        >>> for _ in range(2):
        ...     value = loss(torch.eye(4), torch.tensor([0, 0, 1, 1]))
        >>> int(loss.step), loss.recent.classes
        (2, tensor([0, 0, 1, 1]))
    """

    remembers = ()

    def __init__(self, loss: nn.Module, *, memory: int, after: int = 0) -> None:
        super().__init__(loss)
        self.after = check_count("after", after, least=0)
        self.recent = RecentRows(check_count("memory", memory))
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))

    def of_batch(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        if self.training:
            self.recent.check(embeddings)
        value = super().of_batch(embeddings, labels)
        if len(self.recent) and self.steps >= self.after:
            vectors = torch.cat([embeddings, self.recent.vectors.to(embeddings)])
            classes = torch.cat([labels, self.recent.classes.to(labels)])
            longer: Tensor = self.loss(embeddings, labels, _pairs(labels, classes, own=0), vectors, classes)
            value = (value + longer) / 2
        if self.training:
            self.recent.add(embeddings.detach(), labels)
            self.advance()
        return value


def contrastive(*, positive_margin: float = 0.0, negative_margin: float = 1.0) -> MetricLearningLoss:
    """Create a contrastive loss: distances within a class below one margin, between classes above another."""
    return MetricLearningLoss(_losses().ContrastiveLoss(positive_margin, negative_margin))


def triplet(*, margin: float = 0.05) -> MetricLearningLoss:
    """Create a triplet loss: each vector nearer to its own class than to others by a margin, over all triplets."""
    return MetricLearningLoss(_losses().TripletMarginLoss(margin))


def multi_similarity(*, alpha: float = 2.0, beta: float = 50.0, base: float = 0.5) -> MetricLearningLoss:
    """Create a multi-similarity loss: pairs weighed by their own and each other's similarities."""
    return MetricLearningLoss(_losses().MultiSimilarityLoss(alpha, beta, base))


def pair_histograms(*, intervals: int = 10) -> MetricLearningLoss:
    """Create the FastAP loss of pytorch-metric-learning."""
    return MetricLearningLoss(_losses().FastAPLoss(intervals))


def cross_batch_memory(
    *, memory: int = 1024, positive_margin: float = 0.0, negative_margin: float = 1.0
) -> CrossBatchMemoryLoss:
    """Create a contrastive loss against a memory of earlier batches."""
    return CrossBatchMemoryLoss(_losses().ContrastiveLoss(positive_margin, negative_margin), memory)


def _pairs(labels: Tensor, classes: Tensor, *, own: int) -> tuple[Tensor, ...]:
    """Return all pairs of the batch with vectors of these classes; the batch itself starts at index `own` of them."""
    from pytorch_metric_learning.utils.loss_and_miner_utils import (  # type: ignore[import-untyped]
        get_all_pairs_indices,
    )

    anchors, positives, others, negatives = get_all_pairs_indices(labels, classes)
    another = positives != anchors + own
    return anchors[another], positives[another], others, negatives


def _losses() -> Any:
    try:
        from pytorch_metric_learning import losses  # type: ignore[import-untyped]
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            'this loss is one of pytorch-metric-learning: pip install "rankwise[peers]"', name=error.name
        ) from None
    return losses


RECORDS = (
    LossRecord(
        name="contrastive",
        summary="pairs of a class near, others apart (pytorch-metric-learning)",
        build=contrastive,
        role="baseline",
        inputs="embeddings",
        paper="Hadsell et al., CVPR 2006",
        advice="retrieval, the plainest",
    ),
    LossRecord(
        name="triplet",
        summary="nearer to its own class than to others by a margin (pytorch-metric-learning)",
        build=triplet,
        role="baseline",
        inputs="embeddings",
        paper="Weinberger and Saul, JMLR 2009",
        advice="retrieval with small batches: cubic in their size",
    ),
    LossRecord(
        name="multi-similarity",
        summary="pairs weighed by their own and each other's similarities (pytorch-metric-learning)",
        build=multi_similarity,
        role="baseline",
        inputs="embeddings",
        paper="Wang et al., CVPR 2019",
        advice="retrieval, a strong baseline on classes not seen in training",
    ),
    LossRecord(
        name="fast-ap-pairs",
        summary="FastAP as in pytorch-metric-learning",
        build=pair_histograms,
        role="baseline",
        inputs="embeddings",
        paper="Cakir et al., CVPR 2019",
        advice="to compare with `fast-ap`, the same loss over lists",
    ),
    LossRecord(
        name="cross-batch-memory",
        aliases=("xbm",),
        summary="contrastive loss against a memory of earlier batches (pytorch-metric-learning)",
        build=cross_batch_memory,
        role="baseline",
        inputs="embeddings",
        paper="Wang et al., CVPR 2020",
        state="the last 1,024 vectors and their classes",
        advice="retrieval with small batches, late in training",
    ),
)
