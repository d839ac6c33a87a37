"""How much memory this process holds, and whether that grows."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

__all__ = ["resident_mib", "slope_per_hour"]


def resident_mib() -> float:
    """The resident memory of this process, as Linux states it."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def slope_per_hour(seconds: Sequence[float], mib: Sequence[float]) -> tuple[float, float]:
    """MiB an hour by least squares, and its standard error; NaN from fewer than three points.

    Example:
        >>> slope_per_hour([0, 1800, 3600], [100, 101, 102])[0]
        2.0
    """
    if len(seconds) < 3:
        return float("nan"), float("nan")
    hours, held = np.asarray(seconds) / 3600, np.asarray(mib)
    centred = hours - hours.mean()
    spread = float((centred**2).sum())
    slope = float((centred * held).sum()) / spread
    left = held - held.mean() - slope * centred
    return round(slope, 9), float(np.sqrt((left**2).sum() / (len(held) - 2) / spread))
