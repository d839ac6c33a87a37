"""What a reader has to know about the machine; nothing that tells which machine it is."""

from __future__ import annotations

import datetime
import os
import platform
import statistics
import time
from importlib import metadata

import torch

__all__ = ["machine_facts", "thread_gain"]

_PACKAGES = ("torch", "numpy", "libauc", "pytorch-metric-learning", "torchmetrics", "scikit-learn")


def machine_facts(gain: float, quick: bool = False) -> str:
    """One line: date, cores, threads and what they gained when starting, versions."""
    facts = [
        datetime.date.today().isoformat(),
        f"{os.cpu_count()} cores, no GPU used",
        f"{torch.get_num_threads()} threads, {gain:.1f} x as fast as one when starting",
        f"Python {platform.python_version()}",
        ", ".join(f"{name} {version}" for name in _PACKAGES if (version := _version(name))),
        "--quick: few runs" if quick else "",
    ]
    return "; ".join(fact for fact in facts if fact)


def thread_gain(threads: int) -> float:
    """How many times faster a small operation is on so many threads than on one; leaves torch with `threads`.

    Threads wait for each other at the end of every operation. Where another program holds one of the cores, that wait
    is thousands of times longer than the operation, and all times are of the waiting.
    """
    numbers = torch.rand(400_000)
    seconds = []
    for count in (1, threads):
        torch.set_num_threads(count)
        runs = []
        for _ in range(60):
            start = time.perf_counter()
            torch.exp(numbers)
            runs.append(time.perf_counter() - start)
        # The mean: a few long waits are what this is looking for.
        seconds.append(statistics.fmean(runs[10:]))
    return seconds[0] / seconds[1]


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""
