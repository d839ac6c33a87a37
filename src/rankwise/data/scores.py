"""Scores and labels from a file: CSV, TSV, Parquet or npz."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rankwise.data.files import is_compressed, read_arrays, read_bytes
from rankwise.data.table_files import read_parquet
from rankwise.registry import nearest

if TYPE_CHECKING:
    import polars

__all__ = ["COLUMN_NAMES", "ScoreTable", "Scores", "check_scores_file", "parse_scores", "read_scores"]

# What a column may be called when the caller does not say; the first name wins over the others.
COLUMN_NAMES: Mapping[str, tuple[str, ...]] = {
    "score": ("score", "scores", "prediction", "predictions", "pred", "prob", "probability", "logit", "y_score"),
    "label": ("label", "labels", "target", "targets", "relevance", "rel", "grade", "grades", "y", "y_true"),
    "query": ("query", "query_id", "query_ids", "qid", "user", "user_id"),
    "group": ("group", "groups", "group_id", "segment"),
    "id": ("id", "ids", "item", "item_id", "doc", "doc_id", "sample_id", "sample_ids"),
}
_LARGEST_ID = 10**18
FORMATS = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", ".npz")


@dataclass(frozen=True)
class Scores:
    """The rows of a file.

    Attributes:
        scores: (N,) float64. labels: (N,) int64, or float64 where grades are not whole numbers.
        query_ids, group_ids, sample_ids: (N,) int64, or None where there is no such column.
        query_names, group_names, sample_names: names of the ids where the file holds text: id i is called
            `names[i]`. None where the file holds whole numbers, which are then the ids themselves.
        features: (N, D) float32, or None.
        columns: which column was taken for what.
    """

    scores: Tensor
    labels: Tensor
    query_ids: Tensor | None = None
    query_names: tuple[str, ...] | None = None
    group_ids: Tensor | None = None
    group_names: tuple[str, ...] | None = None
    sample_ids: Tensor | None = None
    sample_names: tuple[str, ...] | None = None
    features: Tensor | None = None
    columns: Mapping[str, str] | None = None

    def __len__(self) -> int:
        return len(self.scores)


def read_scores(
    path: str | os.PathLike[str],
    *,
    score: str | None = None,
    label: str | None = None,
    query: str | None = None,
    group: str | None = None,
    id: str | None = None,
    features: Sequence[str] = (),
) -> Scores:
    """Read one row per scored item.

    Args:
        path: of a .csv, .tsv (both may be gzipped, .gz), .parquet or .npz file. A text file has a line of column names;
            an npz file holds one array per column.
        score, label: the columns of the scores and of the labels (0 or 1, true or false, or grades of 0 or more). By
            default the one with a usual name, see `COLUMN_NAMES`; upper and lower case are alike.
        query, group, id: the columns that say which list a row belongs to, which part of the data, and which item it
            is; whole numbers or text. By default one with a usual name, if there is any.
        features: columns of numbers that a model may learn from; "x*" selects all that begin with x. In an npz file
            an array (N, D) may be named.

    Returns:
        `Scores`.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "scores.csv")
        ...     _ = path.write_text("user,prob,label\\nann,.9,1\\nbob,.2,0\\nann,.4,0\\n")
        ...     rows = read_scores(path)
        >>> rows.scores, rows.query_ids, rows.query_names
        (tensor([0.9000, 0.2000, 0.4000], dtype=torch.float64), tensor([0, 1, 0]), ('ann', 'bob'))
    """
    table = _open(Path(path))
    asked = {"score": score, "label": label, "query": query, "group": group, "id": id}
    columns = {kind: column for kind, name in asked.items() if (column := table.find(kind, name)) is not None}
    wanted = {name: table.numbers(name, wide=True) for name in table.match(features)}
    query_ids, query_names = table.ids(columns.get("query"))
    group_ids, group_names = table.ids(columns.get("group"))
    sample_ids, sample_names = table.ids(columns.get("id"))
    scores, labels = table.scores_and_labels(columns["score"], columns["label"])
    return Scores(
        scores=torch.from_numpy(scores),
        labels=torch.from_numpy(labels.astype(np.int64) if bool((labels == np.floor(labels)).all()) else labels),
        query_ids=query_ids,
        query_names=query_names,
        group_ids=group_ids,
        group_names=group_names,
        sample_ids=sample_ids,
        sample_names=sample_names,
        features=torch.from_numpy(np.column_stack(list(wanted.values()))).float() if wanted else None,
        columns=columns,
    )


@dataclass(frozen=True)
class ScoreTable:
    """Columns by name, as they stand in the file; `unit` and `first` name a row in messages."""

    path: Path
    columns: Mapping[str, polars.Series | NDArray[Any]]
    unit: str = "row"
    first: int = 1

    @property
    def rows(self) -> int:
        """Return how many rows there are."""
        return len(next(iter(self.columns.values()), ()))

    def scores_and_labels(self, score: str, label: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the columns of scores and labels, checked."""
        labels = self.numbers(label)
        self._refuse(label, labels < 0, "a label of 0 or more")
        return self.numbers(score), labels

    def find(self, kind: str, name: str | None) -> str | None:
        """Return the column asked for, or the one with a usual name; None where an optional one is missing."""
        if name is not None:
            if name not in self.columns:
                raise ValueError(
                    f"{self.path}: no {kind} column {name!r}{nearest(name, self.columns).replace('known', 'columns')}"
                )
            return name
        usual = COLUMN_NAMES[kind]
        there = [column for column in self.columns if column.lower() in usual]
        best = [column for column in there if column.lower() == kind] or there
        if len(best) > 1:
            raise ValueError(f"{self.path}: {' and '.join(map(repr, best))} may both be the {kind} column; say which")
        if best:
            return best[0]
        if kind in ("score", "label"):
            raise ValueError(
                f"{self.path}: no {kind} column; expected one of {', '.join(usual)}, or its name as {kind}, "
                f"got the columns {', '.join(self.columns)}"
            )
        return None

    def match(self, patterns: Sequence[str]) -> list[str]:
        chosen: dict[str, None] = {}
        for pattern in patterns:
            matching = [name for name in self.columns if fnmatchcase(name, pattern)]
            if not matching:
                known = nearest(pattern, self.columns).replace("known", "columns")
                raise ValueError(f"{self.path}: no feature column {pattern!r}{known}")
            chosen.update(dict.fromkeys(matching))
        return list(chosen)

    def numbers(self, name: str, *, wide: bool = False) -> NDArray[np.float64]:
        """Return a column of finite numbers, (N,) or, if that may be, (N, D)."""
        column = self.columns[name]
        values = column if isinstance(column, np.ndarray) else _numbers(column)
        if values.dtype.kind not in "fiub":
            raise ValueError(f"{self.path}, column {name!r}: expected numbers, got {values.dtype}")
        if values.ndim > 1 + wide:
            raise ValueError(f"{self.path}, column {name!r}: expected one number per row, got shape {values.shape}")
        values = values.astype(np.float64)
        self._refuse(name, ~np.isfinite(values), "a finite number")
        return values

    def ids(self, name: str | None) -> tuple[Tensor | None, tuple[str, ...] | None]:
        """Read a column of ids: whole numbers as they are, text numbered in order of appearance, with the names."""
        if name is None:
            return None, None
        whole = self.whole_ids(name)
        if whole is not None:
            return torch.from_numpy(whole), None
        numbers, names = self.text_ids(name)
        return torch.from_numpy(numbers), tuple(names)

    def whole_ids(self, name: str) -> NDArray[np.int64] | None:
        """Return a column of ids if all of them are whole numbers, otherwise None."""
        import polars

        texts = self._texts(name)
        numbers = texts.cast(polars.Int64, strict=False)
        # A leading zero is part of a name: 007 is not 7.
        whole = numbers.null_count() == 0 and bool((numbers.cast(polars.String) == texts).all())
        if not whole or bool((numbers.abs() >= _LARGEST_ID).any()):
            return None
        return numbers.to_numpy().copy()

    def text_ids(self, name: str) -> tuple[NDArray[np.int64], list[str]]:
        """Return a column of ids as numbers in order of appearance, and the name of each number."""
        import polars

        texts = self._texts(name)
        names = texts.unique(maintain_order=True)
        numbers = texts.replace_strict(names, range(len(names)), return_dtype=polars.Int64)
        return numbers.to_numpy().copy(), names.to_list()

    def _texts(self, name: str) -> polars.Series:
        import polars

        column = self.columns[name]
        if isinstance(column, np.ndarray):
            self._refuse(name, column != column, "an id")
            return polars.Series(column.astype(str))
        self._refuse(name, column.is_null().to_numpy(), "an id")
        return column.cast(polars.String)

    def _refuse(self, name: str, bad: NDArray[np.bool_], expected: str) -> None:
        """Name the first row that is not as expected."""
        if bad.any():
            at = tuple(int(axis[0]) for axis in np.nonzero(bad))
            column = self.columns[name]
            value = column[at] if isinstance(column, np.ndarray) else column[at[0]]
            got = "nothing" if value is None or value == "" else repr(str(value))
            where = f"{self.path}, {self.unit} {self.first + at[0]}, column {name!r}"
            raise ValueError(f"{where}: expected {expected}, got {got}")


def check_scores_file(path: Path) -> Path:
    """Return the path if it is a file of a kind that can be read."""
    if not path.name.lower().endswith(FORMATS):
        raise ValueError(f"{path}: expected a file ending in {', '.join(FORMATS)}")
    if path.is_dir():
        raise ValueError(f"{path}: expected a file, got a folder")
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file{_sibling(path)}")
    return path


def _open(path: Path) -> ScoreTable:
    check_scores_file(path)
    if path.suffix.lower() == ".npz":
        table = _open_npz(path)
    elif path.suffix.lower() == ".parquet":
        frame = read_parquet(path)
        table = ScoreTable(path, {name.strip(): frame[name] for name in frame.columns})
    else:
        table = parse_scores(path, BytesIO(read_bytes(path)) if is_compressed(path) else path)
    if not table.rows:
        raise ValueError(f"{path}: expected at least one row, got none")
    return table


def _open_npz(path: Path) -> ScoreTable:
    columns = {name: np.atleast_1d(array) for name, array in read_arrays(path).items()}
    lengths = {len(column) for column in columns.values()}
    if len(lengths) > 1:
        shapes = ", ".join(f"{name} {column.shape}" for name, column in columns.items())
        raise ValueError(f"{path}: expected arrays of one length, got {shapes}")
    return ScoreTable(path, columns)


def parse_scores(
    path: Path,
    source: Path | BytesIO,
    *,
    names: Sequence[str] | None = None,
    numbers: Sequence[str] = (),
    first_line: int = 1,
) -> ScoreTable:
    """Parse lines of text.

    Args:
        path: of the file, for errors and for the separator.
        source: the file itself, or some of its lines.
        names: of the columns; None if the first line holds them.
        numbers: columns to parse as numbers at once, if there is nothing else in them.
        first_line: number of the first line.
    """
    import polars  # an extra: only those who read such a file need it

    separator = "\t" if ".tsv" in path.name.lower() else ","
    # Without types, so that a bad value can be shown as it stands in the file.
    form: dict[str, Any] = {"infer_schema": False}
    if names is not None:
        form = {"has_header": False, "schema": dict.fromkeys(names, polars.String)}
    try:
        if names is not None and isinstance(source, BytesIO):
            typed = form["schema"] | dict.fromkeys(numbers, polars.Float64)
            with suppress(polars.exceptions.PolarsError):
                frame = polars.read_csv(source, separator=separator, has_header=False, schema=typed)
                return ScoreTable(path, dict(zip(names, frame, strict=True)), unit="line", first=first_line)
            source.seek(0)
        frame = polars.read_csv(source, separator=separator, **form)
    except polars.exceptions.NoDataError:
        raise ValueError(f"{path}: expected a line of column names and rows below it, got an empty file") from None
    except (polars.exceptions.PolarsError, OSError) as problem:
        between = "tabs" if separator == "\t" else "commas"
        raise ValueError(
            f"{path}: cannot be read as lines of values between {between} ({_one_line(problem)})"
        ) from None
    columns = {name.strip(): frame[name] for name in frame.columns}
    return ScoreTable(path, columns, unit="line", first=first_line + (names is None))


def _numbers(column: polars.Series) -> NDArray[Any]:
    """Return the column as numbers, NaN for missing ones."""
    import polars

    if column.dtype == polars.String:
        numbers = column.cast(polars.Float64, strict=False)
        if numbers.null_count():
            text = column.str.strip_chars().str.to_lowercase().replace({"true": "1", "false": "0"})
            numbers = text.cast(polars.Float64, strict=False)
        column = numbers
    return column.cast(polars.Float64, strict=False).to_numpy() if not column.dtype.is_nested() else column.to_numpy()


def _sibling(path: Path) -> str:
    if not path.parent.is_dir():
        return f" (nor a folder {path.parent})"
    files = [other.name for other in path.parent.iterdir() if other.name.lower().endswith(FORMATS)]
    return nearest(path.name, files).partition(" (known")[0]


def _one_line(problem: Exception) -> str:
    return " ".join(str(problem).split())[:160]
