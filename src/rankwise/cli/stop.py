"""An end that a command announces itself."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["FAILED", "INTERRUPTED", "Stop", "sigterm_like_ctrl_c"]

FAILED = 1
INTERRUPTED = 130  # what a shell reports for a program ended by Ctrl-C


class Stop(Exception):
    """The program ends with this message and exit code."""

    def __init__(self, message: str, code: int = FAILED) -> None:
        super().__init__(message)
        self.code = code


@contextmanager
def sigterm_like_ctrl_c() -> Iterator[None]:
    """While entered, a request to end raises KeyboardInterrupt, as Ctrl-C does; only the main thread can ask for it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
