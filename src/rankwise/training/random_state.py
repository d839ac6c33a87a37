"""Torch's random state in a run: apart from the caller's, one per process, saved and loaded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor

from rankwise.distributed import gather_rows

__all__ = ["RandomState"]


class RandomState:
    """The random state of this process during a run.

    The first process goes on with the state that built the model; the others get one of their own, so that dropout
    differs between them.
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
