"""Batch samplers: which items stand in a batch together.

A ranking loss learns from pairs of a relevant and an irrelevant item, so a batch must hold both. These samplers
make such batches, for `DataLoader(batch_sampler=...)`. They draw from a generator of their own, made from `seed` and
the epoch; no global random state is read or changed.
"""

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

from rankwise.checks import check_choice, check_count, check_ids, check_labels, check_tensor
from rankwise.registry import Registry, SamplerRecord

__all__ = ["SAMPLERS", "BinaryBatchSampler", "ClassBatchSampler", "SeededBatchSampler", "create_sampler"]

SHORT_CLASSES = ("take", "skip", "error")

Indices = NDArray[np.int64]


def create_sampler(name: str, labels: object, **options: Any) -> SeededBatchSampler:
    """Make a batch sampler by its name in the registry.

    Args:
        name: "binary" or "classes".
        labels: (N,) the label of every item of the data set.
        options: what the sampler of that name takes.

    Example:
        >>> create_sampler("binary", [0, 0, 1, 0, 1, 0], positives=1, negatives=2)
        BinaryBatchSampler(positives=1, negatives=2, batches=2, seed=0)
    """
    sampler: SeededBatchSampler = SAMPLERS.get(name).build(labels, **options)
    return sampler


class SeededBatchSampler(BatchSampler):
    """What all batch samplers here share: epochs, the split over processes, and resuming.

    The batches of an epoch depend on the data, the options, `seed` and the epoch only. Every process draws the same
    global batch and keeps its own share of it, so 1, 2 or 3 processes see the same global batches; the shares are
    disjoint, together complete, and differ in size by at most one.

    Every complete pass counts as an epoch: the next one is in another order. A loop may also say which epoch is meant
    by `set_epoch`, as with `torch.utils.data.DistributedSampler`.

    Args:
        items: how many items the data set holds.
        batches: how many batches an epoch holds.
        batch_size: how many items a full global batch holds.
        drop_last: whether a smaller last batch was left out.
        seed: a whole number of at least 0.
        rank: which share to yield. By default asked from `torch.distributed` when a pass begins. A trainer that splits
            batches over processes by itself needs `rank=0, world_size=1` here.
        world_size: into how many shares a batch is split; given together with `rank`.
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
        # Not self: a trainer that finds `set_epoch` there would call it with its own count and undo a loaded state.
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
        """The global batches of one epoch."""

    @property
    def epoch(self) -> int:
        """The epoch that is under way, or comes next if none was begun."""
        return self._epoch

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch the next pass is. Naming the epoch of a loaded state again keeps its place in it."""
        epoch = check_count("epoch", epoch, least=0)
        if epoch != self._epoch or self._finished:
            self._begin(epoch)

    def __len__(self) -> int:
        """Batches in a whole epoch, the same on every process."""
        return self._batches

    def __iter__(self) -> Iterator[list[int]]:
        if self._finished:
            self._begin(self._epoch + 1)
        self._done = self._start
        return self._pass(*(self._share or _ask_share()))

    def state_dict(self, *, batch: int | None = None) -> dict[str, int]:
        """Where this sampler stands, for a checkpoint.

        Args:
            batch: how many batches of the epoch the training has used; by default those this sampler gave out. A
                DataLoader with workers reads ahead, so with one the training loop must count and say it.
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
        """Take up a saved state: the next pass gives exactly the batches of that epoch that were left.

        The number of processes may have changed since.
        """
        new = _check_state(state_dict, batches=self._batches, items=self._items)
        self.seed = new["seed"]
        self._begin(new["epoch"])
        self._start = self._done = new["batch"]

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
            yield batch[rank::world_size].tolist()
        self._finished = True


class BinaryBatchSampler(SeededBatchSampler):
    """Batches of a fixed number of positives and negatives.

    An epoch goes once over the negatives, each exactly once, the last batch holding what is left of them. The
    positives are shuffled and gone over again and again, each equally often, give or take one. No item stands twice
    in a batch. In a batch the positives come first.

    Args:
        labels: (N,) 0 or 1 for every item of the data set.
        positives: positives in every batch, at most as many as there are.
        negatives: negatives in every batch, at most as many as there are.
        batches: length of an epoch; by default one pass over the negatives. If given, every batch is full, and the
            negatives too are gone over again and again.
        drop_last: leave out a last batch with fewer negatives.
        seed: a whole number of at least 0; with the epoch it decides every batch.
        rank: see `SeededBatchSampler`.
        world_size: see `SeededBatchSampler`.

    Example:
        >>> sampler = BinaryBatchSampler([1, 0, 0, 1, 0, 0, 0], positives=1, negatives=2)
        >>> [len(batch) for batch in sampler]
        [3, 3, 2]
        >>> batch = next(iter(sampler))
        >>> batch[0] in (0, 3)
        True
    """

    def __init__(
        self,
        labels: object,
        *,
        positives: int,
        negatives: int,
        batches: int | None = None,
        drop_last: bool = False,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        of_items = _check_item_labels(labels)
        check_labels(of_items, "binary")
        wanted = of_items.to(torch.bool).numpy()
        self._positive_items = np.flatnonzero(wanted)
        self._negative_items = np.flatnonzero(~wanted)
        self.positives = _check_at_most("positives", positives, len(self._positive_items), "positive labels")
        self.negatives = _check_at_most("negatives", negatives, len(self._negative_items), "negative labels")
        if batches is None:
            self._negatives_in_epoch = len(self._negative_items)
        else:
            self._negatives_in_epoch = check_count("batches", batches, least=1) * self.negatives
        super().__init__(
            items=len(wanted),
            batches=_number_of_batches(self._negatives_in_epoch, self.negatives, drop_last),
            batch_size=self.positives + self.negatives,
            drop_last=drop_last,
            seed=seed,
            rank=rank,
            world_size=world_size,
        )

    def __repr__(self) -> str:
        return (
            f"BinaryBatchSampler(positives={self.positives}, negatives={self.negatives}, "
            f"batches={len(self)}, seed={self.seed})"
        )

    def _draw(self, generator: torch.Generator) -> Iterator[Indices]:
        positives = _Deck(self._positive_items, generator)
        negatives = _Deck(self._negative_items, generator)
        for number in range(len(self)):
            left = self._negatives_in_epoch - number * self.negatives
            yield np.concatenate([positives.deal(self.positives), negatives.deal(min(self.negatives, left))])


class ClassBatchSampler(SeededBatchSampler):
    """Batches of a fixed number of classes and of samples per class.

    An epoch visits every class equally often: as often as a class of average size needs to show all its samples. A
    visit takes samples that the class has not shown yet in this epoch; once all were shown, it is shuffled anew. No
    item and no class stands twice in a batch. In a batch the samples of a class stand together.

    Args:
        labels: (N,) the class of every item of the data set, any integers.
        classes: classes in every batch; the last batch of an epoch may hold fewer.
        samples_per_class: samples of each of these classes.
        batches: length of an epoch. If given, every batch has all its classes, and classes are visited equally
            often, give or take one.
        short_classes: what to do with a class of fewer than `samples_per_class` samples: "take" all it has (such a
            batch is smaller), "skip" the class, or "error".
        drop_last: leave out a last batch with fewer classes.
        seed: a whole number of at least 0; with the epoch it decides every batch.
        rank: see `SeededBatchSampler`.
        world_size: see `SeededBatchSampler`.

    Example:
        >>> sampler = ClassBatchSampler([7, 7, 7, 7, 5, 5, 5, 5, 9, 9, 9, 9], classes=2, samples_per_class=2)
        >>> len(sampler)
        3
        >>> sorted(index for batch in sampler for index in batch)
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]
    """

    def __init__(
        self,
        labels: object,
        *,
        classes: int,
        samples_per_class: int,
        batches: int | None = None,
        short_classes: str = "take",
        drop_last: bool = False,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        of_items = check_ids("labels", _check_item_labels(labels)).numpy()
        self.samples_per_class = check_count("samples_per_class", samples_per_class, least=1)
        self.short_classes = check_choice("short_classes", short_classes, SHORT_CLASSES)
        self._items_of_class = _group(of_items, self.samples_per_class, self.short_classes)
        self.classes = _check_at_most("classes", classes, len(self._items_of_class), "classes to draw from")
        if batches is None:
            drawn = sum(map(len, self._items_of_class))
            rounds = -(-drawn // (len(self._items_of_class) * self.samples_per_class))
            self._visits = rounds * len(self._items_of_class)
        else:
            self._visits = check_count("batches", batches, least=1) * self.classes
        super().__init__(
            items=len(of_items),
            batches=_number_of_batches(self._visits, self.classes, drop_last),
            batch_size=self.classes * self.samples_per_class,
            drop_last=drop_last,
            seed=seed,
            rank=rank,
            world_size=world_size,
        )

    def __repr__(self) -> str:
        return (
            f"ClassBatchSampler(classes={self.classes}, samples_per_class={self.samples_per_class}, "
            f"batches={len(self)}, seed={self.seed})"
        )

    def _draw(self, generator: torch.Generator) -> Iterator[Indices]:
        classes = _Deck(np.arange(len(self._items_of_class)), generator)
        samples: dict[int, _Deck] = {}
        for number in range(len(self)):
            hands = []
            for which in classes.deal(min(self.classes, self._visits - number * self.classes)).tolist():
                if which not in samples:
                    samples[which] = _Deck(self._items_of_class[which], generator)
                hands.append(samples[which].deal(min(self.samples_per_class, len(self._items_of_class[which]))))
            yield np.concatenate(hands)


class _Deck:
    """Cards dealt in random order, each once before any comes again, and never the same twice in one hand."""

    def __init__(self, cards: Indices, generator: torch.Generator) -> None:
        self._cards = cards
        self._generator = generator
        self._left = cards[:0]

    def deal(self, count: int) -> Indices:
        hand, self._left = self._left[:count], self._left[count:]
        missing = count - len(hand)
        if missing == 0:
            return hand
        fresh: Indices = self._cards[torch.randperm(len(self._cards), generator=self._generator).numpy()]
        if len(hand) == 0:
            self._left = fresh[missing:]
            return fresh[:missing]
        # Cards still in the hand keep their place further back, so every round deals every card once.
        chosen = np.flatnonzero(np.isin(fresh, hand, invert=True))[:missing]
        self._left = np.delete(fresh, chosen)
        return np.concatenate([hand, fresh[chosen]])


def _generator(seed: int, epoch: int) -> torch.Generator:
    # Mixed, not added: seed 1 in epoch 0 is not seed 0 in epoch 1.
    mixed = np.random.SeedSequence([seed, epoch]).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(mixed[0]))


def _group(of_items: Indices, samples_per_class: int, short_classes: str) -> list[Indices]:
    order = np.argsort(of_items, kind="stable")
    names, starts = np.unique(of_items[order], return_index=True)
    groups = np.split(order, starts[1:])
    short = [len(group) < samples_per_class for group in groups]
    if short_classes == "error" and any(short):
        first = short.index(True)
        raise ValueError(
            f"labels: expected at least samples_per_class={samples_per_class} items of every class, got "
            f"{len(groups[first])} of class {names[first]} ({sum(short)} such of {len(names)} classes)"
        )
    if short_classes == "skip":
        return [group for group, is_short in zip(groups, short, strict=True) if not is_short]
    return groups


def _ask_share() -> tuple[int, int]:
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def _number_of_batches(items: int, per_batch: int, drop_last: bool) -> int:
    if not isinstance(drop_last, bool):
        raise TypeError(f"drop_last: expected True or False, got {drop_last!r}")
    return items // per_batch if drop_last else -(-items // per_batch)


def _check_item_labels(labels: object) -> Tensor:
    tensor = check_tensor("labels", labels).detach().cpu()
    if tensor.dim() != 1 or len(tensor) == 0:
        raise ValueError(f"labels: expected shape (N,) with at least one item, got {tuple(tensor.shape)}")
    return tensor


def _check_at_most(name: str, value: int, available: int, what: str) -> int:
    count = check_count(name, value, least=1)
    if count > available:
        raise ValueError(f"{name}: expected at most the number of {what}, {available}, got {count}")
    return count


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


SAMPLERS: Registry[SamplerRecord] = Registry("sampler")
SAMPLERS.add(
    SamplerRecord(
        name="binary",
        summary="a fixed number of positives and negatives in every batch",
        build=BinaryBatchSampler,
    )
)
SAMPLERS.add(
    SamplerRecord(
        name="classes",
        summary="a fixed number of classes and of samples per class in every batch",
        build=ClassBatchSampler,
    )
)
