"""Recipes for lists of which the first k are shown: each user's liked items above the best of the others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from rankwise.recipes.ltr import QueryData, read_query_split
from rankwise.recipes.schema import Count, LossChoice, Recipe, Strict, usual
from rankwise.recipes.tabular import MLPChoice
from rankwise.tasks import PApTask

__all__ = ["PApRecipe"]


class UserBatches(Strict):
    """So many `users` in a batch (64, or all if there are fewer), with all or with so many `items` of each."""

    users: Count | None = None
    items: Annotated[int, Field(ge=2)] | None = None


class PApRecipe(Recipe):
    summary: ClassVar[str] = "items of users, liked or not: the liked ones among the first k"

    task: Literal["pap"] = "pap"
    k: Count = 8
    data: QueryData
    model: MLPChoice = MLPChoice(hidden=())
    loss: LossChoice = LossChoice.of("pap")
    batches: UserBatches = UserBatches()
    metrics: tuple[str, ...] = ()

    @property
    def measured(self) -> tuple[str, ...]:
        return (f"pap@{self.k}", *self.metrics)

    def build_task(self, seed: int) -> PApTask:
        split = read_query_split(self.data, seed)
        assert split.train.query_ids is not None
        available = len(split.train.query_ids.unique())
        return PApTask(
            split,
            loss=self.loss.name,
            loss_options=self.loss.all_options,
            k=self.k,
            hidden=self.model.hidden,
            scaling=self.model.scaling,
            users=usual("batches.users", self.batches.users, 64, available, "users to train on"),
            items=self.batches.items,
            metrics=self.metrics,
        )

    def for_scoring(self, path: Path, features: int) -> PApRecipe:
        changed = {"train": path, "validation": path, "test": path, "features": features}
        return self.model_copy(update={"data": self.data.model_copy(update=changed)})
