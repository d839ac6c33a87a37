"""Features and names in mapped files: rows are read from disk when they are asked for."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rankwise.data.memory import release_memory

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "FeatureRows",
    "MappedFeatures",
    "MappedNames",
    "join_features",
    "join_pieces",
    "take_features",
    "take_names",
]


class MappedFeatures:
    """Rows (N, D) of matrices in mapped files. Selecting and joining copies row numbers only.

    Args:
        files: matrices of one width, the mapped files.
        rows: (N,) numbers of the rows, counted through all files; None takes all.

    Example:
        >>> features = MappedFeatures([torch.arange(6.0).view(3, 2)])
        >>> later = features.take(torch.tensor([2, 0]))
        >>> later.shape, later[torch.tensor([1])], later.join(features).shape
        (torch.Size([2, 2]), tensor([[0., 1.]]), torch.Size([5, 2]))
    """

    def __init__(self, files: Sequence[Tensor], rows: Tensor | None = None) -> None:
        self._files = tuple(files)
        sizes = torch.tensor([len(file) for file in self._files])
        self._ends = sizes.cumsum(0)
        self._rows = rows
        self.shape = torch.Size([int(sizes.sum()) if rows is None else len(rows), self._files[0].shape[1]])

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def dtype(self) -> torch.dtype:
        """Return the type of the numbers."""
        return self._files[0].dtype

    def __getitem__(self, rows: Tensor | slice) -> Tensor:
        """Read rows: a tensor of indices, or a slice of them."""
        return self.read(rows)

    def read(self, rows: Tensor | slice, columns: slice = slice(None)) -> Tensor:
        """Read some columns of rows."""
        if self._rows is None and len(self._files) == 1:
            return self._files[0][rows, columns]
        if self._rows is not None:
            wanted = self._rows[rows]
        elif isinstance(rows, slice):
            wanted = torch.arange(*rows.indices(len(self)))
        else:
            wanted = rows
        if len(self._files) == 1:
            return self._files[0][:, columns][wanted]
        file = torch.searchsorted(self._ends, wanted, right=True)
        chosen = torch.empty(len(wanted), len(range(*columns.indices(self.shape[1]))), dtype=self.dtype)
        for number, matrix in enumerate(self._files):
            here = file == number
            first = int(self._ends[number]) - len(matrix)
            chosen[here] = matrix[:, columns][wanted[here] - first]
        return chosen

    def take(self, rows: Tensor) -> MappedFeatures:
        """Return these rows only, in this order; nothing is read."""
        everything = torch.arange(len(self)) if self._rows is None else self._rows
        return MappedFeatures(self._files, everything[rows])

    def join(self, other: MappedFeatures) -> MappedFeatures:
        """Return these rows and then those of another; nothing is read."""
        own, others = (torch.arange(len(each)) if each._rows is None else each._rows for each in (self, other))
        if [file.data_ptr() for file in self._files] == [file.data_ptr() for file in other._files]:
            return MappedFeatures(self._files, torch.cat([own, others]))
        return MappedFeatures((*self._files, *other._files), torch.cat([own, others + int(self._ends[-1])]))

    def split(self, size: int) -> Iterator[Tensor]:
        """Read all rows in blocks."""
        for first in range(0, len(self), size):
            yield self[first : first + size]


FeatureRows = Tensor | MappedFeatures
"""Features (N, D) in memory or in mapped files."""


def take_features(features: FeatureRows, rows: Tensor) -> FeatureRows:
    """Return some of the rows, in this order; those of mapped files are not read."""
    return features.take(rows) if isinstance(features, MappedFeatures) else features[rows]


def join_features(first: FeatureRows, second: FeatureRows) -> FeatureRows:
    """Return the rows of both; those of mapped files are not read if both are mapped."""
    if isinstance(first, MappedFeatures) and isinstance(second, MappedFeatures):
        return first.join(second)
    return torch.cat([each[:] for each in (first, second)])


class MappedNames(Sequence[str]):
    """Names of rows in a mapped column, read when they are asked for.

    Example:
        >>> import polars as pl
        >>> names = MappedNames(pl.Series([7, 8, 9]))
        >>> names[1], names.take(torch.tensor([2, 0]))[0], list(names)
        ('8', '9', ['7', '8', '9'])
    """

    def __init__(self, column: pl.Series, rows: NDArray[np.int64] | None = None) -> None:
        self._column, self._rows = column, rows

    def __len__(self) -> int:
        return len(self._column) if self._rows is None else len(self._rows)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(len(self)))]
        position = range(len(self))[index]
        return str(self._column[position if self._rows is None else int(self._rows[position])])

    def take(self, rows: Tensor) -> MappedNames:
        """Return the names of these rows only, in this order; nothing is read."""
        chosen = torch.arange(len(self))[rows].numpy()
        return MappedNames(self._column, chosen if self._rows is None else self._rows[chosen])


def take_names(names: Sequence[str], rows: Tensor) -> tuple[str, ...] | MappedNames:
    """Return some of the names, in this order; those of mapped files are not read."""
    if isinstance(names, MappedNames):
        return names.take(rows)
    return tuple(names[index] for index in torch.arange(len(names))[rows].tolist())


def join_pieces(pieces: Iterable[Tensor], folder: Path | None, dtype: torch.dtype = torch.int64) -> Tensor:
    """Return pieces (n,) as one tensor (N,); with a folder it is mapped from a temporary file there.

    The file has no name and is gone with the tensor. Only one piece is in memory at a time.
    """
    if folder is None:
        return torch.cat([torch.empty(0, dtype=dtype), *pieces])
    count = 0
    with tempfile.TemporaryFile(dir=folder) as file:
        for piece in pieces:
            file.write(piece.to(dtype).contiguous().numpy().data)
            count += len(piece)
        file.flush()
        release_memory()
        if not count:
            return torch.empty(0, dtype=dtype)
        return torch.from_numpy(np.memmap(file, torch.empty(0, dtype=dtype).numpy().dtype, "c", shape=(count,)))
