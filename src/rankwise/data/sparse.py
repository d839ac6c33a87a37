"""Rows of which most entries are 0: only the others are kept."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["SparseRows"]


@dataclass(frozen=True)
class SparseRows:
    """N rows of `width` numbers (the arrays of the CSR form): row i has `values[a:b]` in the columns `columns[a:b]`,
    where a, b = starts[i], starts[i + 1]; all else is 0.

    Attributes:
        starts: (N + 1,) int64; columns: (K,) int64; values: (K,) float32.
        width: how many columns there are.

    Example:
        >>> rows = SparseRows(torch.tensor([0, 2, 2]), torch.tensor([0, 2]), torch.tensor([1.0, 5.0]), width=3)
        >>> rows.dense()
        tensor([[1., 0., 5.],
                [0., 0., 0.]])
    """

    starts: Tensor
    columns: Tensor
    values: Tensor
    width: int

    def __len__(self) -> int:
        return len(self.starts) - 1

    def take(self, rows: Tensor) -> SparseRows:
        """Some of the rows, in this order."""
        counts = self.starts[rows + 1] - self.starts[rows]
        _, entries = self._entries(rows)
        starts = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
        return SparseRows(starts, self.columns[entries], self.values[entries], self.width)

    def dense(self, rows: Tensor | None = None) -> Tensor:
        """(B, width) float32: the rows of a batch, or all of them."""
        rows = torch.arange(len(self)) if rows is None else rows
        row_of_entry, entries = self._entries(rows)
        result = torch.zeros(len(rows), self.width)
        result[row_of_entry, self.columns[entries]] = self.values[entries]
        return result

    def _entries(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The entries of some rows, and to which of them each belongs."""
        begin, counts = self.starts[rows], self.starts[rows + 1] - self.starts[rows]
        row_of_entry = torch.repeat_interleave(torch.arange(len(rows)), counts)
        return row_of_entry, torch.arange(int(counts.sum())) - (counts.cumsum(0) - counts - begin)[row_of_entry]
