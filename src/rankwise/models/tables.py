"""Tables of vectors whose rows are spread over the processes: each holds and trains a share of consecutive rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

from rankwise.distributed import world_size

__all__ = ["ShardedTable", "has_sharded_tables", "own_rows", "score_all_rows", "shard_zeros", "take_rows"]

# Rows that are drawn at once. A multiple of 16: then torch draws the numbers of the whole table.
_ROWS_AT_ONCE = 1 << 16


class ShardedTable(nn.Module):
    """A table (rows, dimensions) like `nn.Embedding`, of which each process holds about 1 / W of the rows.

    The weight is a `DTensor` sharded by rows. The numbers are those that `nn.Embedding` draws from the same random
    state, and the random state afterwards is the same, too. Needs a process group.

    Args:
        rows: of the whole table.
        dimensions: the length of a row.
    """

    def __init__(self, rows: int, dimensions: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(_shard(torch.empty(len(_own_range(rows)), dimensions), rows))
        self.draw(1.0)

    @torch.no_grad()
    def draw(self, spread: float) -> None:
        """Draw all numbers from a normal distribution with mean 0 and this standard deviation."""
        rows, dimensions = self.weight.shape
        own, local = _own_range(rows), cast(DTensor, self.weight.data).to_local()
        for first in range(0, rows, _ROWS_AT_ONCE):
            block = torch.empty(min(_ROWS_AT_ONCE, rows - first), dimensions).normal_(std=spread)
            begin, end = max(own.start, first), min(own.stop, first + len(block))
            if begin < end:
                local[begin - own.start : end - own.start] = block[begin - first : end - first]


def shard_zeros(rows: int) -> nn.Parameter:
    """Return a parameter (rows,) of zeros, sharded as a `ShardedTable` of so many rows is."""
    return nn.Parameter(_shard(torch.zeros(len(_own_range(rows))), rows))


def has_sharded_tables(model: nn.Module) -> bool:
    """Return whether every process must call the model at the same time, because of a `ShardedTable`."""
    return any(isinstance(each, ShardedTable) for each in model.modules())


def take_rows(ids: Tensor, *tables: Tensor) -> tuple[Tensor, ...]:
    """Return the rows of sharded tables with these numbers; every process must call it at the same time.

    Each process asks the owners for the rows that it needs, each row once. The gradients of all processes are added and
    divided by their number, as data-parallel training takes the mean.

    Args:
        ids: of this process, any shape, perhaps none.
        tables: sharded alike, (rows, ...).

    Returns:
        For each table (*ids.shape, ...).
    """
    wanted, inverse = ids.unique(return_inverse=True)
    rows = tables[0].shape[0]
    owners = torch.div(wanted, _share(rows), rounding_mode="floor")
    asked = torch.bincount(owners, minlength=world_size())
    given = torch.empty_like(asked)
    dist.all_to_all_single(given, asked)
    here, there = asked.tolist(), given.tolist()
    # Rows are numbered in rising order, and so are their owners.
    sought = _exchange(wanted, here, there) - _own_range(rows).start
    widths = [math.prod(table.shape[1:]) for table in tables]
    chosen = [cast(DTensor, table).to_local().index_select(0, sought) for table in tables]
    own = torch.cat([each.view(-1, width) for each, width in zip(chosen, widths, strict=True)], 1)
    back = _Exchange.apply(_Mean.apply(own, world_size()), there, here)[inverse]
    parts = back.split(widths, -1)
    return tuple(part.reshape(*ids.shape, *table.shape[1:]) for part, table in zip(parts, tables, strict=True))


def score_all_rows(score: Callable[[Tensor], Tensor], vectors: Tensor) -> Tensor:
    """Return scores (B, rows) of vectors (B, D) with all rows of a sharded table; every process must call it at the
    same time.

    Vectors go to all processes, each scores its own rows, and scores come back: no process holds the table.

    Args:
        score: from vectors (N, D) of all processes to their scores (N, own rows), made of `own_rows`.
        vectors: of this process, perhaps none.
    """
    world = world_size()
    sizes = _gather_numbers(len(vectors), vectors.device)
    everyone = _Exchange.apply(vectors.repeat(world, 1), [len(vectors)] * world, sizes)
    scores = score(everyone)
    widths = _gather_numbers(scores.shape[1], vectors.device)
    own = scores.shape[1]
    back = _Exchange.apply(scores.flatten(), [n * own for n in sizes], [len(vectors) * width for width in widths])
    parts = back.split([len(vectors) * width for width in widths])
    return torch.cat([part.view(len(vectors), width) for part, width in zip(parts, widths, strict=True)], 1)


def own_rows(table: Tensor) -> Tensor:
    """Return the rows of a sharded table that this process holds; their gradient is divided by the number of processes,
    see `take_rows`."""
    return cast(Tensor, _Mean.apply(cast(DTensor, table).to_local(), world_size()))


def _share(rows: int) -> int:
    return max(1, math.ceil(rows / world_size()))


def _own_range(rows: int) -> range:
    """Return the numbers of the rows of this process: equal shares, the last ones smaller or empty, as DTensor cuts."""
    share, rank = _share(rows), dist.get_rank()
    return range(min(rank * share, rows), min((rank + 1) * share, rows))


def _shard(local: Tensor, rows: int) -> DTensor:
    device = "cuda" if "nccl" in dist.get_backend() else "cpu"
    mesh = init_device_mesh(device, (world_size(),), mesh_dim_names=("data_parallel",))
    shape = torch.Size([rows, *local.shape[1:]])
    stride = torch.empty(shape, device="meta").stride()
    return DTensor.from_local(local.to(device), mesh, [Shard(0)], run_check=False, shape=shape, stride=stride)


def _gather_numbers(number: int, device: torch.device) -> list[int]:
    own = torch.tensor([number], device=device)
    numbers = own.new_empty(world_size())
    dist.all_gather_into_tensor(numbers, own)
    return cast(list[int], numbers.tolist())


def _exchange(values: Tensor, sent: list[int], received: list[int]) -> Tensor:
    """Return the rows that come from all processes; the first `sent[0]` rows go to process 0, the next to process 1."""
    result = values.new_empty(sum(received), *values.shape[1:])
    dist.all_to_all_single(result, values.contiguous(), received, sent)
    return result


class _Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, sent: list[int], received: list[int]) -> Tensor:
        ctx.sent, ctx.received = sent, received
        return _exchange(values, sent, received)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return _exchange(gradient, ctx.received, ctx.sent), None, None


class _Mean(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, processes: int) -> Tensor:
        ctx.processes = processes
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient / ctx.processes, None
