"""State that differs between processes, beside a checkpoint: each process writes its own share, any number read it.

Written and read by torch.distributed.checkpoint as safetensors files, which hold numbers only.
"""

from __future__ import annotations

import json
import math
import shutil
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.tensor import DTensor

from rankwise.files import write_blocks

__all__ = [
    "check_shards",
    "copy_shards",
    "read_shards",
    "shard_sizes",
    "split_shards",
    "write_joined",
    "write_shards",
]

_SEPARATOR = "/"
# Types of a safetensors file, the bytes of a block that goes to the first process, and of a file of a process.
_TYPES = {torch.float16: "F16", torch.bfloat16: "BF16", torch.float32: "F32", torch.float64: "F64"}
_BLOCK_BYTES, _FILE_BYTES = 1 << 26, 1 << 28


def split_shards(state: Any, prefix: str = "") -> tuple[Any, dict[str, Tensor]]:
    """Return a state without its sharded tensors, and these by their path, such as `model/0.weight`."""
    shards: dict[str, Tensor] = {}
    if not isinstance(state, Mapping):
        return state, shards
    plain = {}
    for key, value in state.items():
        path = f"{prefix}{_SEPARATOR}{key}" if prefix else str(key)
        if isinstance(value, DTensor):
            shards[path] = value.detach()
            continue
        plain[key], below = split_shards(value, path)
        shards |= below
    return plain, shards


def write_shards(
    folder: Path, tensors: Mapping[str, Tensor], group: dist.ProcessGroup | None = None
) -> dict[str, list[int]]:
    """Write the tensors of all processes; every process must call it at the same time.

    Args:
        folder: a new one; what an interrupted writing left there is removed.
        tensors: by path: sharded ones, and those that only this process has, under paths that no other uses.
        group: of all processes, by which they talk; one of its own while other collectives go on.

    Returns:
        Size and checksum of every file by its name.
    """
    if dist.get_rank() == 0:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    dist.barrier(group)
    filled = {path: value for path, value in tensors.items() if value.numel()}
    writer = HuggingFaceStorageWriter(
        str(folder), fqn_to_index_mapping=_file_numbers(filled, group), save_distributed=True
    )
    with _quiet():
        save(filled, storage_writer=writer, process_group=group)
    rank, world = dist.get_rank(), dist.get_world_size()
    files = sorted(folder.glob("*.safetensors"))
    own = {file.name: _summary(file) for number, file in enumerate(files) if number % world == rank}
    return _gather_entries(own, group)


def _file_numbers(tensors: Mapping[str, Tensor], group: dist.ProcessGroup | None) -> dict[str, int]:
    """Return the number of the file of each tensor of all processes: one file is in memory once more while written."""
    sizes = _gather_entries({path: value.numel() * value.element_size() for path, value in tensors.items()}, group)
    numbers, total = {}, 0
    for path, size in sorted(sizes.items()):
        numbers[path] = 1 + total // (_FILE_BYTES * dist.get_world_size())
        total += size
    return numbers


def _gather_entries(own: dict[str, Any], group: dist.ProcessGroup | None) -> dict[str, Any]:
    """Return the entries of the mappings of all processes."""
    everyone: list[dict[str, Any]] = [{}] * dist.get_world_size()
    dist.all_gather_object(everyone, own, group)
    return {key: value for part in everyone for key, value in part.items()}


def check_shards(folder: Path, files: Mapping[str, list[int]]) -> None:
    """Raise a ValueError unless the files of a folder are those that were written."""
    for name, summary in files.items():
        path = folder / name
        if not path.is_file():
            raise ValueError(f"{path}: expected the share of a process in a checkpoint, got no file")
        if _summary(path) != list(summary):
            raise ValueError(f"{path}: the checksum does not match, the file was changed or damaged")


def copy_shards(source: Path, target: Path) -> None:
    """Make a copy of the files of a folder, as hard links where the file system has them."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    for file in source.iterdir():
        try:
            (target / file.name).hardlink_to(file)
        except OSError:
            shutil.copyfile(file, target / file.name)


def shard_sizes(folder: Path) -> dict[str, tuple[torch.Size, torch.dtype]]:
    """Return the whole shape and type of every tensor of a folder, by its path."""
    stored = HuggingFaceStorageReader(str(folder)).read_metadata().state_dict_metadata
    return {
        path: (each.size, each.properties.dtype)
        for path, each in stored.items()
        if isinstance(each, TensorStorageMetadata)
    }


def read_shards(folder: Path, like: Callable[[str, torch.Size], Any], paths: Sequence[str]) -> dict[str, Tensor]:
    """Read tensors of a folder, written by any number of processes.

    Args:
        folder: see `write_shards`.
        like: from the path and shape of a tensor to a sharded tensor of that shape, of which this process reads its own
            share; for any other value the whole tensor is read.
        paths: of the tensors to read.
    """
    sizes = shard_sizes(folder)
    read: dict[str, Tensor] = {}
    for path in paths:
        size, dtype = sizes[path]
        template = like(path, size)
        sharded = isinstance(template, DTensor) and template.shape == size
        read[path] = torch.empty_like(template, dtype=dtype).detach() if sharded else torch.empty(size, dtype=dtype)
    with _quiet():
        # Without collectives: each process reads what it wants, in its own time.
        load(read, storage_reader=HuggingFaceStorageReader(str(folder)), no_dist=True)
    return read


def write_joined(path: Path, state: Mapping[str, Tensor]) -> None:
    """Write a state whose tensors are all sharded by rows as one safetensors file of whole tensors.

    Every process must call it at the same time; the first one writes what the others send it, a block at a time.
    """
    blocks = _joined_blocks(state)
    if dist.get_rank() == 0:
        write_blocks(path, blocks)
    else:
        for _ in blocks:
            pass
    dist.barrier()


def _joined_blocks(state: Mapping[str, Tensor]) -> Iterator[bytes | memoryview]:
    """Yield the file in the first process; in all others send it, and yield nothing."""
    first = dist.get_rank() == 0
    header, end = {}, 0
    for name, value in state.items():
        begin, end = end, end + value.numel() * value.element_size()
        header[name] = {"dtype": _TYPES[value.dtype], "shape": list(value.shape), "data_offsets": [begin, end]}
    if first:
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        yield len(text).to_bytes(8, "little") + text
    for value in state.values():
        assert isinstance(value, DTensor)
        local, share = value.to_local().detach(), math.ceil(len(value) / dist.get_world_size())
        rows = max(1, _BLOCK_BYTES // max(1, value[:1].numel() * value.element_size()))
        for rank in range(dist.get_world_size()):
            left = min(share, max(0, len(value) - rank * share))
            for begin in range(0, left, rows):
                block = local[begin : begin + rows].contiguous()
                if rank == 0 and first:
                    yield _bytes(block)
                elif first:
                    received = local.new_empty(min(rows, left - begin), *local.shape[1:])
                    dist.recv(received, src=rank)
                    yield _bytes(received)
                elif rank == dist.get_rank():
                    dist.send(block, dst=0)


def _bytes(tensor: Tensor) -> memoryview:
    return tensor.cpu().view(torch.uint8).numpy().data.cast("B")


def _summary(path: Path) -> list[int]:
    checksum = 0
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            checksum = zlib.crc32(block, checksum)
    return [path.stat().st_size, checksum]


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep torch.distributed.checkpoint from warning that one process reads alone, which is meant."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
