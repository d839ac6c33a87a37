"""A loss of many steps as a line that can be seen."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["smoothed"]

STRETCHES = 150


def smoothed(losses: Sequence[float]) -> tuple[list[float], list[float]]:
    """The ends of up to 150 stretches of about equal length, and the mean loss of each.

    Example:
        >>> smoothed([3.0, 1.0])
        ([1.0, 2.0], [3.0, 1.0])
    """
    ends = sorted({round((number + 1) * len(losses) / STRETCHES) for number in range(STRETCHES)} - {0})
    starts = [0, *ends[:-1]]
    means = [sum(losses[start:end]) / (end - start) for start, end in zip(starts, ends, strict=True)]
    return [float(end) for end in ends], means
