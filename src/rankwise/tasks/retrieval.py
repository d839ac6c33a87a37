"""Retrieval: vectors of rows of the same class should be each other's neighbours."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize
from torch.utils.data import DataLoader

from rankwise.checks import check_positive
from rankwise.data import Batch, Split
from rankwise.losses import LOSSES, EmbeddingLoss, create_loss
from rankwise.metrics import Evaluation, evaluate_retrieval
from rankwise.models import MLPEmbedder, scaled
from rankwise.samplers import ClassBatchSampler
from rankwise.tasks.batches import batches_of, predict_all
from rankwise.tasks.inspection import Inspection, SeenLists, some_classes
from rankwise.tasks.task import Outputs

__all__ = ["CLASSIFIER", "ClassifierHead", "RetrievalTask", "neighbours"]

CLASSIFIER = "classifier"
# Rows of whole classes against which to check what a loss remembers.
CHECKED_ROWS = 320


@dataclass(frozen=True)
class RetrievalTask:
    """Find the rows of the same class among all others, by the cosine of their vectors.

    Attributes:
        data: features (N, D), labels are classes 0 .. C-1.
        loss: the registered name of a loss over lists, which is put on the similarities of the batch, or of a loss over
            embeddings, which is taken as it is; or "classifier":
            cross entropy of a linear layer over the vectors, thrown away after training (the vectors are then what a
            classifier feeds its last layer).
        loss_options: options of that loss.
        hidden: the widths of the hidden layers of the embedder.
        scaling: of the features, see `rankwise.models.Scaling`; learned from the training part, kept in the model.
        dimensions: d, the numbers in a vector.
        classes: classes in every batch.
        samples_per_class: rows of each of them.
        metrics: by name; choices are made by the first.

    Example:
        >>> from rankwise.data import load_digit_retrieval
        >>> task = RetrievalTask(load_digit_retrieval(seed=0), loss="soprc", samples_per_class=6)
        >>> round(task.evaluate(nn.Identity(), "test")["map"], 2)  # the pixels as they are
        0.65
    """

    data: Split
    loss: str
    loss_options: Mapping[str, Any] = field(default_factory=dict)
    hidden: Sequence[int] = (64,)
    scaling: str = "none"
    dimensions: int = 32
    classes: int = 10
    samples_per_class: int = 6
    metrics: Sequence[str] = ("map", "recall@1")

    @property
    def features(self) -> int:
        return self.data.train.features.shape[1]

    @property
    def metric(self) -> str:
        return self.metrics[0]

    def build_model(self) -> nn.Module:
        features = self.data.train.features
        # A classifier is free in the length of its features, as classifiers are; the metric looks at angles only.
        embedder = MLPEmbedder(
            features.shape[1], self.dimensions, hidden=self.hidden, normalise=self.loss != CLASSIFIER
        )
        return scaled(embedder, features, self.scaling)

    def build_loss(self) -> nn.Module:
        if self.loss == CLASSIFIER:
            return ClassifierHead(self.dimensions, int(self.data.train.labels.max()) + 1, **self.loss_options)
        loss: Any = create_loss(self.loss, **self.loss_options)
        return EmbeddingLoss(loss) if LOSSES.get(self.loss).inputs == "scores" else loss

    def train_loader(self, seed: int) -> DataLoader[Batch]:
        part = self.data.train
        sampler = ClassBatchSampler(
            part.labels, classes=self.classes, samples_per_class=self.samples_per_class, drop_last=True, seed=seed
        )
        return batches_of(part, sampler)

    def training_step(
        self, model: nn.Module, loss: nn.Module, batch: Batch, *, previous: Outputs | None = None
    ) -> Tensor:
        before = {} if previous is None else {"previous_embeddings": previous(batch.features)}
        value: Tensor = loss(model(batch.features), batch.labels, **before)
        return value

    def embed(self, model: nn.Module, part: str) -> Tensor:
        """Vectors (N, d) of the rows of a part."""
        return predict_all(model, self.data.part(part).features)

    def evaluate(self, model: nn.Module, part: str) -> dict[str, float]:
        return self.judge(model, part).means

    def judge(self, model: nn.Module, part: str, *, bootstrap: int = 0) -> Evaluation:
        return self.inspect(model, part, bootstrap=bootstrap).evaluation

    def inspect(self, model: nn.Module, part: str, *, bootstrap: int = 0) -> Inspection:
        chosen = self.data.part(part)
        vectors = self.embed(model, part)
        found = evaluate_retrieval(vectors, chosen.labels, self.metrics, bootstrap=bootstrap)
        return Inspection(
            found,
            "query",
            "row",
            "precision",
            neighbours(vectors, chosen.labels),
            list_name=lambda row: f"row {row} (class {int(chosen.labels[row])})",
            item_name=lambda _, row: f"row {row} (class {int(chosen.labels[row])})",
        )

    def whole_lists(self) -> Batch:
        return self.data.train.__getitems__(some_classes(self.data.train.labels, CHECKED_ROWS).tolist())


def neighbours(
    vectors: Tensor, labels: Tensor, gallery: Tensor | None = None, gallery_labels: Tensor | None = None
) -> Callable[[Tensor], SeenLists]:
    """How some of the queries rank the gallery, or each other without themselves, by the cosine of their vectors."""
    queries = normalize(vectors)
    among, classes = (queries, labels) if gallery is None else (normalize(gallery), gallery_labels)
    assert classes is not None

    def look(rows: Tensor) -> SeenLists:
        mask: Tensor | None = None
        if gallery is None:
            mask = torch.arange(len(queries)) != rows[:, None]
        return SeenLists(queries[rows] @ among.T, (labels[rows, None] == classes).long(), mask)

    return look


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
        """Vectors (N, d) and classes (N,) to a scalar."""
        if self.temperature is None:
            return cross_entropy(self.layer(embeddings), labels)
        cosines = normalize(embeddings, dim=1) @ normalize(self.layer.weight, dim=1).T
        return cross_entropy(cosines / self.temperature, labels)
