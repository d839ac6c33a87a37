"""Recipes for search ranking: rank the documents of each query by relevance."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from rankwise.data import Part, Split, cut_by_query, read_letor, read_table
from rankwise.data.reading import is_letor
from rankwise.data.splits import same_width
from rankwise.losses import LOSSES
from rankwise.recipes.schema import Count, FileOrShare, LossChoice, Names, Recipe, Strict, usual
from rankwise.recipes.tabular import MLPChoice
from rankwise.tasks import LTRTask

__all__ = ["LTRRecipe", "QueryData", "read_query_split"]


class QueryData(Strict):
    """LETOR files (`grade qid:7 1:0.5 ...`, plain, .gz or .xz), or tables with a `label` and a `query` column.

    `validation` and `test` are files too, or shares of the queries of `train`. `cache` is a folder in which to keep
    what was read, so that reading it again takes seconds.
    """

    train: Path
    validation: FileOrShare = 0.2
    test: FileOrShare = 0.2
    label: str | int = -1
    query: str | None = None
    features: Count | None = None
    drop: tuple[str, ...] = ()
    missing: Literal["error", "median"] = "error"
    cache: Path | None = None

    def read(self, path: Path) -> Part:
        if is_letor(path):
            part = read_letor(path, features=self.features, cache=self.cache)
        else:
            table = read_table(path, label=self.label, query=self.query, drop=self.drop, missing=self.missing)
            part = table.part
        if part.query_ids is None:
            raise ValueError(f"{path}: expected the query of every row (qid:, or a column data.query), got none")
        return part


class RankerChoice(MLPChoice):
    """The word "mlp" scores every row by itself, "context-aware" is a transformer over the rows of a list.

    `dropout` is before the last layer of the "mlp".
    """

    name: Literal["mlp", "context-aware"] = "mlp"
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0


class QueryBatches(Strict):
    """So many `queries` in a batch (32, or all if there are fewer), with all their rows, or with so many `relevant` and
    `irrelevant` ones of each. Queries without a relevant row are left out."""

    queries: Count | None = None
    relevant: Count | None = None
    irrelevant: Count | None = None


class WarmUp(Strict):
    """Start with another `loss` for so many `steps`; `reset_last_layer` draws the last layer anew after them."""

    loss: str = "listwise-cross-entropy"
    steps: Count
    reset_last_layer: bool = False


class LTRRecipe(Recipe):
    summary: ClassVar[str] = "documents of queries, graded: rank the relevant ones first"

    task: Literal["ltr"] = "ltr"
    data: QueryData
    model: RankerChoice = RankerChoice()
    loss: LossChoice = LossChoice.of("song")
    warm_up: WarmUp | None = None
    batches: QueryBatches = QueryBatches()
    metrics: Names = ("ndcg@10", "ndcg@5", "map")

    @model_validator(mode="after")
    def _fits_together(self) -> LTRRecipe:
        if self.model.name == "context-aware" and self.gradient.rows_at_once is not None:
            raise ValueError("expected no gradient.rows_at_once with a model that looks at whole lists")
        if self.warm_up is not None:
            LossChoice.of(self.warm_up.loss)
            if self.budget.steps is not None and self.warm_up.steps >= self.budget.steps:
                raise ValueError(f"expected a warm_up shorter than the {self.budget.steps} steps of the budget")
        return self

    def build_task(self, seed: int) -> LTRTask:
        split = read_query_split(self.data, seed)
        rows = split.train
        assert rows.query_ids is not None
        available = len(rows.query_ids[rows.labels > 0].unique())
        if not available:
            raise ValueError("data: expected queries with a relevant row (a grade above 0) in the train part, got none")
        if LOSSES.get(self.loss.name).labels == "binary" and bool((rows.labels > 1).any()):
            top = rows.labels.max().item()
            raise ValueError(f"loss: expected one for grades, as they go up to {top:g}; {self.loss.name} takes 0 and 1")
        return LTRTask(
            split,
            loss=self.loss.name,
            loss_options=self.loss.all_options,
            model=self.model.name,
            hidden=self.model.hidden,
            dropout=self.model.dropout,
            scaling=self.model.scaling,
            queries=usual("batches.queries", self.batches.queries, 32, available, "queries to train on"),
            relevant=self.batches.relevant,
            irrelevant=self.batches.irrelevant,
            warm_up=None if self.warm_up is None else self.warm_up.loss,
            warm_up_steps=0 if self.warm_up is None else self.warm_up.steps,
            reset_last_layer=self.warm_up is not None and self.warm_up.reset_last_layer,
            metrics=self.metrics,
        )

    def for_scoring(self, path: Path, features: int) -> LTRRecipe:
        changed = {"train": path, "validation": path, "test": path, "features": features}
        return self.model_copy(update={"data": self.data.model_copy(update=changed)})


def read_query_split(data: QueryData, seed: int) -> Split:
    """The three parts; shares are cut from the queries of `train`, whole ones."""
    train = data.read(data.train)
    files = {"validation": data.validation, "test": data.test}
    given = {name: data.read(path) for name, path in files.items() if isinstance(path, Path)}
    shares = [0.0 if isinstance(value, Path) else value for value in files.values()]
    if sum(shares) >= 1:
        raise ValueError(f"data: expected shares for validation and test of less than 1 in all, got {sum(shares):g}")
    if sum(shares) == 0:
        return Split(*same_width([train, given["validation"], given["test"]]))
    cut = cut_by_query(train, shares=(1 - sum(shares), *shares), seed=seed)
    return Split(*same_width([cut.train, given.get("validation", cut.validation), given.get("test", cut.test)]))
