"""An end that a command announces itself."""

from __future__ import annotations

__all__ = ["FAILED", "INTERRUPTED", "Stop"]

FAILED = 1
INTERRUPTED = 130  # what a shell reports for a program ended by Ctrl-C


class Stop(Exception):
    """The program ends with this message and exit code."""

    def __init__(self, message: str, code: int = FAILED) -> None:
        super().__init__(message)
        self.code = code
