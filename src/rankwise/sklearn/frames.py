"""Pandas and polars frames as numbers: categories, dates, booleans, missing cells, columns that tell nothing."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankwise.data.features import learn_features
from rankwise.data.schema import DataNote
from rankwise.data.table_files import RawTable, open_table

__all__ = ["FrameEncoder", "is_frame"]

# Rows without any value are kept: this column has one for each.
_ROW = "\0row"


def is_frame(X: object) -> bool:
    """Return whether X is a pandas or polars frame."""
    return type(X).__module__.partition(".")[0] in ("pandas", "polars") and hasattr(X, "columns")


class FrameEncoder:
    """Learn from a frame how its columns become numbers, see `FeatureEncoding`; missing numbers become medians.

    Args:
        frame: a pandas or polars frame.

    Attributes:
        columns: the names of all columns.
        left_out: columns that tell nothing (constant, ids), with the reason for each.

    Example:
        >>> import polars as pl
        >>> frame = pl.DataFrame({"size": [1.0, None, 3.0], "shape": ["round", "flat", "round"]})
        >>> FrameEncoder(frame).encode(frame)
        array([[1., 0., 0., 1.],
               [2., 1., 1., 0.],
               [3., 0., 0., 1.]])
    """

    def __init__(self, frame: Any) -> None:
        raw = _open(frame)
        self.columns = names = [name for name in raw.columns if name != _ROW]
        self._encoding, self.left_out = learn_features(raw, names, missing="auto", categories=_said_to_be(frame))
        reasons = "; ".join(f"{name!r}: {reason}" for name, reason in self.left_out.items())
        if not self._encoding.names:
            raise ValueError(f"X: expected at least one column that tells something, got none ({reasons})")
        if reasons:
            warnings.warn(f"X: columns that tell nothing were left out ({reasons})", DataNote, stacklevel=5)
        self._medians = np.nanmedian(self._encoding.encode(raw, "auto", np.float64), axis=0)

    @property
    def codes(self) -> tuple[tuple[int, int], ...]:
        """Return for each of the numbers its column and its code there, see `FeatureEncoding.codes`."""
        return self._encoding.codes

    def encode(self, frame: Any) -> NDArray[np.float64]:
        """Return the numbers (N, D) of a frame with the same columns."""
        values = self._encoding.encode(_open(frame), "auto", np.float64)
        return np.where(np.isnan(values), self._medians, values)


def _said_to_be(frame: Any) -> list[str]:
    """Return the columns that pandas calls categories, of whatever values."""
    return [str(name) for name, dtype in zip(frame.columns, frame.dtypes, strict=True) if str(dtype) == "category"]


def _open(frame: Any) -> RawTable:
    if hasattr(frame, "with_row_index"):
        return open_table(frame.with_row_index(_ROW))
    return open_table(frame.assign(**{_ROW: np.arange(len(frame))}))
