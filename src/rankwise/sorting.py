"""Device-specific fast paths: stable sorts, and constants.

On the CPU a sort packs float32 values with their index into int64 keys. An accelerator computes each constant once,
because it would take a kernel in every step."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from threading import Thread
from typing import ParamSpec

import numpy as np
import torch
from torch import Tensor
from torch._guards import detect_fake_mode

from rankwise.checks import on_host, outside_inference_mode

__all__ = ["Descending", "argsort", "filled", "numbers", "once_on_device", "sort_values"]

# Least number of values per thread. With fewer, torch's own threads still spin on the cores.
_VALUES_PER_THREAD = 2_000_000
# A key holds a value in its upper 32 bits and its index in the lower.
_INDEX_BITS = 0xFFFFFFFF
_HIGH_HALF = 1 if sys.byteorder == "little" else 0

P = ParamSpec("P")


def argsort(values: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the indices of a stable ascending sort along the last axis; elements outside `mask` come last.

    On the CPU a float32 and its index are sorted as one 64-bit key by numpy's vectorised sort, which is several
    times faster than an indirect sort.

    Args:
        values: (..., L) finite numbers.
        mask: (..., L) boolean, or None when there is no padding.

    Example:
        >>> argsort(torch.tensor([[.3, .1, .3, .2]]))
        tensor([[1, 3, 0, 2]])
    """
    values = _sortable(values)
    if _fits_packed(values):
        return torch.from_numpy(_sort_packed(values + 0.0, mask)).bitwise_and_(_INDEX_BITS)
    if mask is not None:
        values = torch.where(mask, values, filled((), torch.inf, values.dtype, values.device))
    return torch.argsort(values, dim=-1, stable=True)


class Descending:
    """Stable descending sort along the last axis; elements outside `mask` come last.

    Args:
        values: (..., L) finite numbers.
        mask: (..., L) boolean, or None when there is no padding.

    Attributes:
        joins: (..., L - 1) True where a sorted value, from the second on, equals the one before; padding included.

    Example:
        >>> falling = Descending(torch.tensor([[.3, .1, .3, .2]]))
        >>> falling.indices(2), falling.joins
        (tensor([[0, 2]]), tensor([[ True, False, False]]))
    """

    def __init__(self, values: Tensor, mask: Tensor | None = None) -> None:
        values = _sortable(values)
        if _fits_packed(values):
            # `indices` reads the indices from the keys, only as many as needed.
            self._keys = torch.from_numpy(_sort_packed(0.0 - values, mask))
            ordered = _halves(self._keys)[..., _HIGH_HALF]
        else:
            self._keys = argsort(-values, mask)
            ordered = values.gather(-1, self._keys)
        self.joins = ordered[..., 1:] == ordered[..., :-1]

    def indices(self, width: int | None = None) -> Tensor:
        """Return the indices in `values` of the first `width` sorted elements, or of all."""
        return self._keys[..., :width] & _INDEX_BITS


def sort_values(values: Tensor, *, in_place: bool = False) -> Tensor:
    """Sort along the last axis, ascending; on the CPU by numpy's vectorised sort, which can work `in_place`."""
    if not on_host(values) or values.dtype not in (torch.float32, torch.float64, torch.int64):
        return torch.sort(values, dim=-1).values
    values = values.detach()
    array = (values.contiguous() if in_place else values.clone(memory_format=torch.contiguous_format)).numpy()
    _sort_rows(array)
    return torch.from_numpy(array)


def _sortable(values: Tensor) -> Tensor:
    values = values.detach()
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def _fits_packed(values: Tensor) -> bool:
    return on_host(values) and values.dtype == torch.float32 and values.shape[-1] < 2**31


def _sort_packed(values: Tensor, mask: Tensor | None) -> np.ndarray:
    """Return sorted keys. The values must not contain -0.0, and may be overwritten."""
    bits = values.contiguous().view(torch.int32)
    if mask is not None:
        bits.masked_fill_(~mask, 0x7FFFFFFF)
    keys = torch.empty(bits.shape, dtype=torch.int64)
    halves = _halves(keys)
    halves[..., 1 - _HIGH_HALF] = torch.arange(bits.shape[-1], dtype=torch.int32)
    # With the lower 31 bits of negative floats flipped, the int32 order of the bits is the float order.
    torch.bitwise_xor(bits, (bits >> 31).bitwise_and_(0x7FFFFFFF), out=halves[..., _HIGH_HALF])
    array: np.ndarray = keys.numpy()
    _sort_rows(array)
    return array


def _halves(keys: Tensor) -> Tensor:
    return keys.unsqueeze(-1).view(torch.int32)


def _sort_rows(array: np.ndarray) -> None:
    """Sort each row in place, with the rows distributed over at most as many threads as torch uses."""
    threads = min(torch.get_num_threads(), array.size // _VALUES_PER_THREAD) if array.ndim == 2 else 1
    first, *others = np.array_split(array, threads) if threads > 1 else (array,)
    helpers = [Thread(target=part.sort) for part in others]
    for helper in helpers:
        helper.start()
    first.sort()
    for helper in helpers:
        helper.join()


def once_on_device(make: Callable[P, Tensor]) -> Callable[P, Tensor]:
    """Wrap a function whose last argument is a device so that it returns a cached tensor on an accelerator.

    Nobody may write to that tensor.
    """
    cached = functools.lru_cache(maxsize=256)(torch.no_grad()(outside_inference_mode(make)))

    @functools.wraps(make)
    def call(*arguments: P.args, **options: P.kwargs) -> Tensor:
        device = arguments[-1]
        assert isinstance(device, torch.device)
        # Tensors that torch.compile traces have no values to keep.
        if device.type == "cpu" or detect_fake_mode() is not None:
            return make(*arguments, **options)
        return cached(*arguments)

    return call


@once_on_device
def numbers(count: int, device: torch.device) -> Tensor:
    """Return 0, 1, 2, ... as int64, (count,)."""
    return torch.arange(count, device=device)


@once_on_device
def filled(shape: tuple[int, ...], value: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return a tensor of one number."""
    return torch.full(shape, value, dtype=dtype, device=device)
