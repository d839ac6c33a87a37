"""Random numbers that are a pure function of counters."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["counted_uniform"]

# The increment and the two factors of splitmix64 (Steele et al., 2014), as signed 64-bit numbers.
_INCREMENT, _FIRST, _SECOND = (n - 2**64 for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def counted_uniform(seed: int, *counters: Tensor) -> Tensor:
    """Uniform numbers in (0, 1), float64, one for every combination of counters.

    The same seed and counters give the same number on any device, whatever else is drawn. Another seed or counter
    gives one that is as good as independent.

    Args:
        seed: any int64.
        counters: int64 tensors, shaped so that they broadcast.

    Example:
        >>> a, b = counted_uniform(0, torch.tensor([0, 7])), counted_uniform(0, torch.tensor([7]))
        >>> a.shape, bool(a[1] == b[0])
        (torch.Size([2]), True)
    """
    state = _mix(torch.full((), seed, dtype=torch.int64, device=counters[0].device))
    for counter in counters:
        state = _mix(state + counter)
    # The upper 53 bits, half a step away from both ends.
    return (_shift(state, 11).double() + 0.5) * 2.0**-53


def _mix(state: Tensor) -> Tensor:
    # Integer arithmetic wraps around, as the method wants it.
    state = state + _INCREMENT
    state = (state ^ _shift(state, 30)) * _FIRST
    state = (state ^ _shift(state, 27)) * _SECOND
    return state ^ _shift(state, 31)


def _shift(state: Tensor, bits: int) -> Tensor:
    """To the right, filling with zeros; torch fills with the sign."""
    return (state >> bits) & ((1 << (64 - bits)) - 1)
