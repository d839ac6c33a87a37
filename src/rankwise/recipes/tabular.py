"""Recipes for tables: rank the positive rows first."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal

from rankwise.data import Part, Split, Table, cut_stratified, read_table
from rankwise.losses import data_prior
from rankwise.recipes.schema import Batches, Count, FileOrShare, LossChoice, Names, Recipe, Strict, usual
from rankwise.tasks import TabularTask

__all__ = ["MLPChoice", "TableData", "TabularRecipe", "read_split"]


class TableData(Strict):
    """CSV, TSV, Parquet or npz files. `validation` and `test` are files too, or shares of the rows of `train`."""

    train: Path
    validation: FileOrShare = 0.2
    test: FileOrShare = 0.2
    label: str | int = -1
    positive: str | None = None
    features: tuple[str, ...] | None = None
    drop: tuple[str, ...] = ()
    missing: Literal["error", "median"] = "error"
    header: Literal["auto", "yes", "no"] = "auto"

    def read(self, path: Path, like: Table | None = None) -> Table:
        return read_table(
            path,
            label=self.label,
            positive=self.positive,
            features=self.features,
            drop=self.drop,
            missing=self.missing,
            header=self.header,
            like=like,
        )


class MLPChoice(Strict):
    """A fully connected network; no hidden layer makes it linear. The features are brought to a common scale first."""

    hidden: tuple[Count, ...] = (64, 64)
    scaling: Literal["standard", "log", "none"] = "standard"


class TabularBatches(Batches):
    """Batches of `size` rows (256, or all if there are fewer), with so many `positives`; left out, they are random."""

    positives: Count | None = None


class TabularRecipe(Recipe):
    summary: ClassVar[str] = "rows of a table, labels 0 or 1: rank the positive rows first"

    task: Literal["tabular"] = "tabular"
    data: TableData
    model: MLPChoice = MLPChoice()
    loss: LossChoice = LossChoice.of("soprc")
    batches: TabularBatches = TabularBatches()
    metrics: Names = ("ap", "auroc")

    def settled(self) -> TabularRecipe:
        classes = self.data.read(self.data.train).classes
        if classes is None or self.data.positive is not None:
            return self
        return self.model_copy(update={"data": self.data.model_copy(update={"positive": classes[1]})})

    def build_task(self, seed: int) -> TabularTask:
        split = read_split(self.data, seed)
        _check_both_kinds(split)
        size = usual("batches.size", self.batches.size, 256, len(split.train), "rows to train on")
        if self.batches.positives is not None and self.batches.positives >= size:
            raise ValueError(f"batches.positives: expected fewer than the {size} rows, got {self.batches.positives}")
        return TabularTask(
            split,
            loss=self.loss.name,
            loss_options=with_data_prior(self.loss, split.train),
            hidden=self.model.hidden,
            scaling=self.model.scaling,
            batch_size=size,
            positives=self.batches.positives,
            metrics=self.metrics,
        )

    def for_scoring(self, path: Path, features: int) -> TabularRecipe:
        data = self.data.model_copy(update={"train": path, "validation": path, "test": path})
        return self.model_copy(update={"data": data})


def read_split(data: TableData, seed: int) -> Split:
    """The three parts; shares are cut from the rows of `train`, the same share of each class."""
    table = data.read(data.train)
    given = {
        name: data.read(path, like=table).part
        for name, path in (("validation", data.validation), ("test", data.test))
        if isinstance(path, Path)
    }
    shares = [0.0 if isinstance(value, Path) else value for value in (data.validation, data.test)]
    if sum(shares) >= 1:
        raise ValueError(f"data: expected shares for validation and test of less than 1 in all, got {sum(shares):g}")
    if sum(shares) == 0:
        return Split(table.part, given["validation"], given["test"])
    cut = cut_stratified(table.part, shares=(1 - sum(shares), *shares), seed=seed)
    return Split(cut.train, given.get("validation", cut.validation), given.get("test", cut.test))


def with_data_prior(loss: LossChoice, train: Part) -> dict[str, Any]:
    """The options of a loss, with `prior: data` as the number it stands for."""
    options = loss.all_options
    return {**options, "prior": data_prior(train.labels)} if options.get("prior") == "data" else options


def _check_both_kinds(split: Split) -> None:
    for name in ("train", "validation", "test"):
        labels = split.part(name).labels
        positives = int((labels == 1).sum())
        if positives in (0, len(labels)):
            of = f"{positives} positive of {len(labels)}"
            raise ValueError(f"data: expected positive and negative rows in the {name} part, got {of}")
