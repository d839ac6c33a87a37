"""Predictions of a run: the outputs for the rows of a source, as tensors, tables and files."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from rankwise.extras import require
from rankwise.files import write_whole

__all__ = ["Predictions", "part_columns", "score_columns"]


@dataclass(frozen=True)
class Predictions:
    """Outputs of a model, in the order of the rows of the source.

    Attributes:
        outputs: scores (N,) or (N, C), or vectors (N, d).
        query_ids: (N,) the list of each row, if the source has lists.
        labels: (N,) if the source has labels.
        query_names: names of the lists 0, 1, 2, ... if the source calls them by text.
        row_names, output_names: N and C names, if rows (users) or outputs (items, labels) have any.
    """

    outputs: Tensor
    query_ids: Tensor | None = None
    labels: Tensor | None = None
    query_names: tuple[str, ...] | None = None
    row_names: tuple[str, ...] | None = None
    output_names: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.outputs)

    def columns(self) -> dict[str, list[Any]]:
        """Return the predictions as columns: `row` (the name, or the number from 1), one column per output, `label` and
        `query` if known."""
        columns: dict[str, list[Any]] = {"row": list(self.row_names or range(1, len(self) + 1))}
        if self.outputs.ndim == 1:
            columns |= score_columns(self.outputs, self.labels, self.query_ids)
            if self.query_names is not None:
                columns["query"] = [self.query_names[query] for query in columns["query"]]
            return columns
        names = self.output_names
        if names is None or "row" in names:
            names = tuple(f"output {index + 1}" for index in range(self.outputs.shape[1]))
        return columns | dict(zip(names, self.outputs.T.tolist(), strict=True))

    def write(self, path: str | Path) -> None:
        """Write the columns to a CSV or Parquet file."""
        require("writing predictions", ("polars",))
        import polars as pl

        path, buffer = Path(path), io.BytesIO()
        if path.suffix not in (".csv", ".parquet"):
            raise ValueError(f"path: expected a name that ends with .csv or .parquet, got {path.name!r}")
        frame = pl.DataFrame(self.columns())
        if path.suffix == ".parquet":
            frame.write_parquet(buffer)
        else:
            frame.write_csv(buffer)
        write_whole(path, buffer.getvalue())


def score_columns(
    scores: Tensor,
    labels: Tensor | None,
    query_ids: Tensor | None,
    rows: Tensor | None = None,
    ids: Sequence[str] | None = None,
) -> dict[str, list[Any]]:
    """Return the columns of a file of scores: score, and label, query, row and id where they are known."""
    columns: dict[str, list[Any]] = {"score": [f"{score:.9g}" for score in scores.double().tolist()]}
    known: Mapping[str, Tensor | None] = {"label": labels, "query": query_ids, "row": rows}
    columns |= {name: values.tolist() for name, values in known.items() if values is not None}
    return columns if ids is None else columns | {"id": list(ids)}


def part_columns(scores: Tensor, part: Any) -> dict[str, list[Any]]:
    """Return the columns of a file of the scores of a part."""
    rows, ids = getattr(part, "rows", None), getattr(part, "row_ids", None)
    return score_columns(scores, part.targets, part.query_ids, rows if isinstance(rows, Tensor) else None, ids)
