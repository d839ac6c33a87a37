"""Batch samplers of labelled items: shuffled, of positives and negatives, of classes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from rankwise.checks import check_choice, check_count, check_ids, check_labels
from rankwise.samplers.seeded import (
    Deck,
    Indices,
    SeededBatchSampler,
    check_at_most,
    check_item_labels,
    number_of_batches,
)

__all__ = ["BinaryBatchSampler", "ClassBatchSampler", "ShuffledBatchSampler"]

SHORT_CLASSES = ("take", "skip", "error")


class ShuffledBatchSampler(SeededBatchSampler):
    """Batch sampler of all items in random order, each once per epoch.

    Args:
        labels: (N,) labels of the data set; only their number matters.
        batch_size: items in every batch; the last one may hold fewer.
        drop_last: leave out a last batch that is not full.
        seed: a whole number of at least 0; seed and epoch determine every batch.
        rank: see `SeededBatchSampler`.
        world_size: see `SeededBatchSampler`.

    Example:
        >>> [len(batch) for batch in ShuffledBatchSampler([0, 0, 1, 0, 1, 0, 0], batch_size=3)]
        [3, 3, 1]
    """

    def __init__(
        self,
        labels: object,
        *,
        batch_size: int,
        drop_last: bool = False,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        items = len(check_item_labels(labels))
        batch_size = check_at_most("batch_size", batch_size, items, "items")
        super().__init__(
            items=items,
            batches=number_of_batches(items, batch_size, drop_last),
            batch_size=batch_size,
            drop_last=drop_last,
            seed=seed,
            rank=rank,
            world_size=world_size,
        )

    def __repr__(self) -> str:
        return f"ShuffledBatchSampler(batch_size={self.batch_size}, batches={len(self)}, seed={self.seed})"

    def _draw(self, generator: torch.Generator) -> Iterator[Indices]:
        order: Indices = torch.randperm(self._items, generator=generator).numpy()
        for number in range(len(self)):
            yield order[number * self.batch_size : (number + 1) * self.batch_size]


class BinaryBatchSampler(SeededBatchSampler):
    """Batch sampler of a fixed number of positives and negatives.

    An epoch is one pass over the negatives; its last batch may have fewer. The positives are shuffled and repeated,
    each equally often up to a difference of one. No item occurs twice in a batch. In a batch the positives come first.

    Args:
        labels: (N,) 0 or 1 for every item of the data set.
        positives: positives in every batch, at most those of the data set.
        negatives: negatives in every batch, at most those of the data set.
        batches: length of an epoch; by default one pass over the negatives. If given, every batch is full, and the
            negatives are repeated too.
        drop_last: leave out a last batch with fewer negatives.
        seed: a whole number of at least 0; seed and epoch determine every batch.
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
        item_labels = check_item_labels(labels)
        check_labels(item_labels, "binary")
        positive = item_labels.to(torch.bool).numpy()
        self._positive_items = np.flatnonzero(positive)
        self._negative_items = np.flatnonzero(~positive)
        self.positives = check_at_most("positives", positives, len(self._positive_items), "positive labels")
        self.negatives = check_at_most("negatives", negatives, len(self._negative_items), "negative labels")
        if batches is None:
            self._negatives_in_epoch = len(self._negative_items)
        else:
            self._negatives_in_epoch = check_count("batches", batches, least=1) * self.negatives
        super().__init__(
            items=len(positive),
            batches=number_of_batches(self._negatives_in_epoch, self.negatives, drop_last),
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
        positives = Deck(self._positive_items, generator)
        negatives = Deck(self._negative_items, generator)
        for number in range(len(self)):
            left = self._negatives_in_epoch - number * self.negatives
            yield np.concatenate([positives.deal(self.positives), negatives.deal(min(self.negatives, left))])


class ClassBatchSampler(SeededBatchSampler):
    """Batch sampler of a fixed number of classes and of samples per class.

    An epoch visits every class equally often, so that a class of average size yields all its samples. Within a class,
    samples come in random order without replacement; after the last one they are shuffled again. No item and no class
    occurs twice in a batch. In a batch the samples of a class are adjacent.

    Args:
        labels: (N,) class of every item of the data set, any integers.
        classes: classes in every batch; the last batch of an epoch may hold fewer.
        samples_per_class: samples of each of these classes.
        batches: length of an epoch. If given, every batch has all its classes, and classes are visited equally
            often, up to a difference of one.
        short_classes: treatment of a class of fewer than `samples_per_class` samples: "take" all its samples (such a
            batch is smaller), "skip" the class, or "error".
        drop_last: leave out a last batch with fewer classes.
        seed: a whole number of at least 0; seed and epoch determine every batch.
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
        item_labels = check_ids("labels", check_item_labels(labels)).numpy()
        self.samples_per_class = check_count("samples_per_class", samples_per_class, least=1)
        self.short_classes = check_choice("short_classes", short_classes, SHORT_CLASSES)
        self._items_of_class = _group(item_labels, self.samples_per_class, self.short_classes)
        self.classes = check_at_most("classes", classes, len(self._items_of_class), "classes to draw from")
        if batches is None:
            drawn = sum(map(len, self._items_of_class))
            rounds = -(-drawn // (len(self._items_of_class) * self.samples_per_class))
            self._visits = rounds * len(self._items_of_class)
        else:
            self._visits = check_count("batches", batches, least=1) * self.classes
        super().__init__(
            items=len(item_labels),
            batches=number_of_batches(self._visits, self.classes, drop_last),
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
        classes = Deck(np.arange(len(self._items_of_class)), generator)
        samples: dict[int, Deck] = {}
        for number in range(len(self)):
            parts = []
            for which in classes.deal(min(self.classes, self._visits - number * self.classes)).tolist():
                if which not in samples:
                    samples[which] = Deck(self._items_of_class[which], generator)
                parts.append(samples[which].deal(min(self.samples_per_class, len(self._items_of_class[which]))))
            yield np.concatenate(parts)


def _group(item_labels: Indices, samples_per_class: int, short_classes: str) -> list[Indices]:
    order = np.argsort(item_labels, kind="stable")
    names, starts = np.unique(item_labels[order], return_index=True)
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
