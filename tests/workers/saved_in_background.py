"""Trainings whose checkpoints are written in the background."""

from __future__ import annotations

import os
import signal
import threading
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from rankwise.training import Checkpoints, Step, fit, make_fabric
from workers.patience import PATIENCE
from workers.sharded_tables import parts, problem


class Watched(Checkpoints):
    """Wait in the middle of the checkpoint of step 4 until step 6 is done; be killed before that of step 12 is whole.

    Args:
        killed: whether to be killed.
    """

    def __init__(self, folder: Path, *, killed: bool) -> None:
        super().__init__(folder, keep=100)
        self.later, self.killed = threading.Event(), killed
        self.at_end: list[str] = []

    def save(self, state: Any, step: int, *, best: bool = False) -> None:
        if step == 4:
            assert not (self.folder / "step-00000004.pt").exists()
            assert self.later.wait(PATIENCE), "the training waits for the checkpoint"
        if step == 12 and self.killed:
            os.kill(os.getpid(), signal.SIGKILL)
        super().save(state, step, best=best)

    def seen(self, step: Step) -> None:
        if step.number >= 6:
            self.later.set()


def fit_in_background(folder: Path, world: int, *, killed: bool = False, background: bool = True) -> None:
    """Go on from the newest checkpoint; the first process saves the weights at the end."""
    chosen = problem(world, checkpoints={"every": 4, "background": background, "keep": 100})
    schema, split = parts(chosen)
    store = Watched(folder, killed=killed) if background else Checkpoints(folder, keep=100)
    start, damaged = Checkpoints(folder, keep=100).newest()
    assert not damaged
    seen = store.seen if isinstance(store, Watched) else None
    fabric = make_fabric(chosen.device)
    fitted = fit(chosen, schema, split, fabric=fabric, checkpoints=store, start=start, on_step=seen)
    # The training has waited for its last checkpoint.
    assert (folder / "step-00000016.pt").exists()
    whole = {
        name: value.full_tensor() if world > 1 else value for name, value in fitted.model.state_dict().items()
    }  # fmt: skip
    if fabric.is_global_zero:
        torch.save(whole, folder / "end.pt")
    fabric.barrier()


def train_in_background(
    rank: int, world: int, environments: list[dict[str, str]], folder: str, killed: bool, background: bool
) -> None:
    os.environ.update(environments[rank])
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    fit_in_background(Path(folder), world, killed=killed, background=background)
    dist.barrier()
