"""The memory that is free, and one clear error where data would not fit into it."""

from __future__ import annotations

import ctypes
import re
import sys
import warnings
from contextlib import suppress
from pathlib import Path

from rankwise.data.schema import DataNote

__all__ = ["check_fits", "free_memory", "release_memory"]

_GIB = 1 << 30
# Data that take more than this share of the free memory are worth a word before they are read.
LARGE_SHARE = 0.25


def free_memory(proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return the bytes that this process may still take, by the system and its control group; None if unknown."""
    limits: list[int] = []
    try:
        match = re.search(r"^MemAvailable:\s+(\d+) kB", (proc / "meminfo").read_text(), re.MULTILINE)
        limits += [int(match[1]) * 1024] if match else []
    except OSError:
        pass
    try:
        most, used = ((cgroup / f"memory.{name}").read_text().strip() for name in ("max", "current"))
        limits += [] if most == "max" else [int(most) - int(used)]
    except (OSError, ValueError):
        pass
    return max(0, min(limits)) if limits else None


def check_fits(name: object, needed: float, hint: str) -> None:
    """Refuse data that would need more memory than is free; say with a `DataNote` if they need a large share of it.

    Args:
        name: of the data, the beginning of the error.
        needed: bytes, an estimate.
        hint: what to do instead.
    """
    free = free_memory()
    if free is not None and needed > free:
        raise ValueError(
            f"{name}: expected data that fit into memory, got about {needed / _GIB:.1f} GiB with {free / _GIB:.1f} GiB "
            f"free; {hint}"
        )
    if free is not None and needed > LARGE_SHARE * free:
        warnings.warn(
            f"{name}: will take about {needed / _GIB:.1f} GiB of the {free / _GIB:.1f} GiB of memory that are free; "
            f"{hint}",
            DataNote,
            stacklevel=3,
        )


def release_memory() -> None:
    """Return freed memory to the system, where the C library can (glibc keeps hundreds of MiB after large sorts)."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)
