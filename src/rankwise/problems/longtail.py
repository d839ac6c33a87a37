"""Long-tailed classification of images: few classes with many images, many with few, judged class by class."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field, field_validator
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader

from rankwise.data import Batch, ImagePart, ImageSchema, Split, cut_images, imbalanced
from rankwise.losses import data_prior
from rankwise.metrics import Evaluation, evaluate, multiclass_auc
from rankwise.metrics.areas import MULTICLASS_AUC
from rankwise.models.mixing import fit_sigmoid
from rankwise.problems.images import (
    Augmentation,
    ImageModelOptions,
    ImageOptions,
    cut_shares,
    image_batches,
    predict_images,
    read_image_parts,
    read_named_parts,
)
from rankwise.problems.inspection import Inspection, SeenLists, spread_over
from rankwise.problems.neighbours import probe_classes
from rankwise.problems.problem import Batches, LossChoice, Names, Problem, Sources, batch_size
from rankwise.samplers import ClassBatchSampler, SeededBatchSampler, ShuffledBatchSampler
from rankwise.training import Outputs
from rankwise.training.options import Count

__all__ = ["LongTail", "class_groups"]

GROUPS = ("head", "medium", "tail")
# The buffer of the model that holds the number of training images of each class.
COUNTS = "class_counts"


class LongTailImages(ImageOptions):
    """Shares are of the images of each class. `imbalance` makes a long tail of `train` before shares are cut from it:
    so many images of the first class per image of the last, drawn by `imbalance_seed`. Parts that are data of their own
    stay as they are."""

    imbalance: Annotated[float, Field(ge=1)] | None = None
    imbalance_seed: Annotated[int, Field(ge=0)] = 0


class LongTailBatches(Batches):
    """Batches of `size` images at random (128, or all if there are fewer); or `samples_per_class` of every class."""

    samples_per_class: Count | None = None


class LongTail(Problem[ImageSchema, ImagePart]):
    """Rank, for every class, its images before all others: one list per class, over the outputs (B, C) of the network.

    An image may have several classes, or none, where the data say so (ChestX-ray14).

    Example:
        >>> from rankwise.data import ArrayImages
        >>> images = torch.randint(0, 255, (60, 3, 16, 16), dtype=torch.uint8)
        >>> part = ImagePart(ArrayImages(images), torch.arange(60), torch.arange(60) // 20, ("a", "b", "c"))
        >>> problem = LongTail(loss="stable-ap", metrics=("ap",))
        >>> list(problem.inspect(problem.build_model(ImageSchema.of(part)), part).evaluation.means)
        ['ap', 'ap head', 'ap medium', 'ap tail']
    """

    kind: ClassVar[str] = "longtail"
    summary: ClassVar[str] = "images of frequent and rare classes: rank each class's own first"
    outputs: ClassVar[Literal["scores", "vectors", "boxes"]] = "scores"
    schema_type: ClassVar[type[Any]] = ImageSchema

    data: LongTailImages = LongTailImages()
    model: ImageModelOptions = ImageModelOptions()
    augmentation: Augmentation = "none"
    loss: LossChoice = LossChoice.of("soprc")
    batches: LongTailBatches = LongTailBatches()
    metrics: Names = ("ap", "auroc")

    @field_validator("model")
    @classmethod
    def _no_mixup(cls, model: ImageModelOptions) -> ImageModelOptions:
        if model.mixup:
            raise ValueError("expected no mixup in long-tailed classification, got true")
        return model

    def files(self) -> Iterator[Path]:
        yield from self.data.files()
        yield from self.model.files()

    def read(self, sources: Sources) -> tuple[ImageSchema, Split[ImagePart]]:
        schema, split = read_image_parts(self.data, sources, unknown_classes="error")
        if self.data.imbalance is None:
            return schema, split
        train = imbalanced(split.train, self.data.imbalance, seed=self.data.imbalance_seed)
        return schema, replace(split, train=train)

    def read_with(self, schema: ImageSchema, sources: Sources) -> Split[ImagePart]:
        return read_named_parts(schema, self.data.sources(sources))

    def cut(self, split: Split[ImagePart], seed: int) -> Split[ImagePart]:
        return cut_shares(self.data, split, lambda part, shares: cut_images(part, shares, seed=seed))

    def build_model(self, schema: ImageSchema) -> nn.Module:
        classes = len(schema.classes)
        model = self.model.build(schema, classes, normalise=False)
        model.register_buffer(COUNTS, torch.zeros(classes, dtype=torch.int64))
        return model

    def fit_model(self, model: nn.Module, train: ImagePart) -> None:
        self.model.load_start(model)
        counts = model.get_buffer(COUNTS)
        counts.copy_(_one_column_each(train.labels, len(counts)).sum(0))

    def build_loss(self, schema: ImageSchema, train: ImagePart, *, steps: int) -> nn.Module:
        if not self.loss.takes("lists"):
            raise ValueError(f"loss: expected a loss over lists, got {self.loss.name!r}")
        classes = len(schema.classes)
        loss: nn.Module = self.loss.create(
            data_prior=lambda: data_prior(_one_column_each(train.labels, classes)), lists="columns"
        )
        return loss

    def train_loader(self, train: ImagePart, seed: int) -> DataLoader[Batch]:
        sampler: SeededBatchSampler
        if self.batches.samples_per_class is None:
            sampler = ShuffledBatchSampler(train.rows, batch_size=self._size(train), drop_last=True, seed=seed)
        else:
            if train.several:
                raise ValueError("batches.samples_per_class: expected none with images of several classes; give a size")
            classes, each = len(train.labels.unique()), self.batches.samples_per_class
            sampler = ClassBatchSampler(train.labels, classes=classes, samples_per_class=each, seed=seed)
        return image_batches(train, sampler, view=self.augmentation, seed=seed, workers=self.data.workers)

    def training_step(
        self, model: nn.Module, loss: nn.Module, batch: Batch, *, previous: Outputs | None = None
    ) -> Tensor:
        before = None if previous is None else previous(batch.features)
        scores = model(batch.features)
        value: Tensor = loss(scores, _one_column_each(batch.labels, scores.shape[1]), previous_scores=before)
        return value

    def predict(self, model: nn.Module, part: ImagePart) -> Tensor:
        """Return the logits (N, C) of the images of a part."""
        return predict_images(model, part, workers=self.data.workers)

    def evaluate(self, model: nn.Module, part: ImagePart, *, bootstrap: int = 0) -> Evaluation:
        """Return the metrics per class and their means; `inspect` adds the means over groups of classes, and beside
        `auroc` the AUC of all pairs of classes."""
        return self._by_class(self.predict(model, part), part, bootstrap)

    def inspect(
        self, model: nn.Module, part: ImagePart, *, bootstrap: int = 0, calibration: Mapping[str, Any] | None = None
    ) -> Inspection:
        scores = self.predict(model, part)

        def look(classes: Tensor) -> SeenLists:
            return SeenLists(scores.T[classes], _one_column_each(part.labels, scores.shape[1]).T[classes])

        result = _with_groups(self._by_class(scores, part, bootstrap), class_groups(model.get_buffer(COUNTS)))
        return Inspection(
            _with_multiclass_auc(result, scores, part.labels)
            if "auroc" in self.measured and part.labels.ndim == 1
            else result,
            "class",
            "image",
            "precision",
            look,
            list_name=lambda number: part.classes[number],
            item_name=lambda _, image: part.name(image),
            item_picture=lambda _, image: part.picture(image),
        )

    def calibrate(self, model: nn.Module, validation: ImagePart) -> dict[str, Any]:
        """Return the sigmoid, one for all classes, that turns scores into probabilities."""
        scores = self.predict(model, validation)
        return {
            "sigmoid": fit_sigmoid(scores.flatten(), _one_column_each(validation.labels, scores.shape[1]).flatten())
        }

    def probe_batch(self, train: ImagePart) -> Batch:
        """Return as many images as a batch holds: they fit into memory."""
        each = self.batches.samples_per_class
        if train.several:
            return train.__getitems__(spread_over(len(train), self._size(train)).tolist())
        return probe_classes(train, self._size(train) if each is None else each * len(train.classes))

    def _size(self, train: ImagePart) -> int:
        return batch_size("batches.size", self.batches.size, 128, len(train), "images to train on")

    def _by_class(self, scores: Tensor, part: ImagePart, bootstrap: int) -> Evaluation:
        labels = _one_column_each(part.labels, scores.shape[1])
        return evaluate(scores, labels, self.measured, lists="columns", bootstrap=bootstrap)


def _one_column_each(labels: Tensor, classes: int) -> Tensor:
    """Return classes (N,), or several of each image (N, C), as (N, C) of 0 and 1."""
    return labels if labels.ndim == 2 else functional.one_hot(labels, classes)


def class_groups(counts: Tensor) -> dict[str, Tensor]:
    """Return the classes of "head", "medium" and "tail": sorted by their training images (C,) and cut into thirds.

    Example:
        >>> class_groups(torch.tensor([5, 50, 500]))
        {'head': tensor([2]), 'medium': tensor([1]), 'tail': tensor([0])}
    """
    order = torch.argsort(counts.cpu(), descending=True, stable=True)
    outer = max(1, len(counts) // 3)
    ends = (outer, max(outer, len(counts) - outer))
    pieces = dict(zip(GROUPS, order.tensor_split(ends), strict=True))
    return {name: classes for name, classes in pieces.items() if len(classes)}


def _with_groups(result: Evaluation, groups: Mapping[str, Tensor]) -> Evaluation:
    """Return the evaluation with the means over the classes of each group."""
    means, skipped, definitions = dict(result.means), dict(result.skipped), dict(result.definitions)
    for metric, values in result.per_query.items():
        for group, classes in groups.items():
            name, some = f"{metric} {group}", values[classes]
            means[name] = float(some.nanmean())
            skipped[name] = int(some.isnan().sum())
            definitions[name] = f"{result.definitions[metric]}; over the {len(classes)} classes of the {group}"
    return replace(result, means=means, skipped=skipped, definitions=definitions)


def _with_multiclass_auc(result: Evaluation, scores: Tensor, labels: Tensor) -> Evaluation:
    """Return the evaluation with the AUC of all pairs of classes, which has no value per class."""
    name = "multi-class auroc"
    return replace(
        result,
        means={**result.means, name: float(multiclass_auc(scores, labels))},
        skipped={**result.skipped, name: 0},
        definitions={**result.definitions, name: MULTICLASS_AUC},
    )
