"""An end that a command announces itself."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["FAILED", "INTERRUPTED", "Stop", "is_first_process", "lost_a_process", "sigterm_like_ctrl_c"]

FAILED = 1
INTERRUPTED = 130  # what a shell reports for a program ended by Ctrl-C


class Stop(Exception):
    """The program ends with this message and exit code."""

    def __init__(self, message: str, code: int = FAILED) -> None:
        super().__init__(message)
        self.code = code


@contextmanager
def sigterm_like_ctrl_c() -> Iterator[None]:
    """Make a request to end raise KeyboardInterrupt, as Ctrl-C does; only the main thread can ask for it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def is_first_process() -> bool:
    """Return whether this process prints for the run; the others print errors only."""
    names = ("RANK", "LOCAL_RANK", "SLURM_PROCID")  # set by torchrun, by this program, by srun
    return next((os.environ[name] for name in names if name in os.environ), "0") == "0"


def lost_a_process(problem: RuntimeError) -> bool:
    """Return whether an error means that another process of the run has ended."""
    signs = ("closed by peer", "connection reset", "broken pipe", "connection refused", "timed out", "nccl error")
    world = os.environ.get("WORLD_SIZE", os.environ.get("SLURM_STEP_NUM_TASKS", "1"))
    return int(world) > 1 and any(sign in str(problem).lower() for sign in signs)
