"""Batches of positives and negatives."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from rankwise.checks import check_count, check_labels
from rankwise.samplers.seeded import (
    Deck,
    Indices,
    SeededBatchSampler,
    check_at_most,
    check_item_labels,
    number_of_batches,
)

__all__ = ["BinaryBatchSampler"]


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
        of_items = check_item_labels(labels)
        check_labels(of_items, "binary")
        wanted = of_items.to(torch.bool).numpy()
        self._positive_items = np.flatnonzero(wanted)
        self._negative_items = np.flatnonzero(~wanted)
        self.positives = check_at_most("positives", positives, len(self._positive_items), "positive labels")
        self.negatives = check_at_most("negatives", negatives, len(self._negative_items), "negative labels")
        if batches is None:
            self._negatives_in_epoch = len(self._negative_items)
        else:
            self._negatives_in_epoch = check_count("batches", batches, least=1) * self.negatives
        super().__init__(
            items=len(wanted),
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
