"""Long-tailed classification of images: few classes with many images, many with few, judged class by class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot
from torch.utils.data import DataLoader

from rankwise.data import Batch, ImageSplit
from rankwise.losses import LOSSES, create_loss
from rankwise.metrics import Evaluation, evaluate
from rankwise.samplers import ClassBatchSampler, SeededBatchSampler, ShuffledBatchSampler
from rankwise.tasks.image_batches import image_batches, image_shape, predict_images
from rankwise.tasks.image_models import ImageModel
from rankwise.tasks.inspection import Inspection, SeenLists, some_classes
from rankwise.tasks.task import Outputs

__all__ = ["GROUPS", "LongTailTask"]

GROUPS = ("head", "medium", "tail")


@dataclass(frozen=True)
class LongTailTask:
    """Rank, for every class, its images before all others: one list per class, over the outputs (B, C) of the network.

    Attributes:
        data: images and their classes 0 .. C-1, the same in all parts.
        loss: a registered name, see `rankwise list losses`.
        loss_options: options of that loss.
        model: the network; it gives one logit per class.
        augmentation: how training images are varied, see `rankwise.data.augmentation`.
        batch_size: images in a batch, drawn at random.
        samples_per_class: images of each class in every batch instead; None draws at random, so that a batch may hold
            no image of a rare class, which then learns nothing from it.
        metrics: of binary labels, by name; the mean over classes is reported, and choices are made by the first.
        workers: processes that decode images ahead.

    Example:
        >>> from rankwise.data import ArrayImages, ImagePart
        >>> images = torch.randint(0, 255, (60, 3, 16, 16), dtype=torch.uint8)
        >>> part = ImagePart(ArrayImages(images), torch.arange(60), torch.arange(60) // 20, ("a", "b", "c"))
        >>> task = LongTailTask(ImageSplit(part, part, part), loss="stable-ap", batch_size=32)
        >>> list(task.judge(task.build_model(), "test").means)
        ['ap', 'ap head', 'ap medium', 'ap tail']
    """

    data: ImageSplit
    loss: str
    loss_options: Mapping[str, Any] = field(default_factory=dict)
    model: ImageModel = field(default_factory=ImageModel)
    augmentation: str = "none"
    batch_size: int = 128
    samples_per_class: int | None = None
    metrics: Sequence[str] = ("ap",)
    workers: int = 0

    def __post_init__(self) -> None:
        if self.model.mixup:
            raise ValueError("mixup: expected False, because this task has no batches of classes, got True")

    @property
    def features(self) -> int:
        return prod(image_shape(self.data.train))

    @property
    def metric(self) -> str:
        return self.metrics[0]

    @property
    def classes(self) -> int:
        """C."""
        return len(self.data.train.classes)

    def build_model(self) -> nn.Module:
        return self.model.build(image_shape(self.data.train), self.classes, normalise=False)

    def build_loss(self) -> nn.Module:
        if not LOSSES.get(self.loss).takes("lists"):
            raise ValueError(f"loss: expected a loss over lists, got {self.loss!r}")
        loss: nn.Module = create_loss(self.loss, **{"lists": "columns", **self.loss_options})
        return loss

    def train_loader(self, seed: int) -> DataLoader[Batch]:
        part = self.data.train
        sampler: SeededBatchSampler
        if self.samples_per_class is None:
            sampler = ShuffledBatchSampler(part.labels, batch_size=self.batch_size, drop_last=True, seed=seed)
        else:
            present = len(part.labels.unique())
            sampler = ClassBatchSampler(
                part.labels, classes=present, samples_per_class=self.samples_per_class, seed=seed
            )
        return image_batches(part, sampler, view=self.augmentation, seed=seed, workers=self.workers)

    def training_step(
        self, model: nn.Module, loss: nn.Module, batch: Batch, *, previous: Outputs | None = None
    ) -> Tensor:
        before = None if previous is None else previous(batch.features)
        value: Tensor = loss(model(batch.features), one_hot(batch.labels, self.classes), previous_scores=before)
        return value

    def score(self, model: nn.Module, part: str) -> Tensor:
        """Logits (N, C) of the images of a part."""
        return predict_images(model, self.data.part(part), workers=self.workers)

    def groups(self) -> dict[str, Tensor]:
        """The classes as "head", "medium" and "tail": sorted by their training images and cut into thirds."""
        counts = torch.bincount(self.data.train.labels, minlength=self.classes)
        order = torch.argsort(counts, descending=True, stable=True)
        outer = max(1, self.classes // 3)
        ends = (outer, max(outer, self.classes - outer))
        pieces = dict(zip(GROUPS, order.tensor_split(ends), strict=True))
        return {name: classes for name, classes in pieces.items() if len(classes)}

    def evaluate(self, model: nn.Module, part: str) -> dict[str, float]:
        return self._by_class(self.score(model, part), part, bootstrap=0).means

    def judge(self, model: nn.Module, part: str, *, bootstrap: int = 0) -> Evaluation:
        """Values per class, their means, and means over the classes of the head, the middle and the tail."""
        return self.inspect(model, part, bootstrap=bootstrap).evaluation

    def inspect(self, model: nn.Module, part: str, *, bootstrap: int = 0) -> Inspection:
        scores, images = self.score(model, part), self.data.part(part)

        def look(classes: Tensor) -> SeenLists:
            return SeenLists(scores.T[classes], (images.labels == classes[:, None]).long())

        return Inspection(
            self._by_group(self._by_class(scores, part, bootstrap=bootstrap)),
            "class",
            "image",
            "precision",
            look,
            list_name=lambda number: images.classes[number],
            item_name=lambda _, image: images.name(image),
            item_picture=lambda _, image: images.picture(image),
        )

    def whole_lists(self) -> Batch:
        """As many images as a batch holds: there is room for them."""
        part = self.data.train
        size = self.batch_size if self.samples_per_class is None else self.samples_per_class * self.classes
        return part.__getitems__(some_classes(part.labels, size).tolist())

    def _by_group(self, found: Evaluation) -> Evaluation:
        """With the means over the classes of the head, the middle and the tail."""
        means, skipped, definitions = dict(found.means), dict(found.skipped), dict(found.definitions)
        for metric, values in found.per_query.items():
            for group, classes in self.groups().items():
                name, some = f"{metric} {group}", values[classes]
                means[name] = float(some.nanmean())
                skipped[name] = int(some.isnan().sum())
                definitions[name] = f"{found.definitions[metric]}; over the {len(classes)} classes of the {group}"
        return replace(found, means=means, skipped=skipped, definitions=definitions)

    def _by_class(self, scores: Tensor, part: str, *, bootstrap: int) -> Evaluation:
        labels = one_hot(self.data.part(part).labels, self.classes)
        return evaluate(scores, labels, self.metrics, lists="columns", bootstrap=bootstrap)
