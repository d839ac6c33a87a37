"""Batches of users, with some items each has chosen and some of all the others."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from rankwise.checks import check_count, check_ids, check_same_shape
from rankwise.samplers.seeded import Deck, Indices, SeededBatchSampler, check_at_most, draw_distinct, number_of_batches

__all__ = ["HistoryBatchSampler"]


class HistoryBatchSampler(SeededBatchSampler):
    """Batches of a fixed number of users, with a number of chosen and other items of each.

    Only the chosen pairs are named; a user's other items are all the rest. An index stands for a pair:
    `user * items + item`. An epoch visits every user with a chosen item once; a visit draws items at random, none
    twice; a user with fewer than asked for gives all there are. The cost of a visit does not depend on the number of
    items.

    Args:
        user_ids: (N,) the users of the chosen pairs, 0 or more.
        item_ids: (N,) the items of the chosen pairs, 0 to `items` - 1.
        items: how many items there are.
        users: users in every batch; the last batch of an epoch may hold fewer.
        relevant: chosen items of each user.
        irrelevant: other items of each user.
        drop_last: leave out a last batch with fewer users.
        seed: a whole number of at least 0; with the epoch it decides every batch.
        rank: see `SeededBatchSampler`. The items of a user may go to different processes; the losses join them again.
        world_size: see `SeededBatchSampler`.

    Example:
        >>> sampler = HistoryBatchSampler([0, 0, 1], [3, 4, 0], items=10, users=2, relevant=1, irrelevant=3)
        >>> [len(batch) for batch in sampler]
        [8]
    """

    def __init__(
        self,
        user_ids: object,
        item_ids: object,
        *,
        items: int,
        users: int,
        relevant: int,
        irrelevant: int,
        drop_last: bool = False,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        owners, chosen = (check_ids(n, v).cpu() for n, v in (("user_ids", user_ids), ("item_ids", item_ids)))
        check_same_shape("item_ids", chosen, "user_ids", owners.shape)
        self.items = check_count("items", items)
        if owners.ndim != 1 or not len(owners) or int(owners.min()) < 0:
            raise ValueError(f"user_ids: expected shape (N,), at least one, none below 0, got {tuple(owners.shape)}")
        if int(chosen.min()) < 0 or int(chosen.max()) >= items:
            raise ValueError(f"item_ids: expected 0 to {items - 1}, got {int(chosen.min())} to {int(chosen.max())}")
        self.relevant = check_count("relevant", relevant)
        self.irrelevant = check_count("irrelevant", irrelevant)
        pairs = (owners * items + chosen).unique().numpy()
        self._users, starts = np.unique(pairs // items, return_index=True)
        self._histories = np.split(pairs % items, starts[1:])
        self.users = check_at_most("users", users, len(self._users), "users with a chosen item")
        super().__init__(
            items=int(self._users.max() + 1) * items,
            batches=number_of_batches(len(self._users), self.users, drop_last),
            batch_size=self.users * (self.relevant + self.irrelevant),
            drop_last=drop_last,
            seed=seed,
            rank=rank,
            world_size=world_size,
        )

    def __repr__(self) -> str:
        return (
            f"HistoryBatchSampler(users={self.users}, relevant={self.relevant}, irrelevant={self.irrelevant}, "
            f"batches={len(self)}, seed={self.seed})"
        )

    def _draw(self, generator: torch.Generator) -> Iterator[Indices]:
        deck = Deck(np.arange(len(self._users)), generator)
        for number in range(len(self)):
            hands = []
            for which in deck.deal(min(self.users, len(self._users) - number * self.users)).tolist():
                own = self._histories[which]
                others = self.items - len(own)
                hits = own[draw_distinct(len(own), min(self.relevant, len(own)), generator)]
                places = draw_distinct(others, min(self.irrelevant, others), generator)
                # The p-th of the other items is p plus the chosen ones before it.
                rest = places + np.searchsorted(own - np.arange(len(own)), places, side="right")
                hands.append(self._users[which] * self.items + np.concatenate([hits, rest]))
            yield np.concatenate(hands)
