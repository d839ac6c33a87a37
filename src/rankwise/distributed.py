"""Gather a batch across processes, with gradients. Each call checks whether a process group is set up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["gather_inputs", "gather_rows", "list_owners", "own_share", "raise_everywhere", "world_size"]

# Tensors, or None, by argument name.
Inputs = Mapping[str, Any]

_DTYPES = (
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128, torch.bool),
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64),
)
# A header describes the tensor of a rank before it is gathered: its dtype, number of axes, and their lengths.
_AXES = 6
_ABSENT = [-1] + [0] * (1 + _AXES)
_FAILED = [-2] + [0] * (1 + _AXES)
_MOST_INPUTS = 8
_ERRORS = {error.__name__: error for error in (TypeError, ValueError, RuntimeError)}


def world_size() -> int:
    """Return the number of processes of the process group; 1 if none is set up."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def gather_rows(tensor: Tensor) -> Tensor:
    """Concatenate the tensors of all ranks along the first axis, in the order of the ranks.

    Ranks may hold different numbers of rows, including 0; the other axes are padded with zeros (False) to the longest.
    Every rank computes the same loss from the result, and DDP averages the gradients of the ranks. So the backward pass
    returns a rank's own part of the gradient times the number of ranks: that average is then the gradient of the loss.
    """
    if world_size() == 1:
        return tensor
    gathered: Tensor = gather_inputs(lambda: {"tensor": tensor})["tensor"]
    return gathered


def gather_inputs(prepare: Callable[[], Inputs], *, pad: bool = True) -> dict[str, Any]:
    """Gather the tensors that `prepare` returns on all ranks, each as by `gather_rows`.

    The ranks compare their inputs before any of them is gathered. If a tensor is given on some ranks only, if dtypes or
    numbers of axes differ, or if `prepare` raises on any rank, every rank raises the same error.

    Args:
        prepare: checks the inputs of its rank, and returns them by name; None for an input that is not given.
        pad: whether the other axes are padded to the longest; otherwise different lengths are refused.
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
        array([0, 0, 1, 0, 0, 1])
    """
    # Mixed, so that ids with a common factor are spread over all ranks.
    mixed = ids.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(33)
    return (mixed % np.uint64(ranks)).astype(np.int64)


def own_share(rows: Tensor) -> Tensor:
    """Return this rank's part of rows split among all ranks; `gather_rows` concatenates the parts again."""
    if world_size() == 1:
        return rows
    return rows.tensor_split(world_size())[dist.get_rank()]


def _gather_headers(tensors: Inputs, failure: Exception | None) -> list[list[list[int]]]:
    """Return the headers of the inputs of each rank; a rank that failed sends the header `_FAILED`."""
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
    errors: list[Any] = [None] * world_size()
    dist.all_gather_object(errors, None if failure is None else (_kind(failure), str(failure)))
    for rank, error in enumerate(errors):
        if error is not None:
            raise _ERRORS[error[0]](f"rank {rank}: {error[1]}") from failure


def _kind(failure: Exception) -> str:
    return next(name for name, error in _ERRORS.items() if isinstance(failure, error))


def _check_alike(name: str, headers: list[list[int]], pad: bool) -> None:
    """Refuse inputs that differ between the ranks in presence, dtype or number of axes."""
    first = headers[0]
    for rank, header in enumerate(headers):
        if (header == _ABSENT) != (first == _ABSENT):
            present, absent = (rank, 0) if first == _ABSENT else (0, rank)
            raise ValueError(
                f"{name}: expected on every rank or on none, got None on rank {absent} but not on rank {present}"
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
        """Gather the rows; `shapes` are those of the tensors of all ranks."""
        rows, rank = [shape[0] for shape in shapes], dist.get_rank()
        padded = tensor.new_zeros([max(lengths) for lengths in zip(*shapes, strict=True)])
        padded[tuple(slice(n) for n in tensor.shape)] = tensor.detach()
        parts = [torch.empty_like(padded) for _ in shapes]
        if tensor.dtype == torch.bool:  # not every backend gathers booleans
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
