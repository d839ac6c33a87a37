"""Columns of a table as numbers, codes of names, labels or lists; cells that do not fit are refused by line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rankwise.data.files import bad_line, read_text
from rankwise.registry import nearest

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "LINE",
    "find_column",
    "find_group_file",
    "loses_differences",
    "names_and_codes",
    "query_ids_beside",
    "read_group_sizes",
    "read_known_labels",
    "read_labels",
    "read_numbers",
    "refuse_cells",
    "refuse_missing",
    "strip_text",
]

CELLS_AT_ONCE = 1 << 22
LINE = "\0line"  # the column with the line of each row in its file
# float32 holds 24 bits: a column whose rounding error exceeds this share of its spread is shifted before it is rounded.
_ROUNDING = 1e-3
TRUTH = ("false", "true")
# More different numbers than this are measurements, not classes.
_MANY = 20
ENDINGS = (".query", ".group")


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


def read_numbers(path: Path | str, frame: pl.DataFrame, name: str, *, advice: str = "") -> NDArray[np.float64]:
    """Return a column as float64, NaN where it is missing; a column of text is refused, with some advice."""
    import polars as pl

    column = frame[name]
    if not (column.dtype.is_numeric() or column.dtype in (pl.Boolean, pl.String, pl.Null)):
        raise ValueError(f"{path}, column {name!r}: expected numbers, got {column.dtype}{advice}")
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
            raise ValueError(f"{path}, column {name!r}: expected numbers, got text such as {example!r}{advice}")
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


def names_and_codes(
    path: Path | str, frame: pl.DataFrame, name: str
) -> tuple[Iterator[NDArray[np.int64]], tuple[str, ...]]:
    """Return ids as 0, 1, 2, ..., in pieces, and their names: numbers in order of size, text in alphabetical order."""
    import polars as pl

    refuse_missing(path, frame, name)
    column = frame[name]

    def words(cells: pl.Series) -> pl.Series:
        return cells if column.dtype.is_integer() else strip_text(cells.cast(pl.String))

    # Different cells may be the same word: stripped only when they are few.
    kinds = words(column.unique()).unique().sort()
    numbers = pl.Series(range(len(kinds)), dtype=pl.Int64)

    def pieces() -> Iterator[NDArray[np.int64]]:
        for cells in column.to_frame().iter_slices(CELLS_AT_ONCE):
            codes = words(cells[name]).replace_strict(kinds, numbers, return_dtype=pl.Int64)
            yield codes.to_numpy().copy()

    return pieces(), tuple(kinds.cast(pl.String).to_list())


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


def read_labels(
    path: Path | str, frame: pl.DataFrame, name: str, positive: str | None, *, as_numbers: bool, binary: bool = False
) -> tuple[Tensor, tuple[str, ...] | None]:
    """Return the labels (N,) and the names of 0, 1, ...; None if they are the file's own numbers.

    Args:
        path, frame: the table and where it comes from.
        name: of the label column.
        positive: what the positive class is called, if that is known.
        as_numbers: whether numbers stay even if there are only two of them, as grades do.
        binary: whether labels of more than two kinds are refused, unless `positive` is given.
    """
    import polars as pl

    text = _words(path, frame, name)
    kinds = text.value_counts().sort("count", "word", descending=[True, False])
    words: list[str] = kinds["word"].to_list()
    numeric = text.cast(pl.Float64, strict=False)
    all_numbers = numeric.null_count() == 0 and bool(numeric.is_finite().all())
    if binary and positive is None and len(words) > 2:
        if all_numbers and len(words) > _MANY:
            low, middle, high = np.quantile(numeric.to_numpy(), [0.0, 0.5, 1.0])
            raise ValueError(
                f"{path}, column {name!r}: expected labels of two kinds, got {len(words)} different numbers from "
                f"{low:g} to {high:g}; make a column of two kinds of them first, such as {name} > "
                f"{middle:g}, or name another column with data.label=..."
            )
        raise ValueError(
            f"{path}, column {name!r}: expected labels of two kinds, got {len(words)}: {_shown(kinds)}; name the "
            f"positive one, such as data.positive={words[-1]}, or another column with data.label=..."
        )
    if positive is not None and positive not in words:
        raise ValueError(f"positive: {path} has no label {positive!r}{nearest(positive, words[:20])}")
    if positive is None and all_numbers and (as_numbers or len(words) != 2 or set(numeric.unique()) == {0.0, 1.0}):
        return _own_numbers(numeric), None
    if positive is None and bool(text.str.to_lowercase().is_in(TRUTH).all()):
        return _is(text.str.to_lowercase(), "true"), TRUTH
    if positive is not None and len(words) != 2:
        # One kind against all the others.
        return _is(text, positive), (f"not {positive}", positive)
    if len(words) == 2:
        # The rarer one; of two equally frequent ones the later in the alphabet ("1" after "-1", "yes" after "no").
        rarer = words[-1] if positive is None else positive
        other = next(word for word in words if word != rarer)
        return _is(text, rarer), (other, rarer)
    if len(words) > max(len(frame) // 2, 20):
        raise ValueError(
            f"{path}, column {name!r}: expected labels, got {len(words)} different words in {len(frame)} rows such as "
            f"{words[0]!r}; name the label column with label="
        )
    words = sorted(words)
    codes = text.replace_strict(words, range(len(words)), return_dtype=pl.Int64)
    return torch.from_numpy(codes.to_numpy().copy()), tuple(words)


def read_known_labels(
    path: Path | str, frame: pl.DataFrame, name: str, classes: tuple[str, ...] | None, *, unknown: str = "error"
) -> Tensor:
    """Return the labels (N,) with the meaning they have in the training table: its `classes`, None for numbers.

    Other classes are refused; with `unknown="number"` they are numbered after the known ones, in alphabetical order.
    """
    import polars as pl

    text = _words(path, frame, name)
    if classes is None:
        numbers = text.cast(pl.Float64, strict=False)
        strange = ~(numbers.is_finite().fill_null(False))
        if strange.any():
            refuse_cells(path, frame, name, strange.to_numpy(), "numbers, as in the training data", "something else")
        return _own_numbers(numbers)
    if classes == TRUTH:
        text = text.str.to_lowercase()
    if len(classes) == 2 and classes[0] == f"not {classes[1]}":
        return _is(text, classes[1])
    strange = ~text.is_in(classes)
    if unknown == "number":
        classes = (*classes, *text.filter(strange).unique().sort())
    elif strange.any():
        words = ", ".join(classes[:5])
        refuse_cells(path, frame, name, strange.to_numpy(), f"labels of the training data ({words})", "others")
    codes = text.replace_strict(classes, range(len(classes)), return_dtype=pl.Int64)
    return torch.from_numpy(codes.to_numpy().copy())


def _words(path: Path | str, frame: pl.DataFrame, name: str) -> pl.Series:
    import polars as pl

    refuse_missing(path, frame, name)
    column = frame[name]
    if column.dtype.is_float() and bool(((column % 1 == 0) & (column.abs() < 2**53)).all()):
        column = column.cast(pl.Int64)  # 1.0 is the class 1
    return strip_text(column.cast(pl.String)).str.strip_chars("'\"").alias("word")


def _shown(kinds: pl.DataFrame) -> str:
    """Return the most frequent words with their counts."""
    first = ", ".join(f"{word!r} ({count} rows)" for word, count in kinds.head(4).iter_rows())
    return first + (", ..." if len(kinds) > 4 else "")


def _own_numbers(numbers: pl.Series) -> Tensor:
    values = numbers.to_numpy()
    whole = bool((values == np.rint(values)).all()) and bool((np.abs(values) < 2**53).all())
    return torch.from_numpy(values.astype(np.int64 if whole else np.float32))


def _is(text: pl.Series, word: str) -> Tensor:
    return torch.from_numpy((text == word).to_numpy().astype(np.int64))


def find_group_file(path: str | Path) -> Path | None:
    """Return the file of list sizes beside a data file: its whole name with `.query` or `.group` added; None if
    none.
    """
    path = Path(path)
    return next((file for ending in ENDINGS if (file := path.with_name(path.name + ending)).exists()), None)


def read_group_sizes(path: str | Path) -> Tensor:
    """Return the sizes of the lists, one whole number a line: the first 27 rows are the first list, and so on.

    Returns:
        (Q,) int64.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "train.csv.query")
        ...     _ = path.write_text("2\\n3\\n")
        ...     read_group_sizes(path)
        tensor([2, 3])
    """
    path = Path(path)
    sizes = []
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        if not line.strip():
            continue
        if not (line.strip().isascii() and line.strip().isdigit() and 0 < int(line) < 2**40):
            bad_line(path, number, "the number of rows of a list, at least 1", repr(line))
        sizes.append(int(line))
    return torch.tensor(sizes, dtype=torch.int64)


def query_ids_beside(path: Path, rows: int, query_ids: Tensor | None) -> Tensor | None:
    """Return the list of each row: `query_ids` from the data itself, or 0, 1, 2, ... from the sizes in the file beside
    it.

    Where both exist they must cut the rows in the same way.
    """
    sizes_file = find_group_file(path)
    if sizes_file is None:
        return query_ids
    sizes = read_group_sizes(sizes_file)
    if int(sizes.sum()) != rows:
        raise ValueError(
            f"{sizes_file}: expected sizes that add up to the {rows} rows of {path}, got {int(sizes.sum())}"
        )
    if query_ids is None:
        return torch.repeat_interleave(torch.arange(len(sizes)), sizes)
    own = query_ids.unique_consecutive(return_counts=True)[1]
    if not torch.equal(own, sizes):
        raise ValueError(
            f"{sizes_file}: expected the {len(own)} lists that the query ids in {path} make, got {len(sizes)} others; "
            "remove the one that is wrong"
        )
    return query_ids
