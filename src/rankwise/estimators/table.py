"""Table of state rows by id in buffers, with its hash index and linear or logarithmic averages."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from rankwise.checks import (
    ExactModule,
    check_choice,
    check_later,
    check_moved,
    check_share,
    is_traced,
    on_host,
    outside_inference_mode,
    pending_checks,
    run_deferred_checks,
    send,
)
from rankwise.lists import surely_all
from rankwise.sorting import filled, numbers

__all__ = ["SPACES", "HashIndex", "IdTable", "PairAverages", "Space", "defer_new_ids"]

# Odd constants for multiplicative hashing; int64 products wrap around, as they should.
_MIX = (-7046029254386353131, -4417276706812531889, 1609587929392839161)

# Clears the sign before a shift: XLA shifts a negative number like a division.
_POSITIVE = (1 << 63) - 1

# At least 2 slots per id, up to 4 times as many after growing. The load factor is at most 1/2, so a probe rarely leaves
# its first window of 8 slots.
_SLOTS_PER_ID = 2
_SMALLEST = 1024
_WINDOW = 8
# On an accelerator ids are compared with the whole table up to this many comparisons: that launches the fewest kernels.
_FEW = 2**20

# A slot holds a row in its lower 40 bits and some bits of the id's hash above them (a tag), or `_FREE`.
_ROW = (1 << 40) - 1
_TAG = ((1 << 62) - 1) ^ _ROW
_FREE = 1 << 62


@dataclass(frozen=True)
class Space:
    """Averaging functions for numbers that are stored as they are or as logarithms.

    Attributes:
        blend: `blend(old, new, rate)` is (1 - rate) old + rate new.
        mean: `mean(values, group, counts)` are the means (G, width) of values (Q, width) over the groups (Q,) of
            `counts` (G,) members.
        zero: the stored form of 0, which adds nothing to a mean.
    """

    blend: Callable[[Tensor, Tensor, float], Tensor]
    mean: Callable[[Tensor, Tensor, Tensor], Tensor]
    zero: float


def _blend(old: Tensor, new: Tensor, rate: float) -> Tensor:
    return old.lerp(new, rate)


def _mean(values: Tensor, group: Tensor, counts: Tensor) -> Tensor:
    return values.new_zeros(len(counts), values.shape[1]).index_add_(0, group, values).div_(counts[:, None])


def _blend_logarithms(old: Tensor, new: Tensor, rate: float) -> Tensor:
    """Compute log((1 - rate) exp(old) + rate exp(new)) without overflow."""
    if rate == 1:
        return new
    return torch.logaddexp(old + math.log1p(-rate), new + math.log(rate))


def _mean_logarithms(values: Tensor, group: Tensor, counts: Tensor) -> Tensor:
    """Compute log(mean(exp(values))) of each group, relative to its largest value against overflow."""
    largest = values.new_full((len(counts), values.shape[1]), -torch.inf)
    largest.scatter_reduce_(0, group[:, None].expand_as(values), values, "amax")
    largest.masked_fill_(largest == -torch.inf, 0)
    return _mean((values - largest[group]).exp_(), group, counts).log_().add_(largest)


SPACES = {"linear": Space(_blend, _mean, 0.0), "log": Space(_blend_logarithms, _mean_logarithms, -torch.inf)}


class IdTable(ExactModule):
    """Table with one row of `width` numbers for every id that it has seen; ids are any int64, or pairs of them.

    The rows are moving averages: `row <- (1 - update_rate) row + update_rate value`. An id's first value starts its
    row; several values of one id in a call are averaged first. A call takes the same time for any number of rows.

    The whole state is `ids` and `rows`, in the order in which the ids were first seen (those of one call in ascending
    order), saved by `state_dict()` under these names. A saved table of any size can be loaded. Rows have at least
    float32 precision.

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
        # Buffers have spare capacity, so that not every new id copies them.
        self.register_buffer("_id_space", torch.empty(0, columns, dtype=torch.int64), persistent=False)
        self.register_buffer("_row_space", torch.empty(0, width), persistent=False)
        self._count = 0
        self._index: HashIndex | DeviceIndex | None = None
        self._pending: _Pending | None = None
        # The list of deferred checks that includes the check for pending ids, or None.
        self._deferred_with: object = None

    def extra_repr(self) -> str:
        return f"ids={len(self)}, width={self.width}, columns={self.columns}"

    def __len__(self) -> int:
        self._flush()
        return self._count

    @property
    def dtype(self) -> torch.dtype:
        """Return the dtype of the rows."""
        return self._row_space.dtype

    @property
    def ids(self) -> Tensor:
        """Return the ids that have a row: (n,), or (n, 2) for pairs."""
        self._flush()
        known = self._id_space[: self._count]
        return known[:, 0] if self.columns == 1 else known

    @property
    def rows(self) -> Tensor:
        """Return the rows of `ids`, (n, width)."""
        self._flush()
        return self._row_space[: self._count]

    @outside_inference_mode
    def locate(self, ids: Tensor) -> Tensor:
        """Return the row number of each id of (Q,) or (Q, 2), -1 for unknown ids: (Q,).

        `read` and `update` accept the result, so that both need one search only.
        """
        check_moved(self._id_space, ids.device)
        if is_traced(ids):
            from rankwise import graphs

            return graphs.locate(self, ids)
        self._flush()
        if not self._count:
            return filled((len(ids),), -1, torch.int64, ids.device)
        known = self._id_space[: self._count]
        if ids.device.type != "cpu" and ids.numel() * self._count <= _FEW:
            other = known != self._as_columns(ids)[:, None]
            other = other[:, :, 0] if self.columns == 1 else other.any(2)
            return numbers(self._count, ids.device).expand(other.shape).masked_fill(other, -1).amax(1)
        if self._index is None:
            self._index = HashIndex(known) if known.device.type == "cpu" else DeviceIndex(known.cpu(), known.device)
        return self._index.find(self._as_columns(ids), known)

    def read(self, ids: Tensor, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the rows (Q, width) of `ids` (Q,) or (Q, 2), zeros for unknown ids, and the mask (Q,) of known ids.

        `rows` is the result of `locate(ids)`, if it was called already.
        """
        rows = self.locate(ids) if rows is None else rows
        known = rows >= 0
        if is_traced(ids):
            from rankwise import graphs

            return graphs.read(self, rows), known
        if not self._count:
            return self._row_space.new_zeros(len(ids), self.width), known
        if surely_all(known):
            return self._row_space[rows], known
        return self._row_space[rows.clamp_min(0)].masked_fill(~known[:, None], 0), known

    def follow(
        self,
        ids: Tensor,
        values: Tensor,
        update_rate: float,
        *,
        training: bool,
        rows: Tensor | None = None,
        chosen: Tensor | None = None,
        starting: Tensor | None = None,
    ) -> Tensor:
        """Update the rows of `ids` if `training`, and return them; return `values` for unknown ids."""
        if training:
            return self.update(ids, values, update_rate, rows=rows, chosen=chosen, starting=starting)
        stored, known = self.read(ids, rows)
        return torch.where(known[:, None], stored, values.to(stored.dtype))

    @outside_inference_mode
    @torch.no_grad()
    def update(
        self,
        ids: Tensor,
        values: Tensor,
        update_rate: float,
        space: str = "linear",
        *,
        rows: Tensor | None = None,
        chosen: Tensor | None = None,
        starting: Tensor | None = None,
        write: bool = True,
        only_chosen: bool = False,
    ) -> Tensor:
        """Average `values` (Q, width) into the rows of `ids` (Q,) or (Q, 2); return the new rows, (Q, width).

        Args:
            space: name of the averaging functions: "linear", or "log" for values that are logarithms.
            rows: the result of `locate(ids)`, if it was called already.
            chosen: (Q,) mask of the values that count; None: all. An id without any keeps its row; if it has no row
                either, its `values` are returned.
            starting: instead of `chosen`, (Q,) mask of the values that may start a row. Those of known ids all count.
            write: False returns the rows after the update, but does not store them.
            only_chosen: whether the rows of other values may be anything.
        """
        values = values.to(self._row_space.dtype)
        if not len(ids):
            return values
        if starting is not None and (len(ids) > 1 or ids.device.type == "cpu" or is_traced(ids)):
            rows = self.locate(ids) if rows is None else rows
            chosen, starting = starting | (rows >= 0), None
        if is_traced(ids):
            from rankwise import graphs

            run_deferred_checks()
            return graphs.update(self, ids, values, update_rate, space, rows, chosen, write, only_chosen)
        if only_chosen and chosen is not None and on_host(chosen):
            # On the CPU the other ids are not even looked up.
            some = None if rows is None else rows[chosen]
            now = self.update(ids[chosen], values[chosen], update_rate, space, rows=some, write=write)
            return values.masked_scatter(chosen[:, None], now)
        if ids.device.type != "cpu" or not write:
            return self._update_without_sync(ids, values, update_rate, SPACES[space], rows, chosen, starting, write)
        if chosen is not None and not surely_all(chosen):
            some = None if rows is None else rows[chosen]
            self.update(ids[chosen], values[chosen], update_rate, space, rows=some)
            stored, known = self.read(ids)
            return torch.where(known[:, None], stored, values)
        before = self._count
        rows = self.locate(ids) if rows is None else rows
        any_new = int(rows.min()) < 0
        if any_new:
            new = rows < 0
            self._append(_distinct(self._as_columns(ids)[new]))
            rows = rows.masked_scatter(new, self.locate(ids[new]))
        inverse: Tensor | None = None
        if not _repeats(rows):
            distinct, now = rows, values
        else:
            distinct, inverse, counts = rows.unique(return_inverse=True, return_counts=True)
            now = SPACES[space].mean(values, inverse, counts)
        blended = SPACES[space].blend(self._row_space[distinct], now, update_rate)
        now = torch.where(distinct[:, None] < before, blended, now) if any_new else blended
        self._row_space[distinct] = now
        return now if inverse is None else now[inverse]

    def _update_without_sync(
        self,
        ids: Tensor,
        values: Tensor,
        update_rate: float,
        space: Space,
        rows: Tensor | None,
        chosen: Tensor | None,
        starting: Tensor | None,
        write: bool,
    ) -> Tensor:
        """Run `update` with shapes that do not depend on the ids, so that the host does not synchronise.

        New ids get their rows when the table is used next, because only the host can grow the buffers.
        """
        rows = self.locate(ids) if rows is None else rows
        known, now, touched = rows >= 0, values, chosen
        if len(ids) > 1:
            now, touched = _means(self._as_columns(ids), values, chosen, space)
        if self._count:
            # The last row is spare: index -1 of new ids reads and writes there.
            old = self._row_space[rows]
            moved = space.blend(old, now, update_rate)
            if touched is not None:
                moved = torch.where(touched[:, None], moved, old)
            now = torch.where(known[:, None], moved, now)
        if write:
            run_deferred_checks()
            if self._count:
                self._row_space[rows] = now
            starting = touched if starting is None else starting
            new = ~known if starting is None else starting > known
            self._pending, self._deferred_with = _Pending(self._as_columns(ids), new, now), None
        return now

    def _flush(self) -> None:
        """Insert the new ids of the last update on an accelerator."""
        if self._pending is None:
            return
        if self._deferred_with is not None and self._deferred_with is pending_checks():
            run_deferred_checks()
        elif bool(self._pending.new.any()):
            _insert_pending([self])
        self._pending = self._deferred_with = None

    def _insert(self, ids: np.ndarray, new: np.ndarray, values: Tensor) -> None:
        """Append rows for the ids (Q, columns) in the mask `new`, from values (Q, width) that equal ids share."""
        batch = np.flatnonzero(new)
        distinct, first = np.unique(ids[batch], axis=0, return_index=True)
        before = self._count
        self._append(torch.from_numpy(distinct))
        self._row_space[before : self._count] = values[send(torch.from_numpy(batch[first]), values.device)]

    def _as_columns(self, ids: Tensor) -> Tensor:
        return ids[:, None] if self.columns == 1 else ids

    def _append(self, ids: Tensor) -> None:
        """Append rows of zeros for distinct new ids (n, columns) on the CPU."""
        count, device = self._count + len(ids), self._id_space.device
        if count >= len(self._id_space):
            capacity = max(2 * len(self._id_space), count + 1, 64)
            self._id_space = _grow(self._id_space, self._count, capacity)
            self._row_space = _grow(self._row_space, self._count, capacity)
        self._id_space[self._count : count] = send(ids, device)
        self._row_space[self._count : count] = 0
        self._count = count
        if isinstance(self._index, DeviceIndex):
            self._index.add(ids)
        elif self._index is not None:
            self._index.add(self._id_space[:count])
        elif device.type != "cpu" and count == len(ids):
            self._index = DeviceIndex(ids, device)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state with used rows as arrays: pickled tensors would share memory with the receiving process."""
        self._flush()
        arrays = tuple(space[: self._count].cpu().numpy().copy() for space in (self._id_space, self._row_space))
        empty = {name: space[:0].clone() for name, space in self._buffers.items() if space is not None}
        return {**self.__dict__, "_buffers": empty, "_arrays": arrays, "_index": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        ids, rows = state.pop("_arrays")
        super().__setstate__(state)
        self._id_space = _grow(self._id_space.new_tensor(ids), len(ids), len(ids) + 1)
        self._row_space = _grow(self._row_space.new_tensor(rows), len(ids), len(ids) + 1)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        # Copies, because torch.save writes the whole buffer of a view.
        self._flush()
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
        # With a spare row at the end.
        self._id_space = _grow(self._as_columns(ids).to(self._id_space), len(ids), len(ids) + 1)
        self._row_space = _grow(rows.to(self._row_space), len(ids), len(ids) + 1)
        self._count, self._index, self._pending = len(ids), None, None

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> IdTable:
        self._flush()
        super()._apply(fn, recurse)
        self._index = None
        return self


def _grow(space: Tensor, used: int, capacity: int) -> Tensor:
    larger = space.new_empty(capacity, space.shape[1])
    larger[:used] = space[:used]
    larger[used:] = 0
    return larger


def _repeats(rows: Tensor) -> bool:
    """Return whether a row occurs twice; a sort by numpy is faster than `unique`."""
    known = np.sort(rows.numpy())
    return bool((known[1:] == known[:-1]).any())


def _distinct(ids: Tensor) -> Tensor:
    """Return the distinct rows of (Q, columns), in ascending order."""
    if ids.shape[1] == 1:
        values: Tensor = ids[:, 0].unique()
        return values[:, None]
    for column in range(ids.shape[1] - 1, -1, -1):
        ids = ids[torch.argsort(ids[:, column], stable=True)]
    differs = (ids[1:] != ids[:-1]).any(1)
    first: Tensor = torch.nn.functional.pad(differs, (1, 0), value=True)
    return ids[first]


class HashIndex:
    """Open-addressing hash table from ids to rows that looks up all ids of a batch at once.

    It depends on the ids only, so it is never saved; a table rebuilds it when needed. Ids are compared in full, so hash
    collisions are resolved.

    Args:
        ids: (n, columns) distinct ids on the CPU; the r-th has row r.

    Attributes:
        count: number of ids; size: number of slots; slots: their contents.
        reach: longest probe: an id is within this many slots from the slot of its hash.

    Example:
        >>> index = HashIndex(torch.tensor([[7, 1], [-3, 5]]))
        >>> index.find(torch.tensor([[-3, 5], [7, 5]]), torch.tensor([[7, 1], [-3, 5]]))
        tensor([ 1, -1])
    """

    count: int
    size: int
    reach: int
    slots: Tensor

    def __init__(self, ids: Tensor) -> None:
        # As many slots as in a table that has grown to this size: a probe rarely leaves its first window.
        self._clear(2 * len(ids))
        self.add(ids)

    def find(self, ids: Tensor, known: Tensor) -> Tensor:
        """Return the rows of `ids` (Q, columns) among the `known` (n, columns), -1 for unknown ids: (Q,)."""
        # Numpy takes half of torch's time for many passes over few numbers.
        slots, tags = self.slots_and_tags(ids.numpy())
        # XOR with the tag clears the upper bits of the slot with that tag; all others of the window stay larger.
        nearest: np.ndarray = (self._windows.numpy()[slots] ^ tags[:, None]).min(1)
        rows = torch.from_numpy(nearest).clamp_max_(len(known) - 1)
        candidates = known[rows]
        if not torch.equal(candidates, ids):
            others = (candidates != ids).any(1).nonzero()[:, 0]
            rows[others] = self._search(torch.from_numpy(slots)[others], ids[others], known)
        return rows

    def add(self, known: Tensor) -> Tensor | None:
        """Add the ids after the first `count` of `known` (n, columns), which starts with those already in the index.

        Return the slots that changed; None after a rehash of all.
        """
        rehash = len(known) * _SLOTS_PER_ID > self.size
        if rehash:
            self._clear(2 * len(known))
        rows = torch.arange(self.count, len(known))
        slots, tags = self.slots_and_tags(known[self.count :])
        filled, changed, steps = tags | rows, [slots[:0]], 0
        while len(rows):
            steps += 1
            # If several rows probe one free slot, the first gets it and the others probe the next.
            free = self.slots[slots] == _FREE
            taken, which = slots[free].unique(return_inverse=True)
            changed.append(taken)
            first = torch.full_like(taken, len(known)).scatter_reduce(0, which, rows[free], "amin")
            self.slots[taken] = filled[first - self.count]
            left = self.slots[slots] & _ROW != rows
            rows, slots = rows[left], (slots[left] + 1) & (self.size - 1)
        self.slots[self.size :] = self.slots[: _WINDOW - 1]
        self.count, self.reach = len(known), max(self.reach, steps)
        return None if rehash else torch.cat(changed)

    def _search(self, slots: Tensor, ids: Tensor, known: Tensor) -> Tensor:
        """Probe window by window, up to the first free slot; return the rows, -1 for unknown ids."""
        result = torch.full_like(slots, -1)
        pending = torch.arange(len(slots), device=slots.device)
        windows = self._windows
        while len(pending):
            window = windows[slots]
            rows, free = window & _ROW, window == _FREE
            same = (known[rows] == ids[pending, None]).all(2) & ~free
            result[pending] = torch.where(same, rows, -1).amax(1)
            undecided = ~(same | free).any(1)
            slots, pending = (slots[undecided] + _WINDOW) & (self.size - 1), pending[undecided]
        return result

    def _clear(self, ids: int) -> None:
        """Allocate free slots for a number of ids; the first are repeated at the end, so windows are contiguous."""
        self.size = max(_SMALLEST, 1 << (ids * _SLOTS_PER_ID - 1).bit_length())
        self.slots = torch.full((self.size + _WINDOW - 1,), _FREE, dtype=torch.int64)
        self.count = self.reach = 0

    @property
    def _windows(self) -> Tensor:
        """Return a view of the window that starts at each slot; as an attribute it would be pickled as a copy."""
        return self.slots.unfold(0, _WINDOW, 1)

    def slots_and_tags(self, ids: Any) -> tuple[Any, Any]:
        """Hash the rows of a tensor or an array (n, columns); return the same type."""
        mixed = ids[:, 0] * _MIX[0]
        for column in range(1, ids.shape[1]):
            mixed = (mixed ^ ((mixed & _POSITIVE) >> 29)) * _MIX[1] + ids[:, column] * _MIX[2]
        mixed ^= (mixed & _POSITIVE) >> 32
        mixed *= _MIX[1]
        # The higher bits of a product depend on the most bits of the id.
        return ((mixed & _POSITIVE) >> 24) & (self.size - 1), mixed & _TAG


class DeviceIndex:
    """Hash index on the host with a copy of its rows on an accelerator: lookups there do not synchronise.

    Args:
        ids: (n, columns) distinct ids on the CPU; device: that of the ids to look up.
    """

    def __init__(self, ids: Tensor, device: torch.device) -> None:
        self._ids, self._count, self._index = ids, len(ids), HashIndex(ids)
        self._rows = send(self._index.slots & _ROW, device)

    def find(self, ids: Tensor, known: Tensor) -> Tensor:
        """Return the rows of `ids` (Q, columns) among the `known` (n, columns), -1 for unknown ids: (Q,)."""
        (slots, _), steps = self._index.slots_and_tags(ids), numbers(self._index.reach, ids.device)
        # A free slot looks like row 0, which is right for the id of that row.
        rows = self._rows[(slots[:, None] + steps) & (self._index.size - 1)]
        other = known[rows] != ids[:, None]
        other = other[:, :, 0] if ids.shape[1] == 1 else other.any(2)
        return rows.masked_fill(other, -1).amax(1)

    def add(self, ids: Tensor) -> None:
        """Add new ids (n, columns), given on the CPU."""
        count = self._count + len(ids)
        if count > len(self._ids):
            self._ids = _grow(self._ids, self._count, 2 * count)
        self._ids[self._count : count] = ids
        self._count = count
        changed = self._index.add(self._ids[:count])
        if changed is None:
            self._rows = send(self._index.slots & _ROW, self._rows.device)
        else:
            self._rows[send(changed, self._rows.device)] = send(self._index.slots[changed] & _ROW, self._rows.device)


class _Pending(NamedTuple):
    """Update with ids that have no row yet: ids (Q, columns), mask of new ids (Q,), their values (Q, width)."""

    ids: Tensor
    new: Tensor
    values: Tensor


def defer_new_ids(module: nn.Module) -> None:
    """Add the insertion of new ids into the tables of a module to the deferred checks.

    See `deferred_checks`. The host then synchronises once for both.
    """
    tables = [each for each in module.modules() if isinstance(each, IdTable) and each._pending is not None]
    if tables:
        new = [table._pending.new for table in tables if table._pending is not None]
        check_later(new[0] if len(new) == 1 else torch.cat(new), partial(_insert_pending, tables))
        for table in tables:
            table._deferred_with = pending_checks()


def _insert_pending(tables: list[IdTable]) -> None:
    """Insert the new ids of the last updates of some tables; the host synchronises once for all of them."""
    pending = [table._pending for table in tables]
    columns = [torch.cat([each.ids, each.new[:, None]], 1) for each in pending if each is not None]
    on_host = torch.cat([each.flatten() for each in columns]).cpu().split([each.numel() for each in columns])
    for table, each, shape, read in zip(tables, pending, columns, on_host, strict=True):
        assert each is not None
        table._pending = None
        rows = read.view(shape.shape).numpy()
        if rows[:, -1].any():
            table._insert(rows[:, :-1], rows[:, -1], each.values)


def _means(ids: Tensor, values: Tensor, chosen: Tensor | None, space: Space) -> tuple[Tensor, Tensor | None]:
    """Return, for each row of ids (Q, columns), the mean of its chosen values, and the mask of rows with any chosen.

    A row without any keeps its own values. If all are chosen, the mask is None.
    """
    group = _groups(ids)
    if chosen is None:
        one = filled((len(ids),), 1.0, values.dtype, values.device)
        counts = values.new_zeros(len(ids)).index_add_(0, group, one)
        return space.mean(values, group, counts.clamp_min_(1))[group], None
    counts = values.new_zeros(len(ids)).index_add_(0, group, chosen.to(values.dtype))
    zero = filled((), space.zero, values.dtype, values.device)
    given, touched = torch.where(chosen[:, None], values, zero), counts[group] > 0
    return torch.where(touched[:, None], space.mean(given, group, counts.clamp_min_(1))[group], values), touched


def _groups(ids: Tensor) -> Tensor:
    """Number the distinct rows of ids (Q, columns), below Q; return the number of each row: (Q,)."""
    if ids.device.type != "cpu" and len(ids) ** 2 <= _FEW:
        # The number is the index of the first equal row.
        same = ids[:, None] == ids
        same = same[:, :, 0] if ids.shape[1] == 1 else same.all(2)
        return same.byte().argmax(1)  # XLA aborts on the indices of `max`
    order = torch.argsort(ids[:, -1], stable=True)
    for column in range(ids.shape[1] - 2, -1, -1):
        order = order[torch.argsort(ids[order, column], stable=True)]
    ordered = ids[order]
    number = torch.nn.functional.pad((ordered[1:] != ordered[:-1]).any(1), (1, 0)).cumsum(0, dtype=torch.int64)
    return torch.empty_like(number).scatter_(0, order, number)


class PairAverages(nn.Module):
    """Moving averages u <- (1 - update_rate) u + update_rate observed, one for every (list, item) pair.

    The first observation of a pair starts its average; several of one pair in a batch are averaged. In eval mode the
    updated averages are returned, but not stored.

    Args:
        update_rate: weight of the new observation, in (0, 1].
        space: "linear", or "log" when observations and averages are logarithms of the numbers to average.

    Example:
        >>> averages = PairAverages(update_rate=0.5)
        >>> pair = torch.tensor([[3, 8]])
        >>> averages(pair, torch.tensor([2.0])), averages(pair, torch.tensor([4.0]))
        (tensor([2.]), tensor([3.]))
    """

    def __init__(self, update_rate: float = 0.1, space: str = "linear") -> None:
        super().__init__()
        self.update_rate = check_share("update_rate", update_rate, open_end=False)
        self._space = check_choice("space", space, SPACES)
        self.table = IdTable(width=1, columns=2)

    def extra_repr(self) -> str:
        return f"update_rate={self.update_rate:g}"

    def forward(self, pairs: Tensor, observed: Tensor, chosen: Tensor | None = None) -> Tensor:
        """Update the averages of the pairs (n, 2) with `observed` (n,); return them (n,), without gradient.

        `chosen` (n,) is the mask of the pairs that count; the averages of the others are undefined.
        """
        observed = observed.detach()
        averages = self.table.update(
            pairs,
            observed[:, None],
            self.update_rate,
            self._space,
            chosen=chosen,
            write=self.training,
            only_chosen=True,
        )
        return averages[:, 0].to(observed.dtype)
