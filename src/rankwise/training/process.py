"""State of the process during a training: signals, seen between two steps, and torch's random state."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from lightning_fabric import Fabric
from torch import Tensor

from rankwise.distributed import gather_rows

__all__ = ["Interrupted", "Interrupts", "RandomState"]

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
        """Return whether any process was asked to end; all processes must call it at the same step."""
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


class RandomState:
    """Random state of this process during a run.

    The first process continues with the state that built the model; the others get their own, so that dropout differs
    between them.
    """

    def __init__(self, fabric: Fabric, seed: int) -> None:
        self._fabric, self._seed = fabric, seed
        if fabric.global_rank > 0:
            self._reseed(step=0)

    @staticmethod
    @contextmanager
    def kept(device: torch.device) -> Iterator[None]:
        """Leave the random state of the caller as it was."""
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            yield

    def save(self) -> list[Tensor]:
        """The states of all processes, in the order of their ranks."""
        own = torch.get_rng_state()
        if self._fabric.device.type == "cuda":
            own = torch.cat([own, torch.cuda.get_rng_state(self._fabric.device)])
        return [state.clone() for state in gather_rows(own[None].to(self._fabric.device)).cpu()]

    def load(self, states: Sequence[Tensor], step: int) -> None:
        """Take up a saved state; with more processes than were saved, the new ones start from the step's number."""
        if self._fabric.global_rank >= len(states):
            self._reseed(step)
            return
        own = states[self._fabric.global_rank]
        size = len(torch.get_rng_state())
        # Copies: torch takes the start of the storage for the start of the state.
        torch.set_rng_state(own[:size].clone())
        if self._fabric.device.type == "cuda" and len(own) > size:
            torch.cuda.set_rng_state(own[size:].clone(), self._fabric.device)

    def _reseed(self, step: int) -> None:
        mixed = np.random.SeedSequence([self._seed, self._fabric.global_rank, step]).generate_state(1, np.uint64)
        torch.manual_seed(int(mixed[0]))
