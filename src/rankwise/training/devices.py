"""Where a run takes place: device, number of processes, precision."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from datetime import timedelta

import torch
from lightning_fabric import Fabric
from lightning_fabric.strategies.ddp import DDPStrategy

from rankwise.checks import check_choice, check_positive

__all__ = ["PRECISIONS", "Place", "make_fabric"]

PRECISIONS = {"32": "32-true", "64": "64-true", "bf16": "bf16-mixed", "fp16": "16-mixed"}


@dataclass(frozen=True)
class Place:
    """Where a run takes place.

    Attributes:
        accelerator: "cpu", "cuda", or "auto" for what there is.
        devices: how many processes on this machine, one device each; started by this program unless `torchrun` or
            SLURM has started them, which then say how many.
        precision: "32"; "64"; "bf16" or "fp16" for mixed precision: half in the model, full in the loss.
        timeout: after so many seconds without an answer from another process the run ends, as that one must hang.
    """

    accelerator: str = "cpu"
    devices: int = 1
    precision: str = "32"
    timeout: float = 1800.0

    def __post_init__(self) -> None:
        check_choice("accelerator", self.accelerator, ("cpu", "cuda", "auto"))
        check_choice("precision", self.precision, PRECISIONS)
        if isinstance(self.devices, bool) or not isinstance(self.devices, int) or self.devices < 1:
            raise ValueError(f"devices: expected a whole number of at least 1, got {self.devices!r}")
        check_positive("timeout", self.timeout)
        if self.accelerator == "cuda" and not torch.cuda.is_available():
            raise ValueError('accelerator: expected a CUDA device for "cuda", found none (use "cpu")')
        if self.precision == "fp16" and not self._on_gpu:
            raise ValueError('precision: expected "32", "64" or "bf16" on the CPU, got "fp16"')

    @property
    def _on_gpu(self) -> bool:
        return self.accelerator != "cpu" and torch.cuda.is_available()


def make_fabric(place: Place) -> Fabric:
    """A started Fabric; in every process of a run this must come before anything costly."""
    devices, nodes = place.devices, 1
    if "LOCAL_WORLD_SIZE" in os.environ:  # started by torchrun
        devices = int(os.environ["LOCAL_WORLD_SIZE"])
        nodes = int(os.environ["WORLD_SIZE"]) // devices
    with warnings.catch_warnings():
        # Advice about faster set-ups; the caller has chosen.
        warnings.simplefilter("ignore")
        fabric = Fabric(
            accelerator="cuda" if place._on_gpu else "cpu",
            devices=devices,
            num_nodes=nodes,
            strategy=DDPStrategy(timeout=timedelta(seconds=place.timeout)) if devices * nodes > 1 else "auto",
            precision=PRECISIONS[place.precision],  # type: ignore[arg-type]
        )
        fabric.launch()
    return fabric
