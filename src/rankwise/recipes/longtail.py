"""Recipes for long-tailed classification of images: for every class, its images before all others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator
from torch.nn.functional import one_hot

from rankwise.data import ImagePart, cut_images, imbalanced
from rankwise.losses import data_prior
from rankwise.recipes.images import Augmentation, ImageData, ImageModelChoice, read_image_split
from rankwise.recipes.schema import Batches, Count, LossChoice, Names, Recipe, usual
from rankwise.tasks import LongTailTask

__all__ = ["LongTailRecipe"]


class LongTailImages(ImageData):
    """Shares are of the images of each class. `imbalance` makes a long tail of `train` before shares are cut from it:
    so many images of the first class per image of the last, drawn by `imbalance_seed`. Parts that are data of their own
    stay as they are."""

    imbalance: Annotated[float, Field(ge=1)] | None = None
    imbalance_seed: Annotated[int, Field(ge=0)] = 0


class LongTailBatches(Batches):
    """Batches of `size` images at random (128, or all if there are fewer); or `samples_per_class` of every class."""

    samples_per_class: Count | None = None


class LongTailRecipe(Recipe):
    summary: ClassVar[str] = "images of frequent and rare classes: rank each class's own first"

    task: Literal["longtail"] = "longtail"
    data: LongTailImages
    model: ImageModelChoice = ImageModelChoice()
    augmentation: Augmentation = "none"
    loss: LossChoice = LossChoice.of("soprc")
    batches: LongTailBatches = LongTailBatches()
    metrics: Names = ("ap", "auroc")

    @field_validator("model")
    @classmethod
    def _no_mixup(cls, model: ImageModelChoice) -> ImageModelChoice:
        if model.mixup:
            raise ValueError("expected no mixup in long-tailed classification, got true")
        return model

    def build_task(self, seed: int) -> LongTailTask:
        data = self.data

        def long_tail(part: ImagePart) -> ImagePart:
            return part if data.imbalance is None else imbalanced(part, data.imbalance, seed=data.imbalance_seed)

        split = read_image_split(
            data,
            lambda part, shares: cut_images(part, shares, seed=seed),
            same_classes=True,
            change=long_tail,
        )
        return LongTailTask(
            split,
            loss=self.loss.name,
            loss_options=self._options(split.train),
            model=self.model.make(),
            augmentation=self.augmentation,
            batch_size=usual("batches.size", self.batches.size, 128, len(split.train), "images to train on"),
            samples_per_class=self.batches.samples_per_class,
            metrics=self.metrics,
            workers=data.workers,
        )

    def for_scoring(self, path: Path, features: int) -> LongTailRecipe:
        data = self.data.replaced(path).model_copy(update={"imbalance": None})
        return self.model_copy(update={"data": data})

    def files(self) -> Iterator[Path]:
        yield from self.data.files()
        if isinstance(self.model.weights, Path):
            yield self.model.weights

    def _options(self, train: ImagePart) -> dict[str, Any]:
        """The options of the loss, with `prior: data` as the numbers it stands for."""
        options = self.loss.all_options
        if options.get("prior") != "data":
            return options
        return {**options, "prior": data_prior(one_hot(train.labels, len(train.classes)))}
