"""Recipes for retrieval from rows of numbers: rows of a class should be each other's neighbours."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator

from rankwise.recipes.schema import Count, LossChoice, Names, Recipe, Strict, usual
from rankwise.recipes.tabular import MLPChoice, TableData, read_split
from rankwise.tasks import RetrievalTask

__all__ = ["ClassBatches", "RetrievalRecipe", "prior_is_a_number"]


class EmbedderChoice(MLPChoice):
    """A fully connected network from rows to vectors of so many `dimensions`."""

    dimensions: Count = 64


class ClassBatches(Strict):
    """So many `classes` in a batch (16, of images 28, or all if there are fewer), and so many rows of each."""

    classes: Count | None = None
    samples_per_class: Annotated[int, Field(ge=2)] = 4


def prior_is_a_number(loss: LossChoice) -> LossChoice:
    """A check of losses over embeddings: there is no one list whose labels would give it."""
    if loss.options.get("prior") == "data":
        raise ValueError("expected a number or a schedule for the prior of a retrieval loss, got data")
    return loss


class RetrievalRecipe(Recipe):
    summary: ClassVar[str] = "rows of a table with classes: rows of a class become neighbours"

    task: Literal["retrieval"] = "retrieval"
    data: TableData
    model: EmbedderChoice = EmbedderChoice()
    loss: LossChoice = LossChoice.of("soprc", recall_floor=1 / 3)
    batches: ClassBatches = ClassBatches()
    metrics: Names = ("map", "recall@1")

    _prior = field_validator("loss")(prior_is_a_number)

    def build_task(self, seed: int) -> RetrievalTask:
        split = read_split(self.data, seed)
        available = len(split.train.labels.unique())
        return RetrievalTask(
            split,
            loss=self.loss.name,
            loss_options=self.loss.all_options,
            hidden=self.model.hidden,
            scaling=self.model.scaling,
            dimensions=self.model.dimensions,
            classes=usual("batches.classes", self.batches.classes, 16, available, "classes to train on"),
            samples_per_class=self.batches.samples_per_class,
            metrics=self.metrics,
        )

    def for_scoring(self, path: Path, features: int) -> RetrievalRecipe:
        data = self.data.model_copy(update={"train": path, "validation": path, "test": path})
        return self.model_copy(update={"data": data})
