"""Rows of numbers kept per id."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["IdTable"]


class IdTable(nn.Module):
    """A table with one row of `width` numbers for every id that has been seen; ids are any int64.

    The rows are moving averages: `row <- (1 - update_rate) row + update_rate value`. An id's first value starts its
    row; several values of one id in a call are averaged first. The whole state is the two buffers `ids` (sorted) and
    `rows`, so that `.to()`, `state_dict()` and `load_state_dict()` do what they do for any module; a saved table of
    another size loads as it is. Rows stay in float32 at least.

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

    ids: Tensor
    rows: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.register_buffer("ids", torch.empty(0, dtype=torch.int64))
        self.register_buffer("rows", torch.empty(0, width))

    def __len__(self) -> int:
        return len(self.ids)

    def read(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """The rows of `ids` (Q,) as (Q, width), zeros where an id is unknown, and which are known (Q,)."""
        if not len(self):
            return self.rows.new_zeros(len(ids), self.width), torch.zeros_like(ids, dtype=torch.bool)
        place, known = self._find(ids)
        return self.rows[place].masked_fill(~known[:, None], 0), known

    @torch.no_grad()
    def update(self, ids: Tensor, values: Tensor, update_rate: float) -> Tensor:
        """Move the rows of `ids` (Q,) towards `values` (Q, width); gives them as they are then, (Q, width)."""
        if not len(ids):
            return values.to(self.rows.dtype)
        distinct, inverse, counts = ids.unique(return_inverse=True, return_counts=True)
        sums = self.rows.new_zeros(len(distinct), self.width).index_add_(0, inverse, values.to(self.rows.dtype))
        now: Tensor = sums / counts[:, None]
        place, known = self._find(distinct)
        if bool(known.all()):
            now = self.rows[place].lerp(now, update_rate)
            self.rows[place] = now
        else:
            now[known] = self.rows[place[known]].lerp(now[known], update_rate)
            self.rows[place[known]] = now[known]
            self.ids, order = torch.cat([self.ids, distinct[~known]]).sort()
            self.rows = torch.cat([self.rows, now[~known]])[order]
        return now[inverse]

    def _find(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        if not len(self):
            return torch.zeros_like(ids), torch.zeros_like(ids, dtype=torch.bool)
        place = torch.searchsorted(self.ids, ids).clamp_max(len(self) - 1)
        return place, self.ids[place] == ids

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
        if ids is not None and rows is not None and rows.shape == (len(ids), self.width):
            self.ids, self.rows = self.ids.new_empty(ids.shape), self.rows.new_empty(rows.shape)
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> IdTable:
        exact = self.rows
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if self.rows.dtype in (torch.float16, torch.bfloat16):
            self.rows = exact.to(self.rows.device)
        return self
