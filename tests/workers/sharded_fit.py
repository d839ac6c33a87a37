"""One rank of a training whose parameters are sharded by FSDP2."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed
from lightning_fabric import Fabric
from lightning_fabric.strategies import ModelParallelStrategy
from torch.distributed.fsdp import fully_shard

from rankwise.training import Checkpoints, read_checkpoint
from workers.fitting import EIGHTS, eights, fit_with


def shard_all(joint: Any, mesh: Any) -> Any:
    return fully_shard(joint, mesh=mesh["data_parallel"])


def shard_nothing(joint: Any, mesh: Any) -> Any:
    return joint


def sharded_fabric(world: int, shard: Any = shard_all, data_parallel: int | None = None) -> Fabric:
    size = data_parallel or world
    strategy = ModelParallelStrategy(shard, data_parallel_size=size, tensor_parallel_size=world // size)
    fabric = Fabric(accelerator="cpu", devices=world, strategy=strategy)
    fabric.launch()
    return fabric


def fit_sharded(
    rank: int, world: int, environments: list[dict[str, str]], folder: str, loss: str, options: dict[str, Any]
) -> None:
    """Train 24 steps straight, then 24 more from the checkpoint of step 12; save the weights of both."""
    os.environ.update(environments[rank])
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    fabric = sharded_fabric(world)
    store = Checkpoints(Path(folder), keep=100)
    straight = fit_with(eights(loss), EIGHTS, steps=24, every=12, fabric=fabric, checkpoints=store, **options)
    start = read_checkpoint(store.folder / "step-00000012.pt")
    fabric = sharded_fabric(world)
    again = fit_with(eights(loss), EIGHTS, steps=24, every=12, fabric=fabric, start=start, **options)
    if rank == 0:
        torch.save({"straight": straight.model.state_dict(), "again": again.model.state_dict()}, f"{folder}/weights.pt")
    torch.distributed.barrier()


def refuse_sharded(rank: int, world: int, environments: list[dict[str, str]], folder: str) -> None:
    """Write the errors of a strategy that shards nothing, and of tensor parallelism."""
    os.environ.update(environments[rank])
    warnings.simplefilter("ignore")
    said = []
    for fabric in (sharded_fabric(world, shard_nothing), sharded_fabric(world, data_parallel=1)):
        try:
            fit_with(eights(), EIGHTS, steps=2, every=None, fabric=fabric)
        except ValueError as problem:
            said.append(str(problem))
    torch.save(said, f"{folder}/said-{rank}.pt")
    # The first rank holds the store of the process group: it must not end while another still uses it.
    torch.distributed.barrier()
