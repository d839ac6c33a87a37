"""Rows of which most entries are 0, in compressed form."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from rankwise.data.mapped import join_pieces

__all__ = ["SparseRows", "blocks_of_rows"]

# Pairs that are sorted at once.
PAIRS_AT_ONCE = 1 << 21


@dataclass(frozen=True)
class SparseRows:
    """N rows of `width` numbers in CSR form: row i has `values[a:b]` in the columns `columns[a:b]`, where
    a, b = starts[i], starts[i + 1]; all other entries are 0.

    Attributes:
        starts: (N + 1,) int64; columns: (K,) int64; values: (K,) float32.
        width: number of columns.

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

    @classmethod
    def of_pairs(
        cls, rows: Tensor, columns: Tensor, *, height: int, width: int, folder: Path | None = None
    ) -> SparseRows:
        """Return rows with a 1 at every pair (row, column), however often the pair occurs; columns in rising order.

        With a folder the columns are mapped from a temporary file there. All values are one number in memory.

        Example:
            >>> SparseRows.of_pairs(torch.tensor([1, 0, 1]), torch.tensor([2, 0, 2]), height=2, width=3).dense()
            tensor([[1., 0., 0.],
                    [0., 0., 1.]])
        """
        counts = torch.zeros(height, dtype=torch.int64)

        def rising() -> Iterator[Tensor]:
            for entries in blocks_of_rows(rows, height):
                pairs = (rows[entries] * width + columns[entries]).unique()
                different, repeats = (pairs // width).unique_consecutive(return_counts=True)
                counts[different] = repeats
                yield pairs % width

        joined = join_pieces(rising(), folder)
        starts = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
        return cls(starts, joined, torch.ones(1).expand(len(joined)), width)

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def rows(self) -> Tensor:
        """Return the row of each entry (K,)."""
        return torch.repeat_interleave(torch.arange(len(self)), self.starts.diff())

    def take(self, rows: Tensor) -> SparseRows:
        """Return these rows only, in this order."""
        counts = self.starts[rows + 1] - self.starts[rows]
        _, entries = self._entries(rows)
        starts = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
        return SparseRows(starts, self.columns[entries], self.values[entries], self.width)

    def join(self, other: SparseRows) -> SparseRows:
        """Return these rows and then those of another, which has the same columns."""
        starts = torch.cat([self.starts, other.starts[1:] + self.starts[-1]])
        return SparseRows(
            starts, torch.cat([self.columns, other.columns]), torch.cat([self.values, other.values]), self.width
        )

    def select(self, columns: Tensor) -> SparseRows:
        """Return these columns only, in this order.

        Example:
            >>> rows = SparseRows(torch.tensor([0, 2]), torch.tensor([0, 2]), torch.tensor([1.0, 5.0]), width=3)
            >>> rows.select(torch.tensor([2, 1])).dense()
            tensor([[5., 0.]])
        """
        numbers = torch.full((self.width,), -1)
        numbers[columns] = torch.arange(len(columns))
        numbers = numbers[self.columns]
        kept = numbers >= 0
        counts = torch.bincount(self.rows[kept], minlength=len(self))
        starts = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
        return SparseRows(starts, numbers[kept], self.values[kept], len(columns))

    def dense(self, rows: Tensor | None = None) -> Tensor:
        """Return some rows, or all, as (B, width) float32."""
        rows = torch.arange(len(self)) if rows is None else rows
        row_of_entry, entries = self._entries(rows)
        result = torch.zeros(len(rows), self.width)
        result[row_of_entry, self.columns[entries]] = self.values[entries]
        return result

    def contains(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Return for pairs (B,) of a row and a column whether there is an entry; columns must rise within each row.

        Example:
            >>> rows = SparseRows.of_pairs(torch.tensor([1, 0, 1]), torch.tensor([2, 0, 1]), height=2, width=3)
            >>> rows.contains(torch.tensor([1, 1, 0]), torch.tensor([2, 0, 0]))
            tensor([ True, False,  True])
        """
        low, end = self.starts[rows], self.starts[rows + 1]
        if not len(self.columns):
            return torch.zeros_like(rows, dtype=torch.bool)
        high = end
        for _ in range(int((end - low).max()).bit_length() if len(rows) else 0):
            middle = (low + high) // 2
            below = (middle < high) & (self.columns[middle.clamp_max(len(self.columns) - 1)] < columns)
            low, high = torch.where(below, middle + 1, low), torch.where(below, high, middle)
        return (low < end) & (self.columns[low.clamp_max(len(self.columns) - 1)] == columns)

    def to_torch(self) -> Tensor:
        """Return the rows as a sparse tensor (N, width) in COO form."""
        indices = torch.stack([self.rows, self.columns])
        # Said explicitly: otherwise torch warns that nothing is checked.
        return torch.sparse_coo_tensor(indices, self.values, (len(self), self.width), check_invariants=True)

    def _entries(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the entries of some rows: the position of their row in `rows`, and their own position."""
        begin, counts = self.starts[rows], self.starts[rows + 1] - self.starts[rows]
        row_of_entry = torch.repeat_interleave(torch.arange(len(rows)), counts)
        return row_of_entry, torch.arange(int(counts.sum())) - (counts.cumsum(0) - counts - begin)[row_of_entry]


def blocks_of_rows(rows: Tensor, height: int) -> Iterator[Tensor]:
    """Yield the positions (n,) of entries by blocks of consecutive rows, in rising order within each block.

    Args:
        rows: (K,) row of each entry.
        height: number of rows.
    """
    if len(rows) <= PAIRS_AT_ONCE:
        yield torch.arange(len(rows))
        return
    block = torch.bincount(rows, minlength=height).cumsum(0).sub_(1).clamp_min_(0) // PAIRS_AT_ONCE
    ends = block.unique_consecutive(return_counts=True)[1].cumsum(0).tolist()
    first = 0
    for end in ends:
        yield ((rows >= first) & (rows < end)).nonzero().squeeze(1)
        first = end
