"""Contract of every batch sampler, executable."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset

from rankwise.samplers import SeededBatchSampler

__all__ = ["check_sampler"]

WORLD_SIZES = (1, 2, 3)


def check_sampler(build: Callable[..., SeededBatchSampler], *, items: int, even_shares: bool = True) -> None:
    """Check a batch sampler against the contract; raise AssertionError at the first breach.

    The contract: batches hold distinct indices of the data set; they depend on seed and epoch only, and on nothing
    else that is random; epochs and seeds differ; a sampler resumed after any batch gives exactly the batches that
    were left; 1, 2 and 3 processes split the same global batches into disjoint shares; a DataLoader takes it.

    Args:
        build: makes the sampler, `build(seed=..., rank=..., world_size=...)`. An epoch needs at least two batches of
            at least three items, and enough items that two orders are never equal by chance.
        items: number of items of the data set.
        even_shares: whether the shares of the processes differ by one item at most; False for samplers that keep lists
            on one process.

    Example:
        >>> from functools import partial
        >>> from rankwise.samplers import BinaryBatchSampler
        >>> labels = torch.arange(60) % 6 == 0
        >>> check_sampler(partial(BinaryBatchSampler, labels, positives=2, negatives=6), items=60)
    """
    _check_batches(build, items)
    _check_determinism(build)
    _check_epochs(build)
    _check_resume(build)
    _check_shares(build, even_shares)
    _check_loader(build, items)


def _check_batches(build: Callable[..., SeededBatchSampler], items: int) -> None:
    sampler = build(seed=0)
    _require(isinstance(sampler, BatchSampler), f"expected a BatchSampler, got {type(sampler).__name__}")
    batches = list(sampler)
    _require(len(batches) == len(sampler), f"len says {len(sampler)} batches, the pass gave {len(batches)}")
    _require(len(batches) > 1, "the contract needs an epoch of at least two batches")
    for number, batch in enumerate(batches):
        _require(all(type(index) is int for index in batch), f"batch {number} holds other things than int")
        _require(len(batch) > 0, f"batch {number} is empty")
        _require(len(set(batch)) == len(batch), f"batch {number} holds an index twice: {batch}")
        _require(all(0 <= index < items for index in batch), f"batch {number} leaves 0..{items - 1}: {batch}")


def _check_determinism(build: Callable[..., SeededBatchSampler]) -> None:
    before = torch.random.get_rng_state()
    first = list(build(seed=1))
    _require(torch.equal(before, torch.random.get_rng_state()), "a pass changed torch's global random state")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(12345)
        again = list(build(seed=1))
    _require(first == again, "the same seed gave other batches under another global random state")
    _require(first != list(build(seed=2)), "another seed gave the same batches")


def _check_epochs(build: Callable[..., SeededBatchSampler]) -> None:
    sampler = build(seed=0)
    passes = [list(sampler) for _ in range(3)]
    _require(passes[0] != passes[1] != passes[2] != passes[0], "two epochs gave the same batches")
    for epoch in (2, 0, 1):
        fresh = build(seed=0)
        fresh.set_epoch(epoch)
        _require(list(fresh) == passes[epoch], f"set_epoch({epoch}) and pass number {epoch} differ")
    sampler.set_epoch(1)
    _require(list(sampler) == passes[1], "an epoch asked for again gave other batches")


def _check_resume(build: Callable[..., SeededBatchSampler]) -> None:
    whole = build(seed=0)
    whole.set_epoch(1)
    batches, following = list(whole), list(whole)
    for done in range(len(batches) + 1):
        halted = build(seed=0)
        halted.set_epoch(1)
        running = iter(halted)
        for _ in range(done):
            next(running)
        # Loaded into another seed and world size: the state alone decides what is left.
        resumed = build(seed=9, rank=0, world_size=1)
        resumed.load_state_dict(halted.state_dict())
        _require(list(resumed) == batches[done:], f"resumed after batch {done}: not the batches that were left")
        _require(list(resumed) == following, f"resumed after batch {done}: the epoch after it differs")


def _check_shares(build: Callable[..., SeededBatchSampler], even: bool) -> None:
    whole = list(build(seed=0, rank=0, world_size=1))
    for world_size in WORLD_SIZES:
        ranks = [list(build(seed=0, rank=rank, world_size=world_size)) for rank in range(world_size)]
        for rank, batches in enumerate(ranks):
            _require(len(batches) == len(whole), f"rank {rank} of {world_size}: {len(batches)} batches of {len(whole)}")
        for number, (batch, *shares) in enumerate(zip(whole, *ranks, strict=True)):
            joined = sorted(index for share in shares for index in share)
            _require(joined == sorted(batch), f"{world_size} ranks do not make up batch {number}")
            sizes = [len(share) for share in shares]
            _require(
                not even or max(sizes) - min(sizes) <= 1, f"{world_size} ranks share batch {number} unevenly: {sizes}"
            )


def _check_loader(build: Callable[..., SeededBatchSampler], items: int) -> None:
    loader = DataLoader(_Positions(items), batch_sampler=build(seed=0))
    _require(len(loader) == len(build(seed=0)), "the DataLoader's length differs")
    for epoch, batches in enumerate(_epochs(build)):
        _require([batch.tolist() for batch in loader] == batches, f"the DataLoader's epoch {epoch} differs")


def _epochs(build: Callable[..., SeededBatchSampler]) -> Iterator[list[list[int]]]:
    sampler = build(seed=0)
    yield from (list(sampler) for _ in range(2))


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise AssertionError(message)


class _Positions(Dataset[int]):
    """A data set whose items are their own positions."""

    def __init__(self, items: int) -> None:
        self._items = items

    def __len__(self) -> int:
        return self._items

    def __getitem__(self, index: int) -> int:
        return index
