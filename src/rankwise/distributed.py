"""Gathering a batch across processes, with gradients. Whether there are any is asked at every call."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

__all__ = ["gather_rows", "own_share", "world_size"]


def world_size() -> int:
    """The number of processes that train together; 1 when no process group is set up."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def gather_rows(tensor: Tensor) -> Tensor:
    """The tensors of all ranks joined along the first axis, in the order of the ranks.

    Ranks may hold different numbers of rows, none included; the other axes are padded with zeros (False) to the
    longest. Every rank computes the same loss from the result, and data-parallel training averages the gradients of
    the ranks; so the gradient handed back to a rank is its own part times the number of ranks, which makes that average
    the gradient of the loss.
    """
    if world_size() == 1:
        return tensor
    gathered: Tensor = _GatherRows.apply(tensor)
    return gathered


def own_share(rows: Tensor) -> Tensor:
    """The rows this process takes when all ranks split them: one piece each, which `gather_rows` joins again."""
    if world_size() == 1:
        return rows
    return rows.tensor_split(world_size())[dist.get_rank()]


class _GatherRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        world, rank = dist.get_world_size(), dist.get_rank()
        shapes = [torch.zeros(tensor.ndim, dtype=torch.int64, device=tensor.device) for _ in range(world)]
        dist.all_gather(shapes, torch.tensor(tensor.shape, device=tensor.device))
        rows = [int(shape[0]) for shape in shapes]
        largest = [int(n) for n in torch.stack(shapes).amax(0)]
        padded = tensor.new_zeros(largest)
        padded[tuple(slice(n) for n in tensor.shape)] = tensor.detach()
        parts = [torch.empty_like(padded) for _ in range(world)]
        if tensor.dtype == torch.bool:  # not every backend moves booleans
            bytes_of_parts = [part.to(torch.uint8) for part in parts]
            dist.all_gather(bytes_of_parts, padded.to(torch.uint8))
            parts = [part.to(torch.bool) for part in bytes_of_parts]
        else:
            dist.all_gather(parts, padded)
        ctx.shape, ctx.first, ctx.world = tensor.shape, sum(rows[:rank]), world
        return torch.cat([part[:n] for part, n in zip(parts, rows, strict=True)])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            raise RuntimeError("second derivatives (create_graph=True) are not supported with several processes")
        own = grad[ctx.first : ctx.first + ctx.shape[0]][tuple(slice(n) for n in ctx.shape)]
        return own.mul(ctx.world)
