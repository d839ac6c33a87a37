"""How much of an audit is done."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Steps"]


class Steps:
    """Counts steps of equal size and tells who wants to know.

    Args:
        total: how many there are.
        on_progress: called after each with the share that is done, from 0 to 1.
    """

    def __init__(self, total: int, on_progress: Callable[[float], None] | None) -> None:
        self.total, self.count, self.on_progress = total, 0, on_progress

    def done(self) -> None:
        self.count += 1
        if self.on_progress is not None:
            self.on_progress(self.count / self.total)
