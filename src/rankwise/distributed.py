"""Gathering a batch across processes, with gradients. Whether there are any is asked at every call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["gather_inputs", "gather_rows", "list_owners", "own_share", "raise_everywhere", "world_size"]

# By name, a tensor or None.
Inputs = Mapping[str, Any]

_DTYPES = (
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128, torch.bool),
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64),
)
# What a rank says of a tensor before it sends it: its dtype, the number of its axes, and their lengths.
_AXES = 6
_ABSENT = [-1] + [0] * (1 + _AXES)
_FAILED = [-2] + [0] * (1 + _AXES)
_MOST_INPUTS = 8
_ERRORS = {error.__name__: error for error in (TypeError, ValueError, RuntimeError)}


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
    gathered: Tensor = gather_inputs(lambda: {"tensor": tensor})["tensor"]
    return gathered


def gather_inputs(prepare: Callable[[], Inputs], *, pad: bool = True) -> dict[str, Any]:
    """Return what `prepare` returns on all ranks, each tensor joined as by `gather_rows`.

    What the ranks pass is compared before any of it is gathered. If a tensor is there on some ranks only, or of unlike
    dtypes or numbers of axes, or if `prepare` raises on any rank, every rank raises the same error.

    Args:
        prepare: checks the inputs of its rank, and returns them by name; None where an input is not given.
        pad: whether the other axes are padded to the longest; otherwise unlike ones are refused.
    """
    if world_size() == 1:
        return dict(prepare())
    try:
        tensors, failure = prepare(), None
    except tuple(_ERRORS.values()) as error:
        tensors, failure = {}, error
    headers = _gather_headers(tensors, failure)
    if any(_FAILED in header for header in headers):
        raise_everywhere(failure)
    by_name = {name: [header[number] for header in headers] for number, name in enumerate(tensors)}
    for name, of_ranks in by_name.items():
        _check_alike(name, of_ranks, pad)
    return {
        name: None if tensor is None else _GatherRows.apply(tensor, [_shape(header) for header in by_name[name]])
        for name, tensor in tensors.items()
    }


def list_owners(ids: NDArray[np.int64], ranks: int) -> NDArray[np.int64]:
    """Return the rank on which each list lives, by its id alone: the state of a list is kept there.

    Example:
        >>> list_owners(np.arange(6), 2)
        array([0, 0, 1, 0, 1, 0])
    """
    # Mixed, so that ids with a common factor are spread over all ranks.
    mixed = ids.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(33)
    return (mixed % np.uint64(ranks)).astype(np.int64)


def own_share(rows: Tensor) -> Tensor:
    """The rows this process takes when all ranks split them: one piece each, which `gather_rows` joins again."""
    if world_size() == 1:
        return rows
    return rows.tensor_split(world_size())[dist.get_rank()]


def _gather_headers(tensors: Inputs, failure: Exception | None) -> list[list[list[int]]]:
    """Return the headers that each rank gives of its inputs; those of a rank that failed say so."""
    own = [_header(tensor) for tensor in tensors.values()] if failure is None else [_FAILED]
    own += [_ABSENT] * (_MOST_INPUTS - len(own))
    devices = [tensor.device for tensor in tensors.values() if tensor is not None]
    header = torch.tensor(own, device=devices[0] if devices else "cuda" if dist.get_backend() == "nccl" else "cpu")
    headers = [torch.empty_like(header) for _ in range(world_size())]
    dist.all_gather(headers, header)
    gathered: list[list[list[int]]] = torch.stack(headers).tolist()
    return gathered


def _header(tensor: Tensor | None) -> list[int]:
    if tensor is None:
        return _ABSENT
    return [_DTYPES.index(tensor.dtype), tensor.ndim, *tensor.shape, *[0] * (_AXES - tensor.ndim)]


def _shape(header: list[int]) -> list[int]:
    return header[2 : 2 + header[1]]


def raise_everywhere(failure: Exception | None) -> None:
    """Raise the error of the first rank that failed."""
    said: list[Any] = [None] * world_size()
    dist.all_gather_object(said, None if failure is None else (_kind(failure), str(failure)))
    for rank, what in enumerate(said):
        if what is not None:
            raise _ERRORS[what[0]](f"rank {rank}: {what[1]}") from failure


def _kind(failure: Exception) -> str:
    return next(name for name, error in _ERRORS.items() if isinstance(failure, error))


def _check_alike(name: str, headers: list[list[int]], pad: bool) -> None:
    """Refuse headers of the ranks' inputs that do not fit together."""
    first = headers[0]
    for rank, header in enumerate(headers):
        if (header == _ABSENT) != (first == _ABSENT):
            there, absent = (rank, 0) if first == _ABSENT else (0, rank)
            raise ValueError(
                f"{name}: expected on every rank or on none, got None on rank {absent} but not on rank {there}"
            )
        if header[0] != first[0]:
            dtypes = [str(_DTYPES[each[0]]).removeprefix("torch.") for each in (first, header)]
            raise ValueError(
                f"{name}: expected one dtype on every rank, got {dtypes[0]} on rank 0 and {dtypes[1]} on rank {rank}"
            )
        if header[1] != first[1]:
            raise ValueError(
                f"{name}: expected as many dimensions on every rank, got {first[1]} on rank 0 and {header[1]} on rank "
                f"{rank}"
            )
        if not pad and header[3:] != first[3:]:
            sizes = [" x ".join(map(str, _shape(each)[1:])) for each in (first, header)]
            raise ValueError(
                f"{name}: expected rows of one size on every rank, got {sizes[0]} on rank 0 and {sizes[1]} on rank "
                f"{rank}"
            )


class _GatherRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, shapes: list[list[int]]) -> Tensor:
        """`shapes` are those of the tensors of all ranks."""
        rows, rank = [shape[0] for shape in shapes], dist.get_rank()
        padded = tensor.new_zeros([max(lengths) for lengths in zip(*shapes, strict=True)])
        padded[tuple(slice(n) for n in tensor.shape)] = tensor.detach()
        parts = [torch.empty_like(padded) for _ in shapes]
        if tensor.dtype == torch.bool:  # not every backend moves booleans
            bytes_of_parts = [part.to(torch.uint8) for part in parts]
            dist.all_gather(bytes_of_parts, padded.to(torch.uint8))
            parts = [part.to(torch.bool) for part in bytes_of_parts]
        else:
            dist.all_gather(parts, padded)
        ctx.shape, ctx.first, ctx.world = tensor.shape, sum(rows[:rank]), len(rows)
        return torch.cat([part[:n] for part, n in zip(parts, rows, strict=True)])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        if torch.is_grad_enabled():
            raise RuntimeError("second derivatives (create_graph=True) are not supported with several processes")
        own = grad[ctx.first : ctx.first + ctx.shape[0]][tuple(slice(n) for n in ctx.shape)]
        return own.mul(ctx.world), None
