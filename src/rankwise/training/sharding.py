"""Parameters sharded over processes (FSDP2): which strategies train right, and the whole state of a sharded module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from lightning_fabric import Fabric
from lightning_fabric.strategies.ddp import DDPStrategy
from lightning_fabric.strategies.model_parallel import ModelParallelStrategy
from lightning_fabric.strategies.single_device import SingleDeviceStrategy
from lightning_fabric.strategies.strategy import Strategy
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.utils._pytree import tree_map

__all__ = ["check_sharded", "check_strategy", "count_nonfinite", "is_sharded", "shard_like", "shard_optimiser", "whole"]

# Exact types: a subclass such as SingleDeviceXLAStrategy sets modules up in another way.
_REPLICATED = (SingleDeviceStrategy, DDPStrategy)


def check_strategy(fabric: Fabric) -> None:
    """Refuse a strategy under which the loop would train other weights than one process does."""
    strategy: Strategy = fabric.strategy
    if isinstance(strategy, ModelParallelStrategy):
        data_parallel = strategy.device_mesh["data_parallel"].size()
        if data_parallel != fabric.world_size:
            raise ValueError(
                f"fabric: expected data_parallel_size={fabric.world_size}, one share of the batch per process, got "
                f"{data_parallel}; tensor parallelism is not supported"
            )
    elif type(strategy) not in _REPLICATED:
        raise ValueError(
            "fabric: expected one device, DDPStrategy or ModelParallelStrategy (FSDP2), got "
            f"{type(strategy).__name__}, which is not supported"
        )


def check_sharded(fabric: Fabric, module: nn.Module) -> None:
    """Refuse parameters that no process averages the gradients of: those that `parallelize_fn` did not shard."""
    if not isinstance(fabric.strategy, ModelParallelStrategy):
        return
    names = [name for name, p in module.named_parameters() if p.requires_grad and not isinstance(p, DTensor)]
    if names:
        raise ValueError(
            "fabric: expected parallelize_fn to apply fully_shard to the whole module, got parameters that are not "
            f"sharded, such as {names[0]!r}"
        )


def is_sharded(module: nn.Module) -> bool:
    """Return whether a parameter of the module is sharded over processes."""
    return any(isinstance(p, DTensor) for p in module.parameters())


def whole(state: Any) -> Any:
    """Return a state dict with whole tensors instead of shards; every process must call it at the same time."""
    return tree_map(lambda value: value.full_tensor() if isinstance(value, DTensor) else value, state)


def shard_like(state: Mapping[str, Any], like: Mapping[str, Any]) -> dict[str, Any]:
    """Return a state dict of whole tensors, sharded as the tensors of the same names in `like`."""
    return {name: _shard(value, like.get(name)) for name, value in state.items()}


def shard_optimiser(state: Mapping[str, Any], optimiser: torch.optim.Optimizer) -> dict[str, Any]:
    """Return the state dict of an optimiser with its tensors sharded as the parameters they belong to."""
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    sharded = {
        number: {name: _shard(value, parameters[number]) for name, value in values.items()}
        for number, values in state["state"].items()
    }
    return {**state, "state": sharded}


def count_nonfinite(gradients: Sequence[Tensor]) -> int:
    """Return how many numbers are NaN or infinite, on all processes together if the gradients are sharded."""
    shards = [each.to_local() if isinstance(each, DTensor) else each for each in gradients]
    wrong = 0
    # Finite numbers may have a norm beyond the largest number: the norm alone does not decide.
    if shards and not bool(torch.stack(torch._foreach_norm(shards)).isfinite().all()):
        wrong = sum(int((~each.isfinite()).sum()) for each in shards)
    if not any(isinstance(each, DTensor) for each in gradients):
        return wrong
    total = torch.tensor(wrong, device=shards[0].device)
    dist.all_reduce(total)
    return int(total)


def _shard(value: Any, like: Any) -> Any:
    if not isinstance(like, DTensor) or isinstance(value, DTensor) or not isinstance(value, Tensor):
        return value
    if value.shape != like.shape:  # such as the number of steps
        return value
    return distribute_tensor(value.to(like.device), like.device_mesh, like.placements)
