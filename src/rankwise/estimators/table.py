"""Rows of numbers kept per id."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rankwise.estimators.hashing import HashIndex
from rankwise.estimators.spaces import LINEAR, Space
from rankwise.lists import every
from rankwise.modes import outside_inference_mode

__all__ = ["IdTable"]


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
