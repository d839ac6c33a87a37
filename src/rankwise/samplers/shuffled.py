"""Batches of all items in random order."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from rankwise.samplers.seeded import Indices, SeededBatchSampler, check_at_most, check_item_labels, number_of_batches

__all__ = ["ShuffledBatchSampler"]


class ShuffledBatchSampler(SeededBatchSampler):
    """Batches of all items in random order, each once per epoch, whatever their labels.

    Args:
        labels: (N,) one per item of the data set; only their number matters.
        batch_size: items in every batch; the last one may hold fewer.
        drop_last: leave out a last batch that is not full.
        seed: a whole number of at least 0; with the epoch it decides every batch.
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
