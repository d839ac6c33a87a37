"""Columns of a table file as numbers or as codes of names; cells that do not fit are refused by line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import numpy as np
from numpy.typing import NDArray

from rankwise.registry import nearest

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "LINE",
    "find_column",
    "loses_differences",
    "names_and_codes",
    "read_numbers",
    "refuse_cells",
    "refuse_missing",
    "strip_text",
]

LINE = "\0line"  # the column with the line of each row in its file
# float32 holds 24 bits: a column whose rounding error exceeds this share of its spread is shifted before it is rounded.
_ROUNDING = 1e-3


def find_column(path: Path | str, columns: list[str], argument: str, wanted: str | int) -> str:
    """Return the name of a column given by name or by position."""
    if isinstance(wanted, int) and not isinstance(wanted, bool):
        if not -len(columns) <= wanted < len(columns):
            raise ValueError(
                f"{argument}: expected a position among the {len(columns)} columns of {path}, got {wanted}"
            )
        return columns[wanted]
    if wanted not in columns:
        raise ValueError(f"{argument}: {path} has no column {wanted!r}{nearest(str(wanted), columns)}")
    return wanted


def read_numbers(path: Path | str, frame: pl.DataFrame, name: str) -> NDArray[np.float64]:
    """Return a column as float64, NaN where it is missing; a column of text is refused."""
    import polars as pl

    column = frame[name]
    if not (column.dtype.is_numeric() or column.dtype in (pl.Boolean, pl.String, pl.Null)):
        raise ValueError(
            f"{path}, column {name!r}: expected numbers, got {column.dtype}; leave it out with drop=[{name!r}] "
            "or turn it into numbers first"
        )
    text = strip_text(column) if column.dtype == pl.String else column
    if column.dtype == pl.String and bool(text.str.to_lowercase().is_in(["true", "false"]).all()):
        text = text.str.to_lowercase() == "true"
    numbers = text.cast(pl.Float64, strict=False)
    wrong = numbers.is_null() & text.is_not_null()
    if wrong.any():
        where = wrong.to_numpy()
        example = text[int(where.argmax())]
        if isinstance(example, str) and re.fullmatch(r"[-+]?\d+,\d+", example):
            raise ValueError(
                f"{path}, column {name!r}: expected numbers with a decimal point, got {example!r} with a decimal comma"
                f"; write {example.replace(',', '.')} (save the file with decimal points)"
            )
        if numbers.null_count() == len(numbers):
            raise ValueError(
                f"{path}, column {name!r}: expected numbers, got text such as {example!r}; leave it out with "
                f"drop=[{name!r}] or turn it into numbers first, for example one column per word"
            )
        refuse_cells(path, frame, name, where, "numbers", f"text such as {example!r}")
    values: NDArray[np.float64] = numbers.fill_null(float("nan")).to_numpy()
    return values


def loses_differences(spread: NDArray[np.float64], error: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return for each column whether float32 cannot hold its differences, as with Unix times.

    Args:
        spread: (D,) standard deviations.
        error: (D,) largest errors of rounding to float32.
    """
    return (spread > 0.0) & (error > _ROUNDING * spread)


def names_and_codes(path: Path | str, frame: pl.DataFrame, name: str) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return ids as 0, 1, 2, ... and their names: numbers in order of size, text in alphabetical order."""
    import polars as pl

    refuse_missing(path, frame, name)
    column = frame[name]
    if not column.dtype.is_integer():
        column = strip_text(column.cast(pl.String))
    kinds = column.unique().sort()
    codes = column.replace_strict(kinds, pl.Series(range(len(kinds)), dtype=pl.Int64), return_dtype=pl.Int64)
    return codes.to_numpy().copy(), tuple(kinds.cast(pl.String).to_list())


def strip_text(column: pl.Series) -> pl.Series:
    return column.str.strip_chars()


def refuse_missing(path: Path | str, frame: pl.DataFrame, name: str) -> None:
    absent = frame[name].is_null()
    if frame[name].dtype.is_float():
        absent = absent | frame[name].is_nan().fill_null(True)
    if absent.any():
        refuse_cells(path, frame, name, absent.to_numpy(), "something in every line", "missing cells")


def refuse_cells(
    path: Path | str, frame: pl.DataFrame, name: str, where: NDArray[np.bool_], expected: str, got: str
) -> NoReturn:
    """Raise the error of some cells of a column, with the first three lines they stand in."""
    lines = frame[LINE].to_numpy()[where]
    first = ", ".join(map(str, lines[:3].tolist()))
    more = f" and {len(lines) - 3} more" if len(lines) > 3 else ""
    rows = f"line{'s' if len(lines) > 1 else ''} {first}{more}"
    raise ValueError(f"{path}, column {name!r}, {rows}: expected {expected}, got {got}")
