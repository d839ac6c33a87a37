"""Image retrieval: images of the same class should be each other's neighbours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from torch import Tensor, nn
from torch.utils.data import DataLoader

from rankwise.data import Batch, ImageSplit
from rankwise.losses import EmbeddingLoss, LateMemoryLoss, ListLoss, create_loss
from rankwise.losses.rivals.metric_learning import CrossBatchMemoryLoss, LateMemoryPairs, MetricLearningLoss
from rankwise.metrics import Evaluation, evaluate_retrieval
from rankwise.samplers import ClassBatchSampler
from rankwise.tasks.image_batches import image_batches, image_shape, predict_images
from rankwise.tasks.image_models import ImageModel
from rankwise.tasks.inspection import Inspection, some_classes
from rankwise.tasks.retrieval import CLASSIFIER, ClassifierHead, neighbours
from rankwise.tasks.task import Outputs

__all__ = ["ImageRetrievalTask"]


@dataclass(frozen=True)
class ImageRetrievalTask:
    """Find the images of the same class among all others, by the cosine of their vectors.

    Attributes:
        data: images and their classes; the classes to be found later need not be those to learn from. Test images
            are looked for in the gallery, if there is one, else among each other.
        loss: the registered name of a loss over lists, which is put on the similarities of the batch; or "classifier":
            cross entropy of a linear layer over the vectors, thrown away after training.
        loss_options: options of that loss; `add` holds losses to be added, semi-variance for instance. Of a classifier
            `temperature`, see `ClassifierHead`.
        model: the network.
        dimensions: d, the numbers in a vector.
        augmentation: how training images are varied, see `rankwise.data.augmentation`.
        classes: classes in every batch.
        samples_per_class: images of each of them.
        memory: vectors of earlier batches that are ranked besides the batch, see `LateMemoryLoss`; 0 for none.
        memory_after: training steps without them.
        metrics: by name; choices are made by the first.
        workers: processes that decode images ahead.

    Example:
        >>> import torch
        >>> from rankwise.data import ArrayImages, ImagePart
        >>> images = torch.randint(0, 255, (40, 1, 16, 16), dtype=torch.uint8)
        >>> part = ImagePart(ArrayImages(images), torch.arange(40), torch.arange(40) // 4, tuple("abcdefghij"))
        >>> task = ImageRetrievalTask(ImageSplit(part, part, part), loss="soprc", classes=5, samples_per_class=3)
        >>> next(iter(task.train_loader(seed=0))).features.shape
        torch.Size([15, 1, 16, 16])
        >>> sorted(task.evaluate(task.build_model(), "test"))
        ['map', 'recall@1']
    """

    data: ImageSplit
    loss: str
    loss_options: Mapping[str, Any] = field(default_factory=dict)
    model: ImageModel = field(default_factory=ImageModel)
    dimensions: int = 64
    augmentation: str = "none"
    classes: int = 28
    samples_per_class: int = 4
    memory: int = 0
    memory_after: int = 0
    metrics: Sequence[str] = ("map", "recall@1")
    workers: int = 0

    def __post_init__(self) -> None:
        for name in ("train", "validation", "test"):
            if name == "test" and self.data.gallery is not None:
                continue
            counts = self.data.part(name).labels.unique(return_counts=True)[1]
            if len(counts) < 2:  # everything is relevant then, and every ranking perfect
                raise ValueError(f"data: expected at least 2 classes in {name}, got {len(counts)}")
            if int(counts.max()) < 2:
                raise ValueError(f"data: expected 2 images of some class in {name}, to find each other, got 1 of each")

    @property
    def features(self) -> int:
        return prod(image_shape(self.data.train))

    @property
    def metric(self) -> str:
        return self.metrics[0]

    def build_model(self) -> nn.Module:
        # A classifier is free in the length of its vectors, as classifiers are; the metric looks at angles only.
        return self.model.build(image_shape(self.data.train), self.dimensions, normalise=self.loss != CLASSIFIER)

    def build_loss(self) -> nn.Module:
        if self.loss == CLASSIFIER:
            return ClassifierHead(self.dimensions, int(self.data.train.labels.max()) + 1, **self.loss_options)
        loss: nn.Module = create_loss(self.loss, **self.loss_options)
        if not isinstance(loss, ListLoss):  # it takes vectors and classes by itself
            if not self.memory:
                return loss
            if not isinstance(loss, MetricLearningLoss) or isinstance(loss, CrossBatchMemoryLoss):
                raise ValueError(f"memory: expected a loss over lists or pairs without one, got {self.loss!r}")
            return LateMemoryPairs(loss.loss, memory=self.memory, after=self.memory_after)
        return LateMemoryLoss(loss, memory=self.memory, after=self.memory_after) if self.memory else EmbeddingLoss(loss)

    def train_loader(self, seed: int) -> DataLoader[Batch]:
        part = self.data.train
        sampler = ClassBatchSampler(
            part.labels, classes=self.classes, samples_per_class=self.samples_per_class, drop_last=True, seed=seed
        )
        return image_batches(part, sampler, view=self.augmentation, seed=seed, workers=self.workers)

    def training_step(
        self, model: nn.Module, loss: nn.Module, batch: Batch, *, previous: Outputs | None = None
    ) -> Tensor:
        mixes = getattr(model, "mixes", False)
        if mixes and previous is not None:
            raise ValueError("previous: expected None with feature mixup, whose images of before cannot be mixed alike")
        if mixes:
            vectors, labels = model.mixed(batch.features, batch.labels)  # type: ignore[operator]
        else:
            vectors, labels = model(batch.features), batch.labels
        before = {} if previous is None else {"previous_embeddings": previous(batch.features)}
        value: Tensor = loss(vectors, labels, **before)
        return value

    def embed(self, model: nn.Module, part: str) -> Tensor:
        """Vectors (N, d) of the images of a part."""
        return predict_images(model, self.data.part(part), workers=self.workers)

    def evaluate(self, model: nn.Module, part: str) -> dict[str, float]:
        return self.judge(model, part).means

    def judge(self, model: nn.Module, part: str, *, bootstrap: int = 0) -> Evaluation:
        return self.inspect(model, part, bootstrap=bootstrap).evaluation

    def inspect(self, model: nn.Module, part: str, *, bootstrap: int = 0) -> Inspection:
        queries, gallery = self.data.part(part), self.data.gallery if part == "test" else None
        vectors = self.embed(model, part)
        others = None if gallery is None else predict_images(model, gallery, workers=self.workers)
        other_labels = None if gallery is None else gallery.labels
        found = evaluate_retrieval(
            vectors,
            queries.labels,
            self.metrics,
            gallery_embeddings=others,
            gallery_labels=other_labels,
            bootstrap=bootstrap,
        )
        among = queries if gallery is None else gallery
        return Inspection(
            found,
            "query",
            "image",
            "precision",
            neighbours(vectors, queries.labels, others, other_labels),
            list_name=queries.name,
            item_name=lambda _, image: among.name(image),
            list_picture=queries.picture,
            item_picture=lambda _, image: among.picture(image),
        )

    def whole_lists(self) -> Batch:
        """As many images as a batch holds: there is room for them."""
        size = self.classes * self.samples_per_class
        return self.data.train.__getitems__(some_classes(self.data.train.labels, size).tolist())
