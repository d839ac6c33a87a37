"""Recipes for lists of which the first k are shown: each user's liked items above the best of the others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from rankwise.recipes.ltr import QueryData, read_query_split
from rankwise.recipes.schema import Count, LossChoice, Recipe, Strict
from rankwise.recipes.tabular import MLPChoice
from rankwise.tasks import PApTask

__all__ = ["PApRecipe"]


class UserBatches(Strict):
    """So many `users` in a batch, with all their items, or with so many `items` of each."""

    users: Count = 64
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
        return PApTask(
            read_query_split(self.data, seed),
            loss=self.loss.name,
            loss_options=self.loss.all_options,
            k=self.k,
            hidden=self.model.hidden,
            scaling=self.model.scaling,
            users=self.batches.users,
            items=self.batches.items,
            metrics=self.metrics,
        )

    def for_scoring(self, path: Path, features: int) -> PApRecipe:
        changed = {"train": path, "validation": path, "test": path, "features": features}
        return self.model_copy(update={"data": self.data.model_copy(update=changed)})
