"""The memory that is free, and one clear error where data would not fit into it."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["check_fits", "free_memory"]

_GIB = 1 << 30


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
    """Refuse data that would need more memory than is free.

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
