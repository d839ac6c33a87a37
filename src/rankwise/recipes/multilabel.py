"""Recipes for many labels per example: rank the labels of each example, or the examples of each label."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator

from rankwise.data import MultiLabel, MultiLabelSplit, cut_multilabel, read_arff, read_extreme
from rankwise.recipes.schema import Batches, Count, FileOrShare, LossChoice, Names, Recipe, Strict, usual
from rankwise.tasks import MultilabelTask

__all__ = ["MultilabelRecipe"]


class MultiLabelData(Strict):
    """ARFF files (Mulan, MEKA), or text files of the extreme classification repository.

    `validation` and `test` are files too, or shares of the examples of `train`.
    """

    train: Path
    validation: FileOrShare = 0.2
    test: FileOrShare = 0.2

    def read(self, seed: int) -> MultiLabelSplit:
        train = _read(self.train)
        files = {"validation": self.validation, "test": self.test}
        parts = {name: _read(path) for name, path in files.items() if isinstance(path, Path)}
        shares = {name: share for name, share in files.items() if isinstance(share, float)}
        if sum(shares.values()) >= 1:
            total = sum(shares.values())
            raise ValueError(f"data: expected shares for validation and test of less than 1 in all, got {total:g}")
        if shares:
            cut = cut_multilabel(train, shares=(1 - sum(shares.values()), *shares.values()), seed=seed)
            train, parts = cut[0], {**parts, **dict(zip(shares, cut[1:], strict=True))}
        return MultiLabelSplit(train, parts["validation"], parts["test"])


class BagOfWordsChoice(Strict):
    """Vectors of words added up, then further layers; no `hidden` layer makes it linear."""

    hidden: tuple[Count, ...] = (512,)
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.5


class MultilabelRecipe(Recipe):
    summary: ClassVar[str] = "examples with many labels: rank labels, or examples"

    task: Literal["multilabel"] = "multilabel"
    data: MultiLabelData
    lists: Literal["rows", "columns"] = "rows"
    model: BagOfWordsChoice = BagOfWordsChoice()
    loss: LossChoice = LossChoice.of("song")
    batches: Batches = Batches()
    metrics: Names = ("ndcg@3", "ndcg@5", "precision@1", "precision@3")

    @field_validator("loss")
    @classmethod
    def _no_option_of_the_task(cls, loss: LossChoice) -> LossChoice:
        if "lists" in loss.options:
            raise ValueError("expected `lists` beside the loss, not among its options")
        if loss.options.get("prior") == "data":
            raise ValueError("expected a number or a schedule for the prior of a multi-label loss, got data")
        return loss

    def build_task(self, seed: int) -> MultilabelTask:
        split = self.data.read(seed)
        return MultilabelTask(
            split,
            loss=self.loss.name,
            loss_options=self.loss.all_options,
            lists=self.lists,
            hidden=self.model.hidden,
            dropout=self.model.dropout,
            batch_size=usual("batches.size", self.batches.size, 64, len(split.train), "rows to train on"),
            metrics=self.metrics,
        )

    def for_scoring(self, path: Path, features: int) -> MultilabelRecipe:
        data = self.data.model_copy(update={"train": path, "validation": path, "test": path})
        return self.model_copy(update={"data": data})


def _read(path: Path) -> MultiLabel:
    arff = Path(path.name.removesuffix(".gz").removesuffix(".xz")).suffix.lower() == ".arff"
    return read_arff(path) if arff else read_extreme(path)
