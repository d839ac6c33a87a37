"""One rank of a training that goes on from the checkpoint of another number of ranks."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from lightning_fabric import Fabric
from lightning_fabric.strategies import DDPStrategy

from rankwise.data import Part, Split, TableSchema
from rankwise.problems import SearchRanking
from rankwise.training import Checkpoints, fit
from workers.sharded_fit import sharded_fabric

STEPS = 16
PRECISION: dict[str, Any] = {"ddp": "64-true", "fsdp": "32-true"}  # FSDP2 knows no float64


def search_lists() -> Split[Part]:
    random = torch.Generator().manual_seed(0)
    features = torch.randn(40 * 12, 5, generator=random)
    grades = (features[:, 0] + torch.randn(480, generator=random) > 0.5).long()
    whole = Part(features, grades, torch.arange(480) // 12)
    return Split(*(whole.take(rows) for rows in torch.arange(480).split([384, 48, 48])))


def fit_on(fabric: Fabric, folder: Path, until: int) -> Any:
    """Go on from the newest checkpoint until a step; the lists of a batch are sampled, so that items have state."""
    store = Checkpoints(folder, keep=100)
    problem = SearchRanking(
        model={"hidden": (8,)},
        loss={"name": "k-song", "k": 5},
        batches={"queries": 10, "relevant": 3, "irrelevant": 4},
        budget={"steps": STEPS},
        evaluation={"every": 4, "weights": "last"},
        average={"after": 0.2},
    )
    start, damaged = store.newest()
    assert not damaged
    split = search_lists()
    schema = TableSchema.of(split.train)
    return fit(problem, schema, split, fabric=fabric, checkpoints=store, start=start, stop_after=until / STEPS)


def go_on(rank: int, world: int, environments: list[dict[str, str]], folder: str, until: int, way: str) -> None:
    """Train on some ranks; rank 0 saves the weights and the whole state of the loss."""
    os.environ.update(environments[rank])
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if way == "fsdp":
        fabric = sharded_fabric(world)
    else:
        gloo = DDPStrategy(process_group_backend="gloo")
        fabric = Fabric(accelerator="cpu", devices=world, strategy=gloo, precision=PRECISION[way])
        fabric.launch()
    fitted = fit_on(fabric, Path(folder), until)
    if rank == 0:
        torch.save({"model": fitted.model.state_dict(), "loss": fitted.loss.state_dict()}, f"{folder}/end.pt")
    dist.barrier()
