"""Targets in lists: the rows of each query are ranked among themselves, by a score of each row."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from rankwise.data import Batch, Part, Split, TableSchema, cut_by_query, cut_within_queries, read_table
from rankwise.metrics import Evaluation
from rankwise.models import fit_scaling
from rankwise.models.mixing import fit_sigmoid
from rankwise.problems.batches import predict_all
from rankwise.problems.inspection import Inspection, inspect_items, spread_over
from rankwise.problems.problem import DataOptions, Problem, Sources
from rankwise.training.options import Count

__all__ = ["ListProblem", "QueryOptions", "cut_lists", "list_ids", "read_lists", "some_lists"]

# Rows of complete lists on which running estimates are compared with exact values.
PROBED_ROWS = 4096


class QueryOptions(DataOptions):
    """LETOR files (`grade qid:7 1:0.5 ...`, plain, .gz or .xz), or tables with a `label` and a `query` column.

    `validation` and `test` are files too, or shares of the queries of `train`. `features`: names of the columns to use,
    or the number of features of LETOR files, if `train` leaves out the last ones; `drop`, `categories` and `missing` as
    for tables. `cache`: a folder that keeps the arrays of LETOR files; they are mapped
    from there, so that they need no memory of their own and reading them again takes seconds.
    """

    label: str | int = -1
    query: str | None = None
    features: Count | tuple[str, ...] | None = None
    drop: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    missing: Literal["auto", "error", "median"] = "auto"
    header: Literal["auto", "yes", "no"] = "auto"
    cache: Path | None = None


class ListProblem(Problem[TableSchema, Part]):
    """Base of the kinds that score the rows of lists, each called `list_word`; a row is called `item_word`."""

    outputs: ClassVar[Literal["scores", "vectors", "boxes"]] = "scores"
    schema_type: ClassVar[type[Any]] = TableSchema
    list_word: ClassVar[str]
    item_word: ClassVar[str]

    @abstractmethod
    def judge(self, scores: Tensor, part: Part, bootstrap: int) -> Evaluation:
        """Return the metrics of the scores (N,) of the rows of a part."""

    def fit_model(self, model: nn.Module, train: Part) -> None:
        fit_scaling(model, train.features)

    def predict(self, model: nn.Module, part: Part) -> Tensor:
        """Return the scores (N,) of the rows of a part."""
        return predict_all(model, part.features)

    def inspect(
        self, model: nn.Module, part: Part, *, bootstrap: int = 0, calibration: Mapping[str, Any] | None = None
    ) -> Inspection:
        scores = self.predict(model, part)
        return inspect_items(
            self.judge(scores, part, bootstrap),
            scores,
            part.labels,
            part.query_ids,
            list_word=self.list_word,
            item_word=self.item_word,
            curve="position",
            query_names=part.query_names,
            row_name=part.row_name,
        )

    def calibrate(self, model: nn.Module, validation: Part) -> dict[str, Any]:
        """Return the sigmoid that turns scores into probabilities of a positive label."""
        return {"sigmoid": fit_sigmoid(self.predict(model, validation), validation.labels > 0)}

    def probe_batch(self, train: Part) -> Batch:
        """Return complete lists, evenly spread, of about 4,096 rows in all."""
        return train.__getitems__(some_lists(train, PROBED_ROWS).tolist())


def read_lists(data: QueryOptions, sources: Sources) -> tuple[TableSchema, Split[Part]]:
    """Learn the schema from the training source and read the other sources with it; every row needs a query."""
    given = data.sources(sources)
    train, schema = read_table(
        given["train"],
        label=data.label,
        query=data.query,
        features=data.features if isinstance(data.features, tuple) else None,
        drop=data.drop,
        missing=data.missing,
        categories=data.categories,
        header=data.header,
        width=data.features if isinstance(data.features, int) else None,
        cache=data.cache,
    )
    parts: dict[str, Part] = {"train": train}
    parts |= {name: schema.read(given[name], cache=data.cache) for name in ("validation", "test") if name in given}
    for name, part in parts.items():
        if part.query_ids is None:
            source = given[name] if isinstance(given[name], str | Path) else f"data.{name}"
            raise ValueError(f"{source}: expected the query of every row (qid:, or a column data.query), got none")
    return schema, Split(**parts)


def cut_lists(
    data: QueryOptions, split: Split[Part], seed: int, *, by_row: bool = False, keep: str | None = None
) -> Split[Part]:
    """Cut the missing parts from the training queries: whole ones, or some rows of each; those of `keep` stay there."""
    shares = {name: share for name, share in data.shares(split).items() if name != keep}
    if not shares:
        return split
    both = [shares.get(name, 0.0) for name in ("validation", "test")]
    cut_by = cut_within_queries if by_row else cut_by_query
    cut = cut_by(split.train, shares=(1 - sum(both), *both), seed=seed)
    return Split(cut.train, split.validation or cut.validation, split.test or cut.test)


def some_lists(part: Part, most: int) -> Tensor:
    """Return the rows of complete lists, evenly spread, of about so many rows in all."""
    query_ids = list_ids(part)
    ids, counts = query_ids.unique(return_counts=True)
    wanted = max(1, most // max(1, int(counts.double().mean())))
    rows: Tensor = torch.isin(query_ids, ids[spread_over(len(ids), wanted)]).nonzero().squeeze(1)
    return rows


def list_ids(part: Part) -> Tensor:
    """Return the query of each row (N,); raise an error if the rows have none."""
    if part.query_ids is None:
        raise ValueError("data: expected query_ids, the list each row belongs to, got a part without")
    return part.query_ids
