"""Targets that are classes of items with vectors: each item ranks the others by the cosine of their vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from pydantic import field_validator
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from rankwise.checks import check_positive
from rankwise.data import Batch, Split
from rankwise.losses import LOSSES, EmbeddingLoss, class_prior
from rankwise.problems.inspection import Embedding, SeenLists, some_classes
from rankwise.problems.problem import LossChoice, batch_size
from rankwise.registry import nearest
from rankwise.samplers import ClassBatchSampler
from rankwise.training.options import Count, Options

__all__ = [
    "ClassBatches",
    "ClassifierHead",
    "EmbeddingLossChoice",
    "build_embedding_loss",
    "check_neighbours",
    "check_samples",
    "class_batches",
    "embedding_step",
    "neighbours",
    "probe_classes",
]

CLASSIFIER, TEMPERATURE = "classifier", "temperature"


class _Part(Protocol):
    """Part of data whose items have classes."""

    @property
    def labels(self) -> Tensor: ...

    def __getitems__(self, indices: Any) -> Batch: ...


class EmbeddingLossChoice(LossChoice):
    """A loss over lists, put on the similarities of a batch; a loss over embeddings; or "classifier": cross entropy of
    a linear layer over the vectors, which is dropped after training, with the option `temperature`."""

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        if name != CLASSIFIER:
            LOSSES.get(name)
        return name

    def check_options(self) -> None:
        """Refuse options that the loss does not take."""
        if self.classifies:
            for option in self.options:
                if option != TEMPERATURE:
                    raise ValueError(f"{self.name} has no option {option!r}{nearest(option, [TEMPERATURE])}")
            if self.add:
                raise ValueError("expected no losses added to a classifier, got some")
            if (temperature := self.options.get(TEMPERATURE)) is not None:
                check_positive(TEMPERATURE, temperature)
            return
        super().check_options()

    @property
    def classifies(self) -> bool:
        """Return whether the loss is a classifier, whose vectors may have any length."""
        return self.name == CLASSIFIER


class ClassBatches(Options):
    """So many `classes` in a batch (16, of images 28, or all if there are fewer), and so many items of each."""

    classes: Count | None = None
    samples_per_class: Count = 4

    def chosen(self, labels: Tensor, default: int) -> int:
        """Return the number of classes in a batch."""
        available = len(labels.unique())
        return batch_size("batches.classes", self.classes, default, available, "classes to train on")


class ClassifierHead(nn.Module):
    """Cross entropy of a linear layer over the vectors; its weights are trained with the model's.

    Args:
        dimensions: d, the numbers in a vector.
        classes: C.
        temperature: the logits are cosines of vectors and weights divided by it (the normalised softmax of metric
            learning); None takes products and an offset, as classifiers do.
    """

    def __init__(self, dimensions: int, classes: int, *, temperature: float | None = None) -> None:
        super().__init__()
        self.temperature = None if temperature is None else check_positive("temperature", temperature)
        self.layer = nn.Linear(dimensions, classes, bias=temperature is None)

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of vectors (N, d) with classes (N,), a scalar."""
        if self.temperature is None:
            return cross_entropy(self.layer(embeddings), labels)
        cosines = normalize(embeddings, dim=1) @ normalize(self.layer.weight, dim=1).T
        return cross_entropy(cosines / self.temperature, labels)


def build_embedding_loss(choice: EmbeddingLossChoice, dimensions: int, labels: Tensor) -> nn.Module:
    """Return a new loss over vectors of so many dimensions; `labels` are those of the training part."""
    if choice.classifies:
        return ClassifierHead(dimensions, int(labels.max()) + 1, **choice.options)
    loss = choice.create(data_prior=lambda: class_prior(labels))
    return EmbeddingLoss(loss) if LOSSES.get(choice.name).inputs == "scores" else loss


def check_samples(loss: EmbeddingLossChoice, batches: ClassBatches) -> None:
    """Refuse one item of each class in a batch, unless a classifier learns from it: none would find another."""
    if batches.samples_per_class < 2 and not loss.classifies:
        raise ValueError(f"batches.samples_per_class: expected at least 2, got {batches.samples_per_class}")


def class_batches(labels: Tensor, batches: ClassBatches, *, default: int, seed: int) -> ClassBatchSampler:
    """Return the sampler of batches of classes; `default` classes in a batch if the options name no number."""
    return ClassBatchSampler(
        labels,
        classes=batches.chosen(labels, default),
        samples_per_class=batches.samples_per_class,
        drop_last=True,
        seed=seed,
    )


def embedding_step(loss: nn.Module, vectors: Tensor, labels: Tensor, before: Tensor | None) -> Tensor:
    """Return the loss of the vectors (B, d) of a batch; `before` (B, d) are those under the previous weights."""
    given = {} if before is None else {"previous_embeddings": before}
    value: Tensor = loss(vectors, labels, **given)
    return value


def check_neighbours(split: Split[Any], what: str) -> None:
    """Refuse a split of which a part has one class only, or no two items of a class, unless a gallery is searched.

    Args:
        split: the parts.
        what: the items in errors, such as "images".
    """
    for name in ("train", "validation", "test"):
        part = split.part(name)
        if getattr(part, "gallery", None) is not None:
            continue
        counts = part.labels.unique(return_counts=True)[1]
        if len(counts) < 2:  # every item is relevant then, and every ranking perfect
            raise ValueError(f"data: expected at least 2 classes in {name}, got {len(counts)}")
        if int(counts.max()) < 2:
            raise ValueError(f"data: expected 2 {what} of some class in {name}, to find each other, got 1 of each")


def neighbours(
    vectors: Tensor, labels: Tensor, gallery: Tensor | None = None, gallery_labels: Tensor | None = None
) -> Callable[[Tensor], SeenLists]:
    """Return the look-up of queries by row: each ranks the gallery, or the others, by the cosine of their vectors."""
    queries = normalize(vectors)
    among, classes = (queries, labels) if gallery is None else (normalize(gallery), gallery_labels)
    assert classes is not None

    def look(rows: Tensor) -> SeenLists:
        mask: Tensor | None = None
        if gallery is None:
            mask = torch.arange(len(queries)) != rows[:, None]
        return SeenLists(queries[rows] @ among.T, (labels[rows, None] == classes).long(), mask)

    return look


def map_of(
    vectors: Tensor, labels: Tensor, class_name: Callable[[int], str], gallery: Tensor | None = None
) -> Embedding:
    """Return what a report draws: vectors (N, d), and the gallery (M, d) in which each is looked up, or the others."""
    queries = normalize(vectors)
    return Embedding(queries, labels, queries if gallery is None else normalize(gallery), class_name)


def probe_classes(part: _Part, rows: int) -> Batch:
    """Return up to so many rows of complete classes, evenly spread."""
    return part.__getitems__(some_classes(part.labels, rows).tolist())
