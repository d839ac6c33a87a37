"""Targets in lists: the rows of each query are ranked among themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from rankwise.data import Batch, Part, Split, TableSchema, cut_by_query, cut_within_queries, read_table
from rankwise.problems.inspection import spread_over
from rankwise.problems.problem import DataOptions, Sources
from rankwise.training.options import Count

__all__ = ["QueryOptions", "cut_lists", "list_ids", "probe_lists", "read_lists"]

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


def cut_lists(data: QueryOptions, split: Split[Part], seed: int, *, by_row: bool = False) -> Split[Part]:
    """Cut the missing parts from the training queries: whole ones, or some rows of each."""
    shares = data.shares(split)
    if not shares:
        return split
    both = [shares.get(name, 0.0) for name in ("validation", "test")]
    cut_by = cut_within_queries if by_row else cut_by_query
    cut = cut_by(split.train, shares=(1 - sum(both), *both), seed=seed)
    return Split(cut.train, split.validation or cut.validation, split.test or cut.test)


def list_ids(part: Part) -> Tensor:
    """Return the query of each row (N,); raise an error if the rows have none."""
    if part.query_ids is None:
        raise ValueError("data: expected query_ids, the list each row belongs to, got a part without")
    return part.query_ids


def probe_lists(part: Part) -> Batch:
    """Return complete lists, evenly spread, of about 4,096 rows in all."""
    query_ids = list_ids(part)
    ids, counts = query_ids.unique(return_counts=True)
    wanted = max(1, PROBED_ROWS // max(1, int(counts.double().mean())))
    rows = torch.isin(query_ids, ids[spread_over(len(ids), wanted)]).nonzero().squeeze(1)
    return part.__getitems__(rows.tolist())
