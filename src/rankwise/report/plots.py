"""Series and axes from numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from rankwise.report.content import Axis, Numbers, Series

__all__ = ["Look", "axis", "curve", "log_axis", "plain", "shares_axis", "smoothed", "thinned"]

# (colour, dash): a line is told apart by its dash too, for readers who see no colours.
Look = tuple[int, str]

INK, MUTED = 6, 7


def curve(
    x: ArrayLike,
    y: ArrayLike,
    name: str,
    look: Look,
    *,
    markers: bool = False,
    low: ArrayLike = (),
    high: ArrayLike = (),
) -> Series:
    """Return a line, with dots if `markers`, and with a range around it."""
    colour, dash = look
    shape = "line and dots" if markers else "line"
    return Series(name, plain(x), plain(y), colour, dash, shape, plain(low), plain(high))


def axis(
    title: str, values: Iterable[float], *, low: float | None = None, high: float | None = None, ticks: int = 6
) -> Axis:
    """Return a linear axis that holds all values, between round numbers; `low` and `high` where an end is given.

    Example:
        >>> [text for _, text in axis("x", [0.13, 0.87]).ticks]
        ['0.2', '0.4', '0.6', '0.8']
    """
    known = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
    bottom, top = min(known) if low is None else low, max(known) if high is None else high
    if top - bottom <= 1e-12 * max(1.0, abs(top)):
        bottom, top = bottom - 0.5, top + 0.5
    margin = 0.04 * (top - bottom)
    bottom, top = bottom - margin if low is None else bottom, top + margin if high is None else top
    step = _round_step((top - bottom) / ticks)
    first = math.ceil(bottom / step - 1e-9)
    values = [number * step for number in range(first, math.floor(top / step + 1e-9) + 1)]
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    return Axis(title, bottom, top, tuple((tick, f"{tick:,.{digits}f}") for tick in values))


def shares_axis(title: str) -> Axis:
    """Return an axis from 0 to 1, in percent."""
    return Axis(title, 0.0, 1.0, tuple((share / 5, f"{share * 20} %") for share in range(6)))


def log_axis(title: str, ticks: Sequence[float], *, margin: float = 1.1) -> Axis:
    """Return a logarithmic axis with the ticks given."""
    return Axis(title, min(ticks) / margin, max(ticks) * margin, tuple((tick, f"{tick:g}") for tick in ticks), log=True)


def powers_axis(title: str, values: Iterable[float]) -> Axis:
    """Return a logarithmic axis that holds all values, with ticks at powers of 10, and between them if these are
    few.
    """
    known = [value for value in values if value > 0 and math.isfinite(value)] or [1.0, 10.0]
    low, high = min(known) / 1.15, max(known) * 1.15
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1,) if math.log10(high / low) > 2.5 else (1, 2, 5)
    ticks = [factor * 10.0**power for power in powers for factor in factors]
    return Axis(title, low, high, tuple((at, f"{at:g}") for at in ticks if low <= at <= high), log=True)


def thinned(count: int, most: int) -> list[int]:
    """Return at most `most` of the indices 0 .. count - 1, evenly spread, with the first and the last."""
    if count <= most:
        return list(range(count))
    return [round(number * (count - 1) / (most - 1)) for number in range(most)]


def plain(values: ArrayLike) -> Numbers:
    """Round to five significant digits, more than a plot can show."""
    return tuple(float(f"{value:.5g}") for value in np.asarray(values, dtype=np.float64).tolist())


def _round_step(step: float) -> float:
    """Return the next of 1, 2, 5, 10, 20, ... times a power of ten."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= step * (1 - 1e-9))


STRETCHES = 150


def smoothed(losses: Sequence[float]) -> tuple[list[float], list[float]]:
    """Return the ends of up to 150 stretches of about equal length, and the mean loss of each.

    Example:
        >>> smoothed([3.0, 1.0])
        ([1.0, 2.0], [3.0, 1.0])
    """
    ends = sorted({round((number + 1) * len(losses) / STRETCHES) for number in range(STRETCHES)} - {0})
    starts = [0, *ends[:-1]]
    means = [sum(losses[start:end]) / (end - start) for start, end in zip(starts, ends, strict=True)]
    return [float(end) for end in ends], means
