"""Saving a training: at once, or in the background from a copy while it goes on."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from threading import Thread
from typing import Any

import torch.distributed as dist
from lightning_fabric import Fabric
from torch import Tensor
from typing_extensions import Self

from rankwise.training.checkpoints import SHARDS, Checkpoints

__all__ = ["Saver"]


class Saver:
    """Write checkpoints of a training in step with all processes; on leaving the context the last one is complete.

    In the background a thread writes a copy of the state, with the guarantees of `Checkpoints`; the next checkpoint
    waits for it. An error of the thread is raised by the next call.

    Args:
        checkpoints: where to save.
        fabric: of the training.
        apart: whether processes have state of their own, which each writes itself.
        background: whether the training goes on while a checkpoint is written.
        timeout: seconds after which a process gives up to wait for the others.
    """

    def __init__(
        self, checkpoints: Checkpoints, fabric: Fabric, *, apart: bool, background: bool, timeout: float
    ) -> None:
        self.checkpoints, self.fabric, self.apart, self.background = checkpoints, fabric, apart, background
        # The training uses the common group meanwhile.
        self._group: dist.ProcessGroup | None = None
        if background and apart:
            group = dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout))
            assert isinstance(group, dist.ProcessGroup)
            self._group = group
        self._thread: Thread | None = None
        self._failure: BaseException | None = None

    def save(self, state: dict[str, Any], own: Mapping[str, Tensor], step: int, *, best: bool) -> None:
        """Save a state, and what only this process has of it; every process must call it at the same time."""
        if not self.background:
            self._write(state, own, step, best)
            self.fabric.barrier()
            return
        self.wait()
        self._thread = Thread(target=self._try_to_write, args=(_copied(state), _copied(own), step, best))
        self._thread.start()

    def wait(self) -> None:
        """Return when the last checkpoint is written."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.wait()
        except Exception:
            if kind is None:  # otherwise the training has an error of its own
                raise
        if self.background and kind is None:
            self.fabric.barrier()  # the first process has written, so all may read

    def _try_to_write(self, state: dict[str, Any], own: Mapping[str, Tensor], step: int, best: bool) -> None:
        try:
            self._write(state, own, step, best)
        except BaseException as failure:
            self._failure = failure

    def _write(self, state: dict[str, Any], own: Mapping[str, Tensor], step: int, best: bool) -> None:
        if self.apart:
            state[SHARDS] = self.checkpoints.save_shards(own, step, self._group)
        if self.fabric.is_global_zero:
            self.checkpoints.save(state, step, best=best)


def _copied(state: Any) -> Any:
    """Return a state with tensors, mappings and lists of its own."""
    if isinstance(state, Tensor):
        return state.detach().clone()
    if isinstance(state, Mapping):
        return {key: _copied(value) for key, value in state.items()}
    return type(state)(map(_copied, state)) if type(state) in (list, tuple) else state
