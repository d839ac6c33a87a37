"""Features in mapped files: rows are read from disk when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

__all__ = ["FeatureRows", "MappedFeatures", "join_features", "take_features"]


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
