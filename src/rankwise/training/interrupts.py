"""Ctrl-C and a request to end, seen between two steps instead of in the middle of one."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

import torch
import torch.distributed as dist
from lightning_fabric import Fabric

__all__ = ["Interrupted", "Interrupts"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(Exception):
    """A run was asked to end; `step` is the last one done, and it is saved."""

    def __init__(self, step: int) -> None:
        super().__init__(f"stopped after step {step}, which is saved")
        self.step = step


class Interrupts:
    """While entered, the first Ctrl-C (or SIGTERM) is only noted; a second one ends the program at once.

    Args:
        watch: False leaves signals alone; so does a thread other than the main one.
    """

    def __init__(self, *, watch: bool) -> None:
        self._watch = watch and threading.current_thread() is threading.main_thread()
        self._before: dict[signal.Signals, Any] = {}
        self._noted = False

    def __enter__(self) -> Interrupts:
        if self._watch:
            self._before = {number: signal.signal(number, self._note) for number in _SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, where: TracebackType | None
    ) -> None:
        self._restore()

    def seen(self, fabric: Fabric) -> bool:
        """Whether any process of the run was asked to end; to be asked by all of them at the same time."""
        if fabric.world_size == 1 or not self._watch:
            return self._noted
        noted = torch.tensor(int(self._noted), device=fabric.device)
        dist.all_reduce(noted, dist.ReduceOp.MAX)
        return bool(noted)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._noted = True
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}
