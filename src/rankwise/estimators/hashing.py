"""Finding the row of an id in a time that does not depend on how many rows there are."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["HashIndex"]

# Odd constants whose bits look random; int64 products wrap around, which is what is wanted here.
_MIX = (-7046029254386353131, -4417276706812531889, 1609587929392839161)
# Slots per id at least, up to four times as many after growing: nearly all ids stand within a window after their slot.
_ROOM = 2
_SMALLEST = 1024
_WINDOW = 8
# A slot holds a row in its lower bits and some bits of the id's hash above them, or nothing.
_ROW = (1 << 40) - 1
_TAG = ((1 << 62) - 1) ^ _ROW
_FREE = 1 << 62


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

    count: int

    def __init__(self, ids: Tensor) -> None:
        self._clear(len(ids), ids.device)
        self.add(ids)

    def find(self, ids: Tensor, known: Tensor) -> Tensor:
        """The rows of `ids` (Q, columns) among the `known` (n, columns), -1 where there is none: (Q,)."""
        if not len(known):
            return torch.full((len(ids),), -1, device=ids.device)
        slots, tags = self._slots_and_tags(_plain(ids))
        # The slot of the id's own tag is left with the row alone, all others of the window with something larger.
        found = _least(_plain(self._windows)[slots] ^ tags[:, None]).clamp_max_(len(known) - 1)
        there = known[found]
        if not torch.equal(there, ids):
            others = (there != ids).any(1).nonzero()[:, 0]
            found[others] = self._search(torch.as_tensor(slots)[others], ids[others], known)
        return found

    def add(self, known: Tensor) -> None:
        """Take in the ids that came since: `known` (n, columns) are all, the first `count` of them already here."""
        if len(known) * _ROOM > self._size:
            self._clear(2 * len(known), known.device)
        rows = torch.arange(self.count, len(known), device=known.device)
        slots, tags = self._slots_and_tags(known[self.count :])
        filled = tags | rows
        while len(rows):
            # Several may want one free slot: the first row gets it, the others move on.
            free = self._slots[slots] == _FREE
            taken, which = slots[free].unique(return_inverse=True)
            first = torch.full_like(taken, len(known)).scatter_reduce(0, which, rows[free], "amin")
            self._slots[taken] = filled[first - self.count]
            left = self._slots[slots] & _ROW != rows
            rows, slots = rows[left], (slots[left] + 1) & (self._size - 1)
        self._slots[self._size :] = self._slots[: _WINDOW - 1]
        self.count = len(known)

    def _search(self, slots: Tensor, ids: Tensor, known: Tensor) -> Tensor:
        """Window by window: an id stands before the first free slot after its own, if anywhere."""
        found = torch.full_like(slots, -1)
        pending = torch.arange(len(slots), device=slots.device)
        windows = self._windows
        while len(pending):
            window = windows[slots]
            rows, free = window & _ROW, window == _FREE
            same = (known[rows] == ids[pending, None]).all(2) & ~free
            found[pending] = torch.where(same, rows, -1).amax(1)
            undecided = ~(same | free).any(1)
            slots, pending = (slots[undecided] + _WINDOW) & (self._size - 1), pending[undecided]
        return found

    def _clear(self, ids: int, device: torch.device) -> None:
        """Room for so many ids; the first slots are repeated at the end, so that every window lies in one piece."""
        self._size = max(_SMALLEST, 1 << (ids * _ROOM - 1).bit_length())
        self._slots = torch.full((self._size + _WINDOW - 1,), _FREE, dtype=torch.int64, device=device)
        self.count = 0

    @property
    def _windows(self) -> Tensor:
        """Return the window from each slot on, a view: as an attribute it would be pickled apart from the slots."""
        return self._slots.unfold(0, _WINDOW, 1)

    def _slots_and_tags(self, ids: Any) -> tuple[Any, Any]:
        """Of a tensor or an array (n, columns): what it is given, it gives."""
        mixed = ids[:, 0] * _MIX[0]
        for column in range(1, ids.shape[1]):
            mixed = (mixed ^ (mixed >> 29)) * _MIX[1] + ids[:, column] * _MIX[2]
        mixed ^= mixed >> 32
        mixed *= _MIX[1]
        # The higher bits are the best mixed.
        return (mixed >> 24) & (self._size - 1), mixed & _TAG


def _plain(values: Tensor) -> Any:
    """On the CPU an array: numpy takes half of torch's time for many passes over few numbers."""
    return values.numpy() if values.device.type == "cpu" else values


def _least(rows: Any) -> Tensor:
    """The least of each short row."""
    return torch.from_numpy(rows.min(1)) if isinstance(rows, np.ndarray) else rows.amin(1)
