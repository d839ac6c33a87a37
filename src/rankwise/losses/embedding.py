"""Retrieval losses over embeddings, made from any list loss."""

from __future__ import annotations

import torch
from torch import Tensor

from rankwise.checks import (
    check_choice,
    check_count,
    check_finite,
    check_ids,
    check_same_shape,
    check_tensor,
    deferred_checks,
    full_precision,
    in_graphs,
    outside_inference_mode,
    send,
)
from rankwise.distributed import gather_inputs
from rankwise.estimators import RecentRows
from rankwise.lists import PackedLists
from rankwise.losses.base import CountsSteps, ListLoss, MarkedModule
from rankwise.losses.similarity import similarity_lists, unit_vectors

__all__ = ["EmbeddingLoss", "LateMemoryLoss", "check_embeddings"]


class EmbeddingLoss(MarkedModule):
    """Retrieval loss: every item of the batch is a query that ranks all others; items of its class are relevant.

    Called as `loss(embeddings, labels, reference_embeddings=None, reference_labels=None, previous_embeddings=None)`:

    Args of the call:
        embeddings: (B, d); labels: (B,) integer classes.
        reference_embeddings: (R, d), reference_labels: (R,): items to rank instead of the batch (a memory, a gallery);
            they must not contain the queries.
        previous_embeddings: (B, d), the same items under the weights before the last step, for losses with
            variance-reduced averages (`StableAPLoss`); see `rankwise.training.PreviousWeights`.

    Queries of one class share the state of the loss.

    Args:
        loss: any list loss, such as `AUPRCLoss()`.
        similarity: "cosine" (embeddings are normalised here) or "dot".

    Example:
        >>> from rankwise.losses import AUPRCLoss
        >>> loss = EmbeddingLoss(AUPRCLoss())
        >>> bool(loss(torch.eye(4), torch.tensor([0, 0, 1, 1])) > 0)
        True
    """

    remembers = ("similarity",)

    def __init__(self, loss: ListLoss, similarity: str = "cosine") -> None:
        super().__init__()
        if not isinstance(loss, ListLoss):
            raise TypeError(f"loss: expected a list loss, got {type(loss).__name__}")
        self.loss = loss
        self.similarity = check_choice("similarity", similarity, ("cosine", "dot"))

    @property
    def cosines(self) -> bool:
        """Return whether the similarity is the cosine."""
        return self.similarity == "cosine"

    @property
    def skipped(self) -> int:
        """Return the number of queries of the last batch that had no relevant or no irrelevant item to rank."""
        return self.loss.skipped

    @in_graphs
    @outside_inference_mode
    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        reference_embeddings: Tensor | None = None,
        reference_labels: Tensor | None = None,
        previous_embeddings: Tensor | None = None,
    ) -> Tensor:
        with deferred_checks():
            inputs = gather_inputs(
                lambda: self._prepare(embeddings, labels, reference_embeddings, reference_labels, previous_embeddings),
                pad=False,
            )
            queries, classes, references, reference_classes, before = inputs.values()
            with full_precision(queries.device.type):
                if references is None:
                    return self.within_batch(queries, classes, before)
                lists = similarity_lists(
                    queries, classes, references, reference_classes, before, references, own=False, cosines=self.cosines
                )
                return self.loss.on_lists(PackedLists((lists,), len(classes), classes), classes)

    def within_batch(self, queries: Tensor, labels: Tensor, previous: Tensor | None) -> Tensor:
        """Compute the loss of a checked, normalised and gathered batch; `previous` are its earlier vectors."""
        lists = similarity_lists(queries, labels, queries, labels, previous, previous, own=True, cosines=self.cosines)
        return self.loss.on_lists(PackedLists((lists,), len(labels), labels), labels)

    def _prepare(
        self,
        embeddings: object,
        labels: object,
        reference_embeddings: object,
        reference_labels: object,
        previous_embeddings: object,
    ) -> dict[str, Tensor | None]:
        """Check the inputs of this rank and return them, with unit vectors for cosines."""
        vectors, classes = check_embeddings("", embeddings, labels)
        previous, references, reference_classes = None, None, None
        if previous_embeddings is not None:
            previous = check_tensor("previous_embeddings", previous_embeddings).detach().to(vectors)
            check_same_shape("previous_embeddings", previous, "embeddings", vectors.shape)
            check_finite("previous_embeddings", previous)
        if reference_embeddings is not None or reference_labels is not None:
            references, reference_classes = check_embeddings("reference_", reference_embeddings, reference_labels)
            if references.shape[1] != vectors.shape[1]:
                raise ValueError(
                    f"reference_embeddings: expected {vectors.shape[1]} numbers each, got {references.shape[1]}"
                )
        with full_precision(vectors.device.type):
            return {
                "embeddings": self._ready(vectors),
                "labels": classes,
                "reference_embeddings": None if references is None else self._ready(references),
                "reference_labels": reference_classes,
                "previous_embeddings": None if previous is None else self._ready(previous),
            }

    def _ready(self, embeddings: Tensor) -> Tensor:
        if embeddings.dtype in (torch.float16, torch.bfloat16):
            embeddings = embeddings.float()
        return unit_vectors(embeddings) if self.cosines else embeddings


def check_embeddings(prefix: str, embeddings: object, labels: object) -> tuple[Tensor, Tensor]:
    """Check vectors (B, d) and their classes (B,), and return them; errors put `prefix` before their names."""
    if embeddings is None or labels is None:
        raise ValueError(f"{prefix}embeddings: expected both {prefix}embeddings and {prefix}labels, got only one")
    tensor = check_tensor(f"{prefix}embeddings", embeddings)
    if tensor.ndim != 2 or not tensor.is_floating_point():
        raise ValueError(
            f"{prefix}embeddings: expected floating numbers of shape (B, d), got {tensor.dtype} {tuple(tensor.shape)}"
        )
    classes = send(check_ids(f"{prefix}labels", labels), tensor.device)
    check_same_shape(f"{prefix}labels", classes, f"one class per row of {prefix}embeddings", tensor.shape[:1])
    check_finite(f"{prefix}embeddings", tensor)
    return tensor, classes


class LateMemoryLoss(CountsSteps, EmbeddingLoss):
    """Retrieval loss with a memory of earlier batches, used after a number of steps.

    Each query then has two lists: the batch, and the batch with the memory; both count equally. No gradient flows to
    the memory. Long lists give better estimates of ranks in the whole data set, but while weights still change fast,
    old vectors are wrong: hence the late start.

    A step is a call in training mode. Memory and count are buffers, so a resumed training continues exactly.

    Args:
        loss: any list loss, such as `AUPRCLoss()`.
        memory: largest number of vectors in memory, at least the size of a batch; whole batches are dropped.
        after: training steps without the memory.
        similarity: see `EmbeddingLoss`.

    Example:
        >>> from rankwise.losses import AUPRCLoss
        >>> loss = LateMemoryLoss(AUPRCLoss(), memory=6, after=1)
        >>> for _ in range(2):
        ...     value = loss(torch.eye(4), torch.tensor([0, 0, 1, 1]))
        >>> int(loss.step), loss.recent.classes
        (2, tensor([0, 0, 1, 1]))
    """

    def __init__(self, loss: ListLoss, *, memory: int, after: int = 0, similarity: str = "cosine") -> None:
        super().__init__(loss, similarity)
        self.after = check_count("after", after, least=0)
        self.recent = RecentRows(check_count("memory", memory))
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))

    def within_batch(self, queries: Tensor, labels: Tensor, previous: Tensor | None) -> Tensor:
        if self.training:
            self.recent.check(queries)
        cosines = self.cosines
        blocks = [similarity_lists(queries, labels, queries, labels, previous, previous, own=True, cosines=cosines)]
        if len(self.recent) and self.steps >= self.after:
            vectors, classes = self.recent.vectors.to(queries), self.recent.classes.to(labels)
            longer, more = torch.cat([queries, vectors]), torch.cat([labels, classes])
            before = None if previous is None else torch.cat([previous, vectors])
            blocks.append(
                similarity_lists(
                    queries, labels, longer, more, previous, before, own=True, cosines=cosines, first=len(labels)
                )
            )
        groups = labels.repeat(len(blocks))
        value = self.loss.on_lists(PackedLists(tuple(blocks), len(groups), groups), groups)
        if self.training:
            self.recent.add(queries.detach(), labels)
            self.advance()
        return value
