"""Rows of state by id: a table in buffers, its hash index, and the spaces in which rows are averaged."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rankwise.lists import every
from rankwise.modes import outside_inference_mode

__all__ = ["LINEAR", "SPACES", "HashIndex", "IdTable", "Space"]

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


@dataclass(frozen=True)
class Space:
    """Averages of the same numbers, whatever they are given as.

    Attributes:
        blend: `blend(old, new, rate)` is (1 - rate) old + rate new.
        mean: `mean(values, group, counts)` are the means (G, width) of values (Q, width) over the groups (Q,) of
            `counts` (G,) members.
    """

    blend: Callable[[Tensor, Tensor, float], Tensor]
    mean: Callable[[Tensor, Tensor, Tensor], Tensor]


def _blend(old: Tensor, new: Tensor, rate: float) -> Tensor:
    return old.lerp(new, rate)


def _mean(values: Tensor, group: Tensor, counts: Tensor) -> Tensor:
    return values.new_zeros(len(counts), values.shape[1]).index_add_(0, group, values).div_(counts[:, None])


def _blend_logarithms(old: Tensor, new: Tensor, rate: float) -> Tensor:
    """log((1 - rate) exp(old) + rate exp(new)), safe for any size."""
    if rate == 1:
        return new
    return torch.logaddexp(old + math.log1p(-rate), new + math.log(rate))


def _mean_logarithms(values: Tensor, group: Tensor, counts: Tensor) -> Tensor:
    """log of the mean of exp(values), measured from the largest of each group."""
    largest = values.new_full((len(counts), values.shape[1]), -torch.inf)
    largest.scatter_reduce_(0, group[:, None].expand_as(values), values, "amax")
    return _mean((values - largest[group]).exp_(), group, counts).log_().add_(largest)


LINEAR = Space(_blend, _mean)
SPACES = {"linear": LINEAR, "log": Space(_blend_logarithms, _mean_logarithms)}


class IdTable(nn.Module):
    """A table with one row of `width` numbers for every id that has been seen; ids are any int64, or pairs of them.

    The rows are moving averages: `row <- (1 - update_rate) row + update_rate value`. An id's first value starts its
    row; several values of one id in a call are averaged first. A call costs the same however many rows there are.

    The whole state is `ids` and `rows`, in the order in which the ids were first seen (those of one call in rising
    order), saved by `state_dict()` under these names. A saved table of another size loads as it is. Rows stay in
    float32 at least.

    Args:
        width: numbers in a row.
        columns: 1 for ids of shape (Q,), 2 for pairs of shape (Q, 2).

    Example:
        >>> table = IdTable(width=1)
        >>> table.update(torch.tensor([7, -3, 7]), torch.tensor([[1.0], [5.0], [3.0]]), update_rate=0.5)
        tensor([[2.],
                [5.],
                [2.]])
        >>> table.read(torch.tensor([7, 0]))
        (tensor([[2.],
                [0.]]), tensor([ True, False]))
    """

    _id_space: Tensor
    _row_space: Tensor

    def __init__(self, width: int, columns: int = 1) -> None:
        super().__init__()
        self.width, self.columns = width, columns
        # With room for more than there are, so that new ids do not mean copying all.
        self.register_buffer("_id_space", torch.empty(0, columns, dtype=torch.int64), persistent=False)
        self.register_buffer("_row_space", torch.empty(0, width), persistent=False)
        self._count = 0
        self._index: HashIndex | None = None

    def extra_repr(self) -> str:
        return f"ids={len(self)}, width={self.width}, columns={self.columns}"

    def __len__(self) -> int:
        return self._count

    @property
    def ids(self) -> Tensor:
        """The ids that have a row: (n,), or (n, 2) for pairs."""
        known = self._id_space[: self._count]
        return known[:, 0] if self.columns == 1 else known

    @property
    def rows(self) -> Tensor:
        """(n, width) the rows of `ids`."""
        return self._row_space[: self._count]

    @outside_inference_mode
    def locate(self, ids: Tensor) -> Tensor:
        """Which row each of `ids` (Q,) or (Q, 2) has, -1 for none: (Q,). For reading and updating with one search."""
        ids = self._as_columns(ids)
        known = self._id_space[: self._count]
        if self._index is None:
            self._index = HashIndex(known)
        return self._index.find(ids, known)

    def read(self, ids: Tensor, place: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The rows of `ids` (Q,) or (Q, 2) as (Q, width), zeros where an id is unknown, and which are known (Q,).

        `place` is what `locate(ids)` gave, if that was asked already.
        """
        if not self._count:
            unknown = torch.zeros(len(ids), dtype=torch.bool, device=ids.device)
            return self._row_space.new_zeros(len(ids), self.width), unknown
        place = self.locate(ids) if place is None else place
        known = place >= 0
        if every(known):
            return self._row_space[place], known
        return self._row_space[place.clamp_min(0)].masked_fill(~known[:, None], 0), known

    @outside_inference_mode
    @torch.no_grad()
    def update(
        self,
        ids: Tensor,
        values: Tensor,
        update_rate: float,
        space: Space = LINEAR,
        place: Tensor | None = None,
    ) -> Tensor:
        """Move the rows of `ids` (Q,) or (Q, 2) towards `values` (Q, width); gives them as they are then, (Q, width).

        `space` says how numbers are averaged that are not given as they are (logarithms).
        `place` is what `locate(ids)` gave, if that was asked already.
        """
        if not len(ids):
            return values.to(self._row_space.dtype)
        before, values = self._count, values.to(self._row_space.dtype)
        place = self.locate(ids) if place is None else place
        any_new = int(place.min()) < 0
        if any_new:
            new = place < 0
            self._append(_distinct(self._as_columns(ids)[new]))
            place = place.masked_scatter(new, self.locate(ids[new]))
        inverse: Tensor | None = None
        if not _repeats(place):
            distinct, now = place, values
        else:
            distinct, inverse, counts = place.unique(return_inverse=True, return_counts=True)
            now = space.mean(values, inverse, counts)
        remembered = space.blend(self._row_space[distinct], now, update_rate)
        now = torch.where(distinct[:, None] < before, remembered, now) if any_new else remembered
        self._row_space[distinct] = now
        return now if inverse is None else now[inverse]

    def _as_columns(self, ids: Tensor) -> Tensor:
        return ids[:, None] if self.columns == 1 else ids

    def _append(self, ids: Tensor) -> None:
        count = self._count + len(ids)
        if count > len(self._id_space):
            room = max(2 * len(self._id_space), count, 64)
            self._id_space = _with_room(self._id_space, self._count, room)
            self._row_space = _with_room(self._row_space, self._count, room)
        self._id_space[self._count : count] = ids
        self._row_space[self._count : count] = 0
        self._count = count
        if self._index is not None:
            self._index.add(self._id_space[:count])

    def __getstate__(self) -> dict[str, Any]:
        """Copy the used rows as arrays: tensors would share their memory with a process that they are sent to."""
        arrays = tuple(space[: self._count].cpu().numpy().copy() for space in (self._id_space, self._row_space))
        empty = {name: space[:0].clone() for name, space in self._buffers.items() if space is not None}
        return {**self.__dict__, "_buffers": empty, "_arrays": arrays, "_index": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        ids, rows = state.pop("_arrays")
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._id_space, self._row_space = self._id_space.new_tensor(ids), self._row_space.new_tensor(rows)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        # Copies: a view would be saved together with all the room behind it.
        destination[prefix + "ids"], destination[prefix + "rows"] = self.ids.clone(), self.rows.clone()

    @outside_inference_mode
    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        ids, rows = state_dict.get(prefix + "ids"), state_dict.get(prefix + "rows")
        if ids is None or rows is None:
            missing_keys += [prefix + name for name, value in (("ids", ids), ("rows", rows)) if value is None]
            return
        shape = (len(ids),) if self.columns == 1 else (len(ids), self.columns)
        if ids.shape != shape or rows.shape != (len(ids), self.width):
            error_msgs.append(
                f"{prefix}rows: expected ids of {self.columns} and rows of {self.width} numbers, "
                f"got shapes {tuple(ids.shape)} and {tuple(rows.shape)}"
            )
            return
        self._id_space = self._as_columns(ids).to(self._id_space, copy=True)
        self._row_space = rows.to(self._row_space, copy=True)
        self._count, self._index = len(ids), None

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> IdTable:
        exact = self._row_space
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if self._row_space.dtype in (torch.float16, torch.bfloat16):
            self._row_space = exact.to(self._row_space.device)
        self._index = None
        return self


def _with_room(space: Tensor, used: int, room: int) -> Tensor:
    larger = space.new_empty(room, space.shape[1])
    larger[:used] = space[:used]
    return larger


def _repeats(place: Tensor) -> bool:
    """Whether a row occurs twice; the sort of values alone takes less time than `unique`, and numpy's the least."""
    if place.device.type != "cpu":
        rising = place.sort().values
        return bool((rising[1:] == rising[:-1]).any())
    known = np.sort(place.numpy())
    return bool((known[1:] == known[:-1]).any())


def _distinct(ids: Tensor) -> Tensor:
    """The different rows of (Q, columns), in rising order."""
    if ids.shape[1] == 1:
        values: Tensor = ids[:, 0].unique()
        return values[:, None]
    for column in range(ids.shape[1] - 1, -1, -1):
        ids = ids[torch.argsort(ids[:, column], stable=True)]
    differs = (ids[1:] != ids[:-1]).any(1)
    first_of_its_kind: Tensor = torch.nn.functional.pad(differs, (1, 0), value=True)
    return ids[first_of_its_kind]


class HashIndex:
    """Map ids to rows: an open-addressing hash table that looks up all ids of a batch at once.

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
        """Hash the rows of a tensor or an array (n, columns); return the same type."""
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
