"""Tables of numbers with a label column: CSV, TSV, Parquet and NumPy's npz."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from rankwise.checks import check_choice
from rankwise.data.columns import LINE, find_column, read_numbers, refuse_cells, refuse_missing, strip_text
from rankwise.data.extras import need
from rankwise.data.files import LARGEST, check_file
from rankwise.data.frames import read_frame
from rankwise.data.groups import find_group_file, query_ids_beside
from rankwise.data.labels import read_known_labels, read_labels
from rankwise.data.parts import Part
from rankwise.registry import nearest

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Table", "read_table"]


@dataclass(frozen=True)
class Table:
    """A table as a part, and what its numbers are called in the file.

    Attributes:
        part: features (N, D) float32, labels (N,), query ids (N,) or None.
        feature_names: of the D columns.
        label_name: of the label column.
        classes: what label 0, 1, ... is called in the file; None if the labels are the file's own numbers.
        query_names: what query id 0, 1, ... is called in the file; None if the ids are the file's own, or none.
    """

    part: Part
    feature_names: tuple[str, ...]
    label_name: str
    classes: tuple[str, ...] | None = None
    query_names: tuple[str, ...] | None = None


def read_table(
    path: str | Path,
    *,
    label: str | int = -1,
    features: Sequence[str] | None = None,
    query: str | None = None,
    drop: Sequence[str] = (),
    positive: str | None = None,
    missing: str = "error",
    header: str = "auto",
    like: Table | None = None,
) -> Table:
    """Read a table from a CSV, TSV, Parquet or npz file; CSV and TSV may be compressed by gzip or xz.

    Labels of two kinds become 0 and 1: 0 and 1 stay, false is 0 and true is 1, of any others the rarer kind is positive
    unless `positive` names it; `classes` of the result says which is which. More than two kinds of text become 0, 1,
    2, ... in alphabetical order. Other numbers (grades) stay as they are, as do all numbers where there are queries.

    Args:
        path: the file. In an npz the arrays are `features` (or `X`), `labels` (or `y`) and perhaps `query_ids` (`qid`).
        label: name or position of the label column; by default the last one.
        features: names of the columns to use; by default all that are not used otherwise. They must hold numbers.
        query: name of the column that says which list a row belongs to. Without it `PATH.query` or `PATH.group`
            beside the file may give the sizes of the lists; without those all rows are one list.
        drop: names of columns to leave out.
        positive: what the positive class is called in the file.
        missing: "error" refuses cells that are empty, `NA`, `?` or `nan` by line; "median" fills in the median of
            the column; "keep" leaves NaN, for a look at the data. Missing labels and query ids are always refused.
        header: "yes" if the first line holds the names of the columns, "no" if it does not (they are called
            `column 1`, `column 2`, ... then), "auto" takes it for names if none of its fields is a number.
        like: the table to learn from, when this is one to test on: the same columns and the same classes are read,
            and lists with the same name get the same id. `label`, `features` and `positive` are taken from there.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "cells.csv")
        ...     _ = path.write_text("size,round,cancer\\n1.5,0.2,no\\n2.5,0.1,yes\\n1.0,0.3,no\\n")
        ...     table = read_table(path)
        >>> table.part.labels.tolist(), table.classes, table.feature_names
        ([0, 1, 0], ('no', 'yes'), ('size', 'round'))
    """
    need("polars", "reading a table")
    import polars as pl

    check_choice("missing", missing, ("error", "median", "keep"))
    check_choice("header", header, ("auto", "yes", "no"))
    path = check_file(path)
    if like is not None:
        label, features = like.label_name, like.feature_names
    frame = read_frame(path, header=header, line=LINE)
    frame = frame.filter(~pl.all_horizontal(pl.exclude(LINE).is_null()))
    if not len(frame):
        raise ValueError(f"{path}: expected rows below the names of the columns, got none")
    columns = [name for name in frame.columns if name != LINE]
    label_name = find_column(path, columns, "label", label)
    if query is None and path.suffix == ".npz" and "query_ids" in columns:
        query = "query_ids"
    for argument, names in (("query", [query] if query is not None else []), ("drop", drop), ("features", features)):
        for name in names or ():
            if name not in columns:
                raise ValueError(f"{argument}: {path} has no column {name!r}{nearest(str(name), columns)}")
    kept = [name for name in columns if name not in (label_name, query, *drop)]
    chosen = kept if features is None else list(features)
    if not chosen:
        raise ValueError(f"{path}: expected at least one column of features, got none besides the label {label_name!r}")
    if unfit := [name for name in chosen if name not in kept]:
        raise ValueError(f"features: expected columns that are not the label, the query or dropped, got {unfit[0]!r}")
    query_ids, query_names = (None, None) if query is None else _queries(path, frame, query, like)
    values = _features(path, frame, chosen, missing)
    has_lists = query is not None or find_group_file(path) is not None
    if like is None:
        labels, classes = read_labels(path, frame, label_name, positive, as_numbers=has_lists)
    else:
        labels, classes = read_known_labels(path, frame, label_name, like.classes), like.classes
    query_ids = query_ids_beside(path, len(frame), query_ids)
    return Table(Part(values, labels, query_ids), tuple(chosen), label_name, classes, query_names)


def _features(path: Path, frame: pl.DataFrame, names: list[str], missing: str) -> Tensor:
    """(N, D) float32, filled column by column, so that no second copy of all is ever held."""
    values = np.empty((len(frame), len(names)), dtype=np.float32)
    for place, name in enumerate(names):
        column = read_numbers(path, frame, name)
        absent = np.isnan(column)
        if missing != "keep" and absent.any():
            if missing == "error":
                refuse_cells(
                    path, frame, name, absent, "a number in every line",
                    "missing cells (missing='median' fills them in, drop=[...] leaves the column out)",
                )  # fmt: skip
            if absent.all():
                raise ValueError(f"{path}, column {name!r}: expected some numbers, got none; drop=[{name!r}]")
            column = np.where(absent, np.median(column[~absent]), column)
        large = np.abs(column) > LARGEST
        if large.any():
            refuse_cells(path, frame, name, large, "finite numbers up to 3.4e38 (float32)", "larger or infinite ones")
        values[:, place] = column
    return torch.from_numpy(values)


def _queries(path: Path, frame: pl.DataFrame, name: str, like: Table | None) -> tuple[Tensor, tuple[str, ...] | None]:
    """Whole numbers as they are; text as 0, 1, 2, ... in the order in which it first appears."""
    import polars as pl

    refuse_missing(path, frame, name)
    column = frame[name]
    known = None if like is None else like.query_names
    if known is None and column.dtype.is_integer():
        numbers = column.cast(pl.Int64, strict=False)
        if numbers.null_count() == 0:
            return torch.from_numpy(numbers.to_numpy().copy()), None
    text = strip_text(column.cast(pl.String))
    words = list(dict.fromkeys([*(known or ()), *text.unique(maintain_order=True)]))
    codes = text.replace_strict(words, range(len(words)), return_dtype=pl.Int64)
    return torch.from_numpy(codes.to_numpy().copy()), tuple(words)
