"""Fabric from the options of a run: device, number of processes, precision."""

from __future__ import annotations

import os
import warnings
from datetime import timedelta

from lightning_fabric import Fabric
from lightning_fabric.strategies.ddp import DDPStrategy

from rankwise.training.options import DeviceOptions

__all__ = ["make_fabric"]

PRECISIONS = {"32": "32-true", "64": "64-true", "bf16": "bf16-mixed", "fp16": "16-mixed"}


def make_fabric(options: DeviceOptions) -> Fabric:
    """Return a started Fabric; every process of a run must call this before anything costly."""
    devices, nodes = options.devices, 1
    if "LOCAL_WORLD_SIZE" in os.environ:  # started by torchrun
        devices = int(os.environ["LOCAL_WORLD_SIZE"])
        nodes = int(os.environ["WORLD_SIZE"]) // devices
    with warnings.catch_warnings():
        # Fabric advises faster settings; the caller has chosen.
        warnings.simplefilter("ignore")
        fabric = Fabric(
            accelerator="cuda" if options.on_gpu else "cpu",
            devices=devices,
            num_nodes=nodes,
            strategy=DDPStrategy(timeout=timedelta(seconds=options.timeout)) if devices * nodes > 1 else "auto",
            precision=PRECISIONS[options.precision],  # type: ignore[arg-type]
        )
        fabric.launch()
    return fabric
