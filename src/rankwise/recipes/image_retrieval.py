"""Recipes for image retrieval: images of a class should be each other's neighbours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from rankwise.data import ImagePart, cut_classes, cut_images, labelled_like
from rankwise.recipes.images import Augmentation, ImageData, ImageModelChoice, read_image_split
from rankwise.recipes.retrieval import ClassBatches, prior_is_a_number
from rankwise.recipes.schema import Count, LossChoice, Names, Recipe, Strict, usual
from rankwise.tasks import ImageRetrievalTask

__all__ = ["ImageRetrievalRecipe"]


class RetrievalImages(ImageData):
    """Shares are of whole classes, `held_out` being "random" ones or the "last" in their order; figures are then for
    classes that were never seen. "images" holds out the same share of the images of every class instead. `gallery`:
    images among which those of `test` are to be found, by default each other; a list may name it as a `split`, too."""

    gallery: Path | None = None
    held_out: Literal["random", "last", "images"] = "random"


class EmbedderChoice(ImageModelChoice):
    """A network from images to vectors of so many `dimensions`."""

    dimensions: Count = 64


class MemoryChoice(Strict):
    """Rank the last `size` vectors of earlier batches as well, after the share `after` of the run."""

    size: Count = 2048
    after: Annotated[float, Field(ge=0, lt=1)] = 0.7


class ImageRetrievalRecipe(Recipe):
    summary: ClassVar[str] = "images with classes: images of a class become neighbours"

    task: Literal["image-retrieval"] = "image-retrieval"
    data: RetrievalImages
    model: EmbedderChoice = EmbedderChoice()
    augmentation: Augmentation = "none"
    loss: LossChoice = LossChoice.of("soprc", recall_floor=1 / 3)
    memory: MemoryChoice | None = None
    batches: ClassBatches = ClassBatches()
    metrics: Names = ("map", "recall@1", "recall@10")

    _prior = field_validator("loss")(prior_is_a_number)

    @model_validator(mode="after")
    def _mixup_needs_whole_batches(self) -> ImageRetrievalRecipe:
        if self.model.mixup and self.gradient.rows_at_once is not None:
            raise ValueError("expected no gradient.rows_at_once with model.mixup, which mixes the images of a batch")
        return self

    def build_task(self, seed: int) -> ImageRetrievalTask:
        held_out = self.data.held_out

        def cut(part: ImagePart, shares: list[float]) -> list[ImagePart]:
            if held_out == "images":
                return cut_images(part, shares, seed=seed)
            return cut_classes(part, shares, seed=seed, held_out=held_out)

        split = read_image_split(self.data, cut)
        if self.data.gallery is not None:
            gallery = ImagePart.of(self.data.read(self.data.gallery), self.data.size)
            split = replace(split, gallery=labelled_like(gallery, split.test.classes))
        available = len(split.train.labels.unique())
        task = ImageRetrievalTask(
            split,
            loss=self.loss.name,
            loss_options=self.loss.all_options,
            model=self.model.make(),
            dimensions=self.model.dimensions,
            augmentation=self.augmentation,
            classes=usual("batches.classes", self.batches.classes, 28, available, "classes to train on"),
            samples_per_class=self.batches.samples_per_class,
            metrics=self.metrics,
            workers=self.data.workers,
        )
        if self.memory is None:
            return task
        steps = self.budget.in_steps(len(task.train_loader(seed)) // self.gradient.accumulate)
        after = round(self.memory.after * steps) * self.gradient.accumulate
        return replace(task, memory=self.memory.size, memory_after=after)

    def for_scoring(self, path: Path, features: int) -> ImageRetrievalRecipe:
        data = self.data.replaced(path).model_copy(update={"gallery": None})
        return self.model_copy(update={"data": data})

    def files(self) -> Iterator[Path]:
        yield from self.data.files()
        if isinstance(self.model.weights, Path):
            yield self.model.weights
