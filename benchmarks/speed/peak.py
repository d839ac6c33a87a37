"""Peak memory of one call, in a process of its own: `python -m benchmarks.speed.peak GROUP ROW CONTENDER`.

What is measured: the highest resident memory of the process during one call (forward and backward of a loss), less
the resident memory just before it, when libraries are imported, the inputs and the loss object are made, and the
contender has solved a small problem of the same kind, so that code pages, thread stacks and the buffers of the linear
algebra library are not counted. From VmHWM and VmRSS of /proc/self/status, after resetting the former. The maximum that
`getrusage` reports will not do: a new process starts with the one of its parent. Elsewhere than on Linux: not measured.
"""

from __future__ import annotations

import gc
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.speed.contest import Contender, Row

__all__ = ["THREADS", "Peak", "peak_in_new_process", "peak_mib"]

THREADS = 2

_STATUS = Path("/proc/self/status")
_RESET = Path("/proc/self/clear_refs")
_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Peak:
    """MiB of the call beyond what was there before it, and of the whole process; None where `note` says why."""

    call: float | None = None
    process: float | None = None
    note: str = ""


def peak_in_new_process(group: str, row: str, contender: str) -> Peak:
    if not _RESET.exists():
        return Peak(note="memory: measured on Linux only")
    command = [sys.executable, "-m", "benchmarks.speed.peak", group, row, contender]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        return Peak(note=f"memory: {lines[-1] if lines else f'ended with {done.returncode}'}")
    call, process = map(float, done.stdout.split()[-2:])
    return Peak(call, process)


def peak_mib(row: Row, contender: Contender) -> tuple[float, float]:
    """MiB of the call, and of the whole process."""
    contender.prepare(row.small())()
    call = contender.prepare(row.make())
    gc.collect()
    _RESET.write_text("5")
    before = _kib("VmRSS")
    call()
    highest = _kib("VmHWM")
    return (highest - before) / 1024, highest / 1024


def _kib(field: str) -> int:
    found = re.search(rf"{field}:\s+(\d+) kB", _STATUS.read_text())
    if found is None:
        raise RuntimeError(f"no {field} in {_STATUS}")
    return int(found[1])


def _main() -> None:
    from benchmarks.speed.groups import find_group

    torch.set_num_threads(THREADS)
    group, row, contender = sys.argv[1:]
    found = find_group(group).row(row)
    print(*peak_mib(found, found.contender(contender)))


if __name__ == "__main__":
    _main()
