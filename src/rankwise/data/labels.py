"""The label column of a table: numbers as they are, or names as 0, 1, 2, ..."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from rankwise.data.columns import refuse_cells, refuse_missing, strip_text
from rankwise.registry import nearest

if TYPE_CHECKING:
    import polars as pl

__all__ = ["read_known_labels", "read_labels"]

TRUTH = ("false", "true")
# More different numbers than this are measurements, not classes.
_MANY = 20


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
