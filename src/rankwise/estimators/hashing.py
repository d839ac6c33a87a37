"""Finding the row of an id in a time that does not depend on how many rows there are."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["HashIndex"]

# Odd constants whose bits look random; int64 products wrap around, which is what is wanted here.
_MIX = (-7046029254386353131, -4417276706812531889, 1609587929392839161)
# Slots per id at least; with many free slots nearly every id is found at its first or second.
_ROOM = 4
_SMALLEST = 1024


class HashIndex:
    """Which row each id has: an open-addressing hash table whose searches run for all ids of a batch at once.

    It follows from the ids alone, so it is never saved; a table builds it anew when it needs one. Ids are compared in
    full, so two ids that hash alike are still told apart.

    Args:
        ids: (n, columns) distinct ids; row r is the r-th of them.

    Example:
        >>> index = HashIndex(torch.tensor([[7, 1], [-3, 5]]))
        >>> index.find(torch.tensor([[-3, 5], [7, 5]]), torch.tensor([[7, 1], [-3, 5]]))
        tensor([ 1, -1])
    """

    def __init__(self, ids: Tensor) -> None:
        self._rows = torch.full((_size(len(ids)),), -1, dtype=torch.int64, device=ids.device)
        self.count = 0
        self.add(ids)

    def find(self, ids: Tensor, known: Tensor) -> Tensor:
        """The rows of `ids` (Q, columns) among the `known` (n, columns), -1 where there is none: (Q,)."""
        slots = _hash(ids) & (len(self._rows) - 1)
        found = self._rows[slots]
        pending = self._occupied_by_others(ids, known, found).nonzero()[:, 0]
        while len(pending):
            slots[pending] = (slots[pending] + 1) & (len(self._rows) - 1)
            tried = self._rows[slots[pending]]
            found[pending] = tried
            pending = pending[self._occupied_by_others(ids[pending], known, tried)]
        return found

    def add(self, known: Tensor) -> None:
        """Take in the ids that came since: `known` (n, columns) are all, the first `count` of them already here."""
        if len(known) * _ROOM > len(self._rows):
            self._rows = torch.full((_size(2 * len(known)),), -1, dtype=torch.int64, device=known.device)
            self.count = 0
        rows = torch.arange(self.count, len(known), device=known.device)
        slots = _hash(known[self.count :]) & (len(self._rows) - 1)
        while len(rows):
            # Several may want one free slot: the first row gets it, the others move on.
            free = self._rows[slots] < 0
            wanted, wanting = slots[free], rows[free]
            taken, which = wanted.unique(return_inverse=True)
            first = torch.full_like(taken, len(known)).scatter_reduce(0, which, wanting, "amin")
            self._rows[taken] = first
            left = self._rows[slots] != rows
            rows, slots = rows[left], (slots[left] + 1) & (len(self._rows) - 1)
        self.count = len(known)

    @staticmethod
    def _occupied_by_others(ids: Tensor, known: Tensor, rows: Tensor) -> Tensor:
        if not len(known):
            return torch.zeros_like(rows, dtype=torch.bool)
        return (rows >= 0) & (known[rows.clamp_min(0)] != ids).any(1)


def _size(ids: int) -> int:
    return max(_SMALLEST, 1 << (ids * _ROOM - 1).bit_length())


def _hash(ids: Tensor) -> Tensor:
    mixed = torch.zeros_like(ids[:, 0])
    for column in range(ids.shape[1]):
        mixed = (mixed ^ ids[:, column]) * _MIX[0]
        mixed = (mixed ^ ((mixed >> 32) & 0xFFFFFFFF)) * _MIX[1]
        mixed = mixed ^ ((mixed >> 29) & 0x7FFFFFFFF)
    return (mixed * _MIX[2] >> 20) & 0xFFFFFFFFFFF
