"""Fast sorting: the limit of everything exact in this library."""

from __future__ import annotations

import sys
from threading import Thread

import numpy as np
import torch
from torch import Tensor

__all__ = ["Descending", "argsort", "sort_values"]

# Numbers to sort that are worth a thread: for fewer, those of torch, still waiting for work, leave it no core.
_WORTH_A_THREAD = 2_000_000
# A sorted key holds a number in its upper half, its place in the lower.
_PLACE = 0xFFFFFFFF
_HIGH_HALF = 1 if sys.byteorder == "little" else 0


def argsort(values: Tensor, mask: Tensor | None = None) -> Tensor:
    """Stable ascending argsort along the last axis; slots outside `mask` come last.

    On the CPU a float32 and its index are sorted as one 64-bit key by numpy's vectorised sort, which is several
    times faster than an indirect sort.

    Args:
        values: (..., L) finite numbers.
        mask: (..., L) boolean, or None when every slot counts.

    Example:
        >>> argsort(torch.tensor([[.3, .1, .3, .2]]))
        tensor([[1, 3, 0, 2]])
    """
    values = _sortable(values)
    if _fits_packed(values):
        return torch.from_numpy(_sort_packed(values + 0.0, mask)).bitwise_and_(_PLACE)
    if mask is not None:
        values = values.masked_fill(~mask, float("inf"))
    return torch.argsort(values, dim=-1, stable=True)


class Descending:
    """Numbers from the largest down, equal ones in the order they came in; slots outside `mask` come last.

    Args:
        values: (..., L) finite numbers.
        mask: (..., L) boolean, or None when every slot counts.

    Attributes:
        joins: (..., L - 1) which but the first equal the one before, slots outside `mask` among them.

    Example:
        >>> falling = Descending(torch.tensor([[.3, .1, .3, .2]]))
        >>> falling.places(2), falling.joins
        (tensor([[0, 2]]), tensor([[ True, False, False]]))
    """

    def __init__(self, values: Tensor, mask: Tensor | None = None) -> None:
        values = _sortable(values)
        if _fits_packed(values):
            # Places are told from keys only as far as they are asked for.
            self._keys = torch.from_numpy(_sort_packed(0.0 - values, mask))
            ordered = _halves(self._keys)[..., _HIGH_HALF]
        else:
            self._keys = argsort(-values, mask)
            ordered = values.gather(-1, self._keys)
        self.joins = ordered[..., 1:] == ordered[..., :-1]

    def places(self, width: int | None = None) -> Tensor:
        """Where the first `width` stood, or all of them."""
        return self._keys[..., :width] & _PLACE


def sort_values(values: Tensor, *, in_place: bool = False) -> Tensor:
    """Ascending along the last axis; on the CPU by numpy's vectorised sort, which may do so `in_place`."""
    if values.device.type != "cpu" or values.dtype not in (torch.float32, torch.float64, torch.int64):
        return torch.sort(values, dim=-1).values
    values = values.detach()
    array = (values.contiguous() if in_place else values.clone(memory_format=torch.contiguous_format)).numpy()
    _sort_rows(array)
    return torch.from_numpy(array)


def _sortable(values: Tensor) -> Tensor:
    values = values.detach()
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def _fits_packed(values: Tensor) -> bool:
    return values.device.type == "cpu" and values.dtype == torch.float32 and values.shape[-1] < 2**31


def _sort_packed(values: Tensor, mask: Tensor | None) -> np.ndarray:
    """Sorted keys. The numbers, without -0.0, may be overwritten."""
    bits = values.contiguous().view(torch.int32)
    if mask is not None:
        bits.masked_fill_(~mask, 0x7FFFFFFF)
    keys = torch.empty(bits.shape, dtype=torch.int64)
    halves = _halves(keys)
    halves[..., 1 - _HIGH_HALF] = torch.arange(bits.shape[-1], dtype=torch.int32)
    # Flipping the lower bits of negative floats makes their integer order that of the numbers.
    torch.bitwise_xor(bits, (bits >> 31).bitwise_and_(0x7FFFFFFF), out=halves[..., _HIGH_HALF])
    array: np.ndarray = keys.numpy()
    _sort_rows(array)
    return array


def _halves(keys: Tensor) -> Tensor:
    return keys.unsqueeze(-1).view(torch.int32)


def _sort_rows(array: np.ndarray) -> None:
    """Each row in place, the rows shared out among as many threads as torch has."""
    threads = min(torch.get_num_threads(), array.size // _WORTH_A_THREAD) if array.ndim == 2 else 1
    first, *others = np.array_split(array, threads) if threads > 1 else (array,)
    helpers = [Thread(target=part.sort) for part in others]
    for helper in helpers:
        helper.start()
    first.sort()
    for helper in helpers:
        helper.join()
