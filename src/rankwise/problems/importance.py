"""Permutation importance: how much of a metric is lost when the values of one column are shuffled among the rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from rankwise.checks import check_count
from rankwise.data import Part, TableSchema
from rankwise.metrics import evaluate_grades
from rankwise.metrics.names import create_metric
from rankwise.models.trees import Trees
from rankwise.problems.inspection import spread_over
from rankwise.problems.problem import Problem

__all__ = ["REPEATS", "Importance", "has_importance", "measure_importance", "quick_importance"]

REPEATS = 5
# Numbers that a model takes in all, over columns, shuffles, rows and inputs: about ten seconds.
NUMBERS = 200_000_000
# So many nodes of trees are looked up in the time of one number.
LOOK_UPS = 14
# Rows to look at, within these numbers: fewer say too little, more add nothing that can be seen.
FEWEST, MOST = 500, 20_000


@dataclass(frozen=True)
class Importance:
    """The drop of a metric when one column is shuffled, for each column of a table.

    Attributes:
        metric: its name; value: of the rows as they are.
        columns: names, those with the largest mean drop first.
        drops: (columns, repeats) the value minus that of the rows with the column shuffled; below 0 if shuffling
            helped.
        rows: number of rows that were looked at; available: of rows in the data.
    """

    metric: str
    value: float
    columns: tuple[str, ...]
    drops: Tensor
    rows: int
    available: int

    @property
    def means(self) -> Tensor:
        """Return the mean drop (columns,)."""
        return self.drops.mean(1)

    @property
    def definition(self) -> str:
        """Return in one sentence what was measured."""
        some = "" if self.rows == self.available else f" (of {self.available:,}, evenly spread)"
        return (
            f"Drop of {self.metric} from {self.value:.4f} when the values of one column are shuffled among the "
            f"{self.rows:,} rows{some}: mean, smallest and largest of {self.drops.shape[1]} shuffles, with the trained "
            "model as it is."
        )

    def table(self) -> dict[str, list[Any]]:
        """Return the columns of a file: column, importance (the mean drop), smallest, largest."""
        return {
            "column": list(self.columns),
            "importance": self.means.tolist(),
            "smallest": self.drops.amin(1).tolist(),
            "largest": self.drops.amax(1).tolist(),
        }


def has_importance(problem: Problem[Any, Any], schema: object) -> bool:
    """Return whether importance is defined: for problems that score the rows of a table."""
    return isinstance(schema, TableSchema) and problem.outputs == "scores"


def quick_importance(problem: Problem[Any, Any], model: nn.Module, schema: Any, part: Any) -> Importance | None:
    """Return the importance of the columns if it is defined and takes seconds: up to about 280 columns (130 with
    trees), or few rows."""
    if not has_importance(problem, schema) or _rows_to_look_at(schema, model, REPEATS) < min(FEWEST, len(part)):
        return None
    return measure_importance(problem, model, schema, part)


def measure_importance(
    problem: Problem[Any, Any],
    model: nn.Module,
    schema: TableSchema,
    part: Part,
    *,
    metric: str | None = None,
    repeats: int = REPEATS,
) -> Importance:
    """Return the permutation importance of each column of a table.

    The inputs that a column becomes (the values of a category, the mark of missing cells) are shuffled together, among
    all rows, so that the column keeps its values but tells nothing about a row or its list. Columns that say the same
    share their importance: each alone seems to matter less, as the others still tell it. Of long data some rows are
    looked at, evenly spread, of lists whole ones, so that it takes seconds; the random draws are the same every time.

    Args:
        problem: tabular, search ranking or bipartite.
        model: the trained model.
        schema: of the table.
        part: rows with labels.
        metric: by name; by default that by which choices are made.
        repeats: shuffles of each column.

    Paper: Breiman, Random forests, Machine Learning 2001; Fisher, Rudin and Dominici, All models are wrong, but many
    are useful, JMLR 2019.
    """
    if not has_importance(problem, schema):
        raise ValueError(f"importance: expected a run that scores the rows of a table, got {problem.kind}")
    check_count("repeats", repeats)
    name = create_metric(problem.metric if metric is None else metric).name
    columns = schema.features
    some = _some_rows(part, max(FEWEST, _rows_to_look_at(schema, model, repeats)))
    lists = torch.zeros(len(some), dtype=torch.int64)
    if some.query_ids is not None:
        lists = some.query_ids.unique(return_inverse=True)[1]
    rows = _Rows(problem, model, some.labels, lists, name)
    features = some.features[:]
    value = rows.values(features[None])
    generator = torch.Generator().manual_seed(0)
    drops, first = [], 0
    for column in columns:
        own = slice(first, first + len(schema.encoding.inputs_of(column)))
        copies = features.repeat(repeats, 1, 1)
        for copy in copies:
            copy[:, own] = copy[torch.randperm(len(some), generator=generator), own]
        drops.append(value - rows.values(copies))
        first = own.stop
    together = torch.stack(drops)
    order = together.mean(1).argsort(descending=True, stable=True)
    names = tuple(columns[index] for index in order.tolist())
    return Importance(name, float(value), names, together[order], len(some), len(part))


@dataclass(frozen=True)
class _Rows:
    """Labels and lists of N rows, to evaluate changed features by."""

    problem: Problem[Any, Any]
    model: nn.Module
    labels: Tensor
    lists: Tensor
    metric: str

    def values(self, features: Tensor) -> Tensor:
        """Return the metric of each of R versions of the features (R, N, D), all scored and evaluated at once."""
        versions = len(features)
        count = int(self.lists.max()) + 1
        # Each version has lists of its own.
        ids = (self.lists + count * torch.arange(versions)[:, None]).flatten()
        labels = self.labels.repeat(versions)
        scores = self.problem.predict(self.model, Part(features.flatten(0, 1), labels, ids))
        result = evaluate_grades(scores, labels, [self.metric], query_ids=ids, bootstrap=0)
        return result.per_query[self.metric].view(versions, count).nanmean(1)


def _rows_to_look_at(schema: TableSchema, model: nn.Module, repeats: int) -> int:
    look_ups = sum(module.look_ups for module in model.modules() if isinstance(module, Trees))
    return min(MOST, NUMBERS // (repeats * len(schema.features) * (len(schema.inputs) + look_ups // LOOK_UPS)))


def _some_rows(part: Part, most: int) -> Part:
    """Return at most so many rows, evenly spread; of lists whole ones, at least one."""
    if len(part) <= most:
        return part
    if part.query_ids is None:
        return part.take(spread_over(len(part), most))
    ids, lengths = part.query_ids.unique(return_counts=True)
    wanted = max(1, most // max(1, int(lengths.double().mean())))
    return part.take(torch.isin(part.query_ids, ids[spread_over(len(ids), wanted)]).nonzero().squeeze(1))
