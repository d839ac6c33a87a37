"""Base class and helpers of batch samplers: epochs, the split over processes, and resuming."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import BatchSampler

from rankwise.checks import check_count, check_tensor

__all__ = [
    "Deck",
    "Indices",
    "SeededBatchSampler",
    "check_at_most",
    "check_item_labels",
    "draw_distinct",
    "number_of_batches",
]


class SeededBatchSampler(BatchSampler):
    """Base class of batch samplers: epochs, the split over processes, and resuming.

    The batches of an epoch depend on the data, the options, `seed` and the epoch only. Every process draws the same
    global batch and yields its own share of it, so the global batches do not depend on the number of processes. The
    shares are disjoint, together complete, and differ in size by at most one.

    Every complete pass counts as an epoch: the next one has another order. A loop may also set the epoch by
    `set_epoch`, as with `torch.utils.data.DistributedSampler`.

    Args:
        items: number of items of the data set.
        batches: number of batches of an epoch.
        batch_size: number of items of a full global batch.
        drop_last: whether a smaller last batch is left out.
        seed: a whole number of at least 0.
        rank: index of the share to yield. By default the rank of `torch.distributed` when a pass begins. A trainer that
            splits batches over processes by itself needs `rank=0, world_size=1` here.
        world_size: number of shares of a batch; given together with `rank`.
    """

    def __init__(
        self,
        *,
        items: int,
        batches: int,
        batch_size: int,
        drop_last: bool,
        seed: int,
        rank: int | None,
        world_size: int | None,
    ) -> None:
        self.batch_size = batch_size
        self.drop_last = drop_last
        # Not self: a trainer would call its `set_epoch` with the trainer's own count, and undo a loaded state.
        self.sampler = range(items)
        self.seed = check_count("seed", seed, least=0)
        self._share = _check_share_of(rank, world_size)
        self._items = items
        self._batches = batches
        self._epoch = 0
        self._start = 0
        self._done = 0
        self._finished = False

    @abstractmethod
    def _draw(self, generator: torch.Generator) -> Iterator[Indices]:
        """Yield the global batches of one epoch."""

    @property
    def epoch(self) -> int:
        """Return the current epoch, or the next one if none has begun."""
        return self._epoch

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next pass. Setting the epoch of a loaded state again keeps its position."""
        epoch = check_count("epoch", epoch, least=0)
        if epoch != self._epoch or self._finished:
            self._begin(epoch)

    def __len__(self) -> int:
        """Return the number of batches of an epoch, equal on every process."""
        return self._batches

    def __iter__(self) -> Iterator[list[int]]:
        if self._finished:
            self._begin(self._epoch + 1)
        self._done = self._start
        return self._pass(*(self._share or _ask_share()))

    def state_dict(self, *, batch: int | None = None) -> dict[str, int]:
        """Return the position of this sampler, for a checkpoint.

        Args:
            batch: number of batches of the epoch that the training has used; by default those that this sampler
                yielded. A DataLoader with workers prefetches, so there the training loop must count and pass it.
        """
        done = self._done if batch is None else check_count("batch", batch, least=0)
        return {
            "seed": self.seed,
            "epoch": self._epoch,
            "batch": done,
            "batches": self._batches,
            "items": self._items,
        }

    def load_state_dict(self, state_dict: Mapping[str, int]) -> None:
        """Load a saved state: the next pass yields exactly the remaining batches of that epoch.

        The number of processes may have changed since.
        """
        new = _check_state(state_dict, batches=self._batches, items=self._items)
        self.seed = new["seed"]
        self._begin(new["epoch"])
        self._start = self._done = new["batch"]

    def __getstate__(self) -> dict[str, Any]:
        """Return the state of a copy, which continues with the remaining batches of the epoch, like a loaded state."""
        return {**self.__dict__, "_start": self._start if self._finished else self._done}

    def _begin(self, epoch: int) -> None:
        self._epoch = epoch
        self._start = self._done = 0
        self._finished = False

    def _pass(self, rank: int, world_size: int) -> Iterator[list[int]]:
        for number, batch in enumerate(self._draw(_generator(self.seed, self._epoch)), start=1):
            if number <= self._start:
                continue
            if len(batch) < world_size:
                raise ValueError(
                    f"world_size: expected at most the {len(batch)} items of batch {number}, got {world_size}; "
                    "make batches larger, or leave out a small last one with drop_last=True"
                )
            self._done = number
            yield self._own(batch, rank, world_size).tolist()
        self._finished = True

    def _own(self, batch: Indices, rank: int, world_size: int) -> Indices:
        """Return the share of a global batch that a process yields."""
        return batch[rank::world_size]


def _generator(seed: int, epoch: int) -> torch.Generator:
    # Hashed, not added: seed 1 in epoch 0 must differ from seed 0 in epoch 1.
    mixed = np.random.SeedSequence([seed, epoch]).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(mixed[0]))


def _ask_share() -> tuple[int, int]:
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def _check_share_of(rank: int | None, world_size: int | None) -> tuple[int, int] | None:
    if rank is None and world_size is None:
        return None
    if rank is None or world_size is None:
        missing = "rank" if rank is None else "world_size"
        raise ValueError(f"{missing}: expected rank and world_size together or neither, got None")
    world_size = check_count("world_size", world_size, least=1)
    rank = check_count("rank", rank, least=0)
    if rank >= world_size:
        raise ValueError(f"rank: expected less than world_size={world_size}, got {rank}")
    return rank, world_size


def _check_state(state: Mapping[str, int], *, batches: int, items: int) -> dict[str, int]:
    names = ("seed", "epoch", "batch", "batches", "items")
    missing = [name for name in names if name not in state]
    if missing:
        raise ValueError(f"state_dict: expected {', '.join(names)}, got no {', '.join(missing)}")
    new = {name: check_count(name, state[name], least=0) for name in names}
    for name, own in (("items", items), ("batches", batches)):
        if new[name] != own:
            raise ValueError(f"state_dict: expected {name}={own} as in this sampler, got {new[name]}")
    if new["batch"] > batches:
        raise ValueError(f"state_dict: expected batch of at most {batches}, got {new['batch']}")
    return new


Indices = NDArray[np.int64]


def number_of_batches(items: int, per_batch: int, drop_last: bool) -> int:
    if not isinstance(drop_last, bool):
        raise TypeError(f"drop_last: expected True or False, got {drop_last!r}")
    return items // per_batch if drop_last else -(-items // per_batch)


def check_item_labels(labels: object) -> Tensor:
    tensor = check_tensor("labels", labels).detach().cpu()
    if tensor.dim() != 1 or len(tensor) == 0:
        raise ValueError(f"labels: expected shape (N,) with at least one item, got {tuple(tensor.shape)}")
    return tensor


def check_at_most(name: str, value: int, available: int, what: str) -> int:
    count = check_count(name, value, least=1)
    if count > available:
        raise ValueError(f"{name}: expected at most the number of {what}, {available}, got {count}")
    return count


class Deck:
    """Indices drawn in random order, each once before any is repeated, and never twice in one draw."""

    def __init__(self, indices: Indices, generator: torch.Generator) -> None:
        self._indices = indices
        self._generator = generator
        self._left = indices[:0]

    def deal(self, count: int) -> Indices:
        drawn, self._left = self._left[:count], self._left[count:]
        missing = count - len(drawn)
        if missing == 0:
            return drawn
        shuffled: Indices = self._indices[torch.randperm(len(self._indices), generator=self._generator).numpy()]
        if len(drawn) == 0:
            self._left = shuffled[missing:]
            return shuffled[:missing]
        # Indices of this draw are skipped but stay in the new round, so every round has every index once.
        chosen = np.flatnonzero(np.isin(shuffled, drawn, invert=True))[:missing]
        self._left = np.delete(shuffled, chosen)
        return np.concatenate([drawn, shuffled[chosen]])


def draw_distinct(available: int, count: int, generator: torch.Generator) -> Indices:
    """Draw `count` different numbers below `available` uniformly at random, in random order.

    Example:
        >>> sorted(draw_distinct(3, 3, torch.Generator()).tolist())
        [0, 1, 2]
    """
    if 3 * count >= available:
        order: Indices = torch.randperm(available, generator=generator)[:count].numpy()
        return order
    # Draw with replacement and keep the first occurrence of each number.
    drawn: Indices = np.empty(0, dtype=np.int64)
    while len(drawn) < count:
        more = torch.randint(available, (2 * count,), generator=generator).numpy()
        drawn = np.concatenate([drawn, more])
        drawn = drawn[np.sort(np.unique(drawn, return_index=True)[1])]
    return drawn[:count]
