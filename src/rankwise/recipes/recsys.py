"""Recipes for recommendation: rank all items for each user."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from rankwise.data import (
    Interactions,
    InteractionSplit,
    active_users,
    hold_out,
    leave_one_out,
    number_together,
    read_interaction_lists,
    read_interactions,
    read_movielens,
    read_netflix,
)
from rankwise.data.netflix import is_netflix
from rankwise.losses import LOSSES
from rankwise.recipes.schema import Count, LossChoice, Names, Recipe, Share, Strict
from rankwise.tasks import RecsysTask

__all__ = ["RecsysRecipe"]

TABLES = (".csv", ".tsv", ".parquet")


class InteractionData(Strict):
    """What users chose: a MovieLens or Netflix Prize folder, a table (CSV, TSV, Parquet) with a row per pair, or a text
    file with a line `user item item ...` per user.

    Either `test` is another such file, and `validation` a share of each user's pairs of `train`; or `leave_one_out`
    says by what ("time" or "random") each user's last pair is taken for the test and the one before for validation.
    `user`, `item` and `time` are columns of a table, by name or position. Users with fewer than `least` pairs in
    `train` are left out.
    """

    train: Path
    test: Path | None = None
    validation: Share | None = None
    leave_one_out: Literal["time", "random"] | None = None
    user: str | int = 0
    item: str | int = 1
    time: str | int | None = None
    least: Count = 1

    @model_validator(mode="after")
    def _one_way_to_cut(self) -> InteractionData:
        if (self.test is None) == (self.leave_one_out is None):
            raise ValueError("expected a file to test on, or leave_one_out: time or random, one of the two")
        if self.leave_one_out is not None and self.validation is not None:
            raise ValueError("expected no share for validation with leave_one_out, which takes one pair of each user")
        return self

    def read(self, seed: int) -> InteractionSplit:
        if self.test is None:
            assert self.leave_one_out is not None
            return leave_one_out(active_users(self._read(self.train), self.least), by=self.leave_one_out, seed=seed)
        train, test = number_together([active_users(self._read(self.train), self.least), self._read(self.test)])
        return InteractionSplit(*hold_out(train, share=self.validation or 0.1, seed=seed), test)

    def _read(self, path: Path) -> Interactions:
        if path.is_dir():
            return read_netflix(path) if is_netflix(path) else read_movielens(path)
        if _is_lists(path):
            return read_interaction_lists([path])[0]
        return read_interactions(path, user=self.user, item=self.item, time=self.time)


class RecommenderChoice(Strict):
    """ "item-item" scores by a user's other items, "matrix-factorisation" and "neumf" by a vector per user.

    `dimensions` is the length of the vectors, for "item-item" the rank. `input_dropout` and `ease` (the regularisation
    of an EASE that is corrected instead of starting from nothing) are for "item-item" only, `hidden` (the layers of the
    network) for "neumf" only.
    """

    name: Literal["item-item", "matrix-factorisation", "neumf"] = "item-item"
    dimensions: Count = 64
    input_dropout: Annotated[float, Field(ge=0, lt=1)] | None = None
    ease: Annotated[float, Field(gt=0)] | None = None
    hidden: Annotated[tuple[Count, ...], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _options_of_the_model(self) -> RecommenderChoice:
        for option, owner in (("input_dropout", "item-item"), ("ease", "item-item"), ("hidden", "neumf")):
            if getattr(self, option) is not None and self.name != owner:
                raise ValueError(f"{option} is an option of {owner}, got it with {self.name}")
        return self


class UserListBatches(Strict):
    """So many `users` in a batch, with all items, or with so many `relevant` and `irrelevant` ones of each."""

    users: Count = 128
    relevant: Count | None = None
    irrelevant: Count | None = None

    @model_validator(mode="after")
    def _both_or_none(self) -> UserListBatches:
        if (self.relevant is None) != (self.irrelevant is None):
            raise ValueError("expected relevant and irrelevant together, or neither")
        return self


class LossWarmUp(Strict):
    """Start with another `loss` for so many `steps`."""

    loss: str = "listwise-cross-entropy"
    steps: Count

    @field_validator("loss")
    @classmethod
    def _known(cls, loss: str) -> str:
        LOSSES.get(loss)
        return loss


class RecsysRecipe(Recipe):
    summary: ClassVar[str] = "what users chose: rank all other items for each user"

    task: Literal["recsys"] = "recsys"
    data: InteractionData
    model: RecommenderChoice = RecommenderChoice()
    loss: LossChoice = LossChoice.of("song", discount_shift=30)
    warm_up: LossWarmUp | None = None
    batches: UserListBatches = UserListBatches()
    metrics: Names = ("ndcg@20", "ndcg@10", "recall@20", "hit@10", "map")

    @model_validator(mode="after")
    def _fits(self) -> RecsysRecipe:
        if self.model.name == "item-item" and self.batches.relevant is not None:
            raise ValueError("item-item scores all items at once: expected no batches.relevant and no irrelevant")
        if self.warm_up is not None and self.budget.steps is not None and self.warm_up.steps >= self.budget.steps:
            raise ValueError(f"expected a warm_up shorter than the {self.budget.steps} steps of the budget")
        return self

    def build_task(self, seed: int) -> RecsysTask:
        return RecsysTask(
            self.data.read(seed),
            loss=self.loss.name,
            loss_options=self.loss.all_options,
            model=self.model.name,
            dimensions=self.model.dimensions,
            hidden=(128, 64, 32) if self.model.hidden is None else self.model.hidden,
            input_dropout=0.5 if self.model.input_dropout is None else self.model.input_dropout,
            ease=self.model.ease,
            users=self.batches.users,
            relevant=self.batches.relevant,
            irrelevant=self.batches.irrelevant,
            warm_up=None if self.warm_up is None else self.warm_up.loss,
            warm_up_steps=0 if self.warm_up is None else self.warm_up.steps,
            metrics=self.metrics,
        )

    def for_scoring(self, path: Path, features: int) -> RecsysRecipe:
        """Histories come from the training data, so those are still needed; `path` is what to find."""
        if self.data.test is None:
            raise ValueError("data: expected a run with a file to test on; one cut by leave_one_out has its own test")
        return self.model_copy(update={"data": self.data.model_copy(update={"test": path})})


def _is_lists(path: Path) -> bool:
    name = path.name.removesuffix(".gz").removesuffix(".xz")
    return not path.is_dir() and Path(name).suffix.lower() not in TABLES
