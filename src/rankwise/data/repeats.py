"""Find equal rows of a table, exactly, in time that grows little faster than the table."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["first_equal_row", "rows_found_in"]

_Rows = NDArray[np.float32]
_Ids = NDArray[np.int64]

BLOCK_CELLS = 1 << 21
_MIX = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


def first_equal_row(rows: _Rows, groups: _Ids | None = None) -> _Ids:
    """Return for each row the first row that is equal to it: itself, if it repeats none.

    Args:
        rows: (N, D).
        groups: (N,) rows of different groups are never equal.

    Example:
        >>> first_equal_row(np.array([[1, 2], [3, 4], [1, 2]], dtype=np.float32)).tolist()
        [0, 1, 0]
    """
    hashes = _hash(rows, groups)
    order = np.argsort(hashes, kind="stable")
    starts = np.flatnonzero(np.r_[True, hashes[order][1:] != hashes[order][:-1]])
    first = np.empty(len(rows), dtype=np.int64)
    first[order] = order[np.repeat(starts, np.diff(np.r_[starts, len(rows)]))]
    # The same hash is not yet the same row; rows that only collide count as different.
    candidates = np.flatnonzero(first != np.arange(len(rows)))
    same = _equal(rows, candidates, rows, first[candidates])
    if groups is not None:
        same &= groups[candidates] == groups[first[candidates]]
    first[candidates[~same]] = candidates[~same]
    return first


def rows_found_in(rows: _Rows, others: _Rows) -> _Ids:
    """Return for each row the first row of `others` that is equal to it, -1 where there is none.

    Example:
        >>> table = np.array([[1, 2], [3, 4]], dtype=np.float32)
        >>> rows_found_in(table, np.array([[5, 6], [3, 4]], dtype=np.float32)).tolist()
        [-1, 1]
    """
    matching = np.full(len(rows), -1, dtype=np.int64)
    if not len(rows) or not len(others):
        return matching
    hashes, other_hashes = _hash(rows, None), _hash(others, None)
    order = np.argsort(other_hashes, kind="stable")
    index = np.searchsorted(other_hashes[order], hashes).clip(max=len(others) - 1)
    candidates = np.flatnonzero(other_hashes[order[index]] == hashes)
    matches = order[index[candidates]]
    same = _equal(rows, candidates, others, matches)
    matching[candidates[same]] = matches[same]
    return matching


def _hash(rows: _Rows, groups: _Ids | None) -> NDArray[np.uint64]:
    """Hash each row to 64 bits: the sum over its cells of a hash of cell and column."""
    width = rows.shape[1]
    columns = np.arange(1, width + 1, dtype=np.uint64) * _MIX[0]
    result = np.empty(len(rows), dtype=np.uint64)
    step = max(BLOCK_CELLS // max(width, 1), 1)
    for start in range(0, len(rows), step):
        block = rows[start : start + step] + np.float32(0)  # -0.0 becomes 0.0
        result[start : start + step] = _mix(block.view(np.uint32).astype(np.uint64) + columns).sum(1, dtype=np.uint64)
    if groups is not None:
        result ^= _mix(groups.view(np.uint64) + _MIX[0])
    return result


def _mix(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    bits ^= bits >> np.uint64(30)
    bits *= _MIX[1]
    bits ^= bits >> np.uint64(27)
    bits *= _MIX[2]
    bits ^= bits >> np.uint64(31)
    return bits


def _equal(rows: _Rows, indices: _Ids, others: _Rows, other_indices: _Ids) -> NDArray[np.bool_]:
    same = np.empty(len(indices), dtype=bool)
    step = max(BLOCK_CELLS // max(rows.shape[1], 1), 1)
    for start in range(0, len(indices), step):
        piece = slice(start, start + step)
        same[piece] = (rows[indices[piece]] == others[other_indices[piece]]).all(1)
    return same
