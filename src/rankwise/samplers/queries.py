"""Batch samplers of lists: queries with their documents, users with their histories."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from rankwise.checks import check_choice, check_count, check_ids, check_labels, check_same_shape
from rankwise.distributed import list_owners
from rankwise.samplers.seeded import (
    Deck,
    Indices,
    SeededBatchSampler,
    check_at_most,
    check_item_labels,
    draw_distinct,
    number_of_batches,
)

__all__ = ["HistoryBatchSampler", "QueryBatchSampler"]

# Pairs whose order is checked at once.
_PAIRS_AT_ONCE = 1 << 22
WITHOUT_RELEVANT = ("skip", "keep", "error")


class QueryBatchSampler(SeededBatchSampler):
    """Batch sampler of a fixed number of queries, with a number of relevant and irrelevant items of each.

    An epoch visits every query once. A visit draws items of the query at random without replacement, or all of them if
    there are too few. In a batch the items of a query are adjacent, the relevant ones first. The time of a visit
    depends on the number of items drawn, not on the length of the list.

    Args:
        labels: (N,) grade of every item of the data set; above 0 is relevant.
        query_ids: (N,) query of each item, any integers.
        queries: queries in every batch; the last batch of an epoch may hold fewer.
        relevant: relevant items of each query, or None for all of them.
        irrelevant: irrelevant items of each query, or None for all of them. With both None batches hold whole lists.
        longest: items of a query at most, or None. A longer list is cut to that many items, drawn at random at each
            visit, one relevant item at least among them.
        without_relevant: treatment of queries without a relevant item, for which ranking losses have no gradient:
            "skip" them, "keep" them, or "error".
        batches: length of an epoch. If given, every batch has all its queries, and queries are visited equally often,
            up to a difference of one.
        drop_last: leave out a last batch with fewer queries.
        seed: a whole number of at least 0; seed and epoch determine every batch.
        keep_lists: whether the items of a query go to the same process at every visit, for models that look at whole
            lists and losses that keep lists local; the shares then differ in size, and may be empty. Otherwise they may
            go to different processes; the losses join them again.
        rank: see `SeededBatchSampler`.
        world_size: see `SeededBatchSampler`.

    Attributes:
        skipped: number of queries that were left out because they have no relevant item.

    Example:
        >>> labels, query_ids = [1, 0, 0, 0, 0, 2, 0], [7, 7, 7, 7, 5, 5, 5]
        >>> sampler = QueryBatchSampler(labels, query_ids, queries=1, relevant=1, irrelevant=2)
        >>> sorted(len(batch) for batch in sampler)
        [3, 3]
        >>> {batch[0] for batch in sampler} == {0, 5}
        True
    """

    def __init__(
        self,
        labels: object,
        query_ids: object,
        *,
        queries: int,
        relevant: int | None = None,
        irrelevant: int | None = None,
        longest: int | None = None,
        without_relevant: str = "skip",
        batches: int | None = None,
        drop_last: bool = False,
        keep_lists: bool = False,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        grades = check_item_labels(labels)
        check_labels(grades, "grades")
        ids = check_ids("query_ids", query_ids).detach().cpu()
        check_same_shape("query_ids", ids, "labels", grades.shape)
        self.relevant = None if relevant is None else check_count("relevant", relevant, least=1)
        self.irrelevant = None if irrelevant is None else check_count("irrelevant", irrelevant, least=0)
        self.longest = None if longest is None else check_count("longest", longest, least=1)
        self.without_relevant = check_choice("without_relevant", without_relevant, WITHOUT_RELEVANT)
        self._ids = ids.numpy() if keep_lists else None
        lists = _items_of_queries(grades.numpy() > 0, ids.numpy())
        empty = sum(len(hits) == 0 for hits, _ in lists)
        if empty and without_relevant == "error":
            raise ValueError(
                f"labels: expected a relevant item in every query, got none in {empty} of {len(lists)} queries"
            )
        if empty and without_relevant == "keep" and irrelevant == 0:
            raise ValueError(
                "irrelevant: expected 1 or more with without_relevant='keep', got 0, which leaves no item of the "
                f"{empty} of {len(lists)} queries without a relevant item"
            )
        self.skipped = empty if without_relevant == "skip" else 0
        self._queries = lists if without_relevant == "keep" else [(hits, rest) for hits, rest in lists if len(hits)]
        self.queries = check_at_most("queries", queries, len(self._queries), "queries to draw from")
        visits = len(self._queries) if batches is None else check_count("batches", batches, least=1) * self.queries
        self._visits = visits
        sizes = sorted(self._length(hits, rest) for hits, rest in self._queries)
        super().__init__(
            items=len(grades),
            batches=number_of_batches(visits, self.queries, drop_last),
            batch_size=sum(sizes[-self.queries :]),
            drop_last=drop_last,
            seed=seed,
            rank=rank,
            world_size=world_size,
        )

    def __repr__(self) -> str:
        return (
            f"QueryBatchSampler(queries={self.queries}, relevant={self.relevant}, irrelevant={self.irrelevant}, "
            f"batches={len(self)}, skipped={self.skipped}, seed={self.seed})"
        )

    def _draw(self, generator: torch.Generator) -> Iterator[Indices]:
        queries = Deck(np.arange(len(self._queries)), generator)
        for number in range(len(self)):
            parts = []
            for which in queries.deal(min(self.queries, self._visits - number * self.queries)).tolist():
                hits, rest = self._queries[which]
                relevant, irrelevant = self._numbers(hits, rest, generator)
                parts += [_some(hits, relevant, generator), _some(rest, irrelevant, generator)]
            yield np.concatenate(parts)

    def _own(self, batch: Indices, rank: int, world_size: int) -> Indices:
        if self._ids is None:
            return super()._own(batch, rank, world_size)
        own: Indices = batch[list_owners(self._ids[batch], world_size) == rank]
        return own

    def _length(self, hits: Indices, rest: Indices) -> int:
        """Return the number of items that a visit draws of a query."""
        length = self._size(hits, self.relevant) + self._size(rest, self.irrelevant)
        return length if self.longest is None else min(self.longest, length)

    def _numbers(self, hits: Indices, rest: Indices, generator: torch.Generator) -> tuple[int, int]:
        """Return the numbers of relevant and irrelevant items that a visit draws of a query."""
        relevant, irrelevant = self._size(hits, self.relevant), self._size(rest, self.irrelevant)
        length = self._length(hits, rest)
        if length < relevant + irrelevant:
            drawn = int((draw_distinct(relevant + irrelevant, length, generator) < relevant).sum())
            relevant = max(drawn, min(1, relevant))
            irrelevant = length - relevant
        return relevant, irrelevant

    @staticmethod
    def _size(items: Indices, wanted: int | None) -> int:
        return len(items) if wanted is None else min(wanted, len(items))


def _items_of_queries(relevant: np.ndarray, ids: Indices) -> list[tuple[Indices, Indices]]:
    """Return the relevant and the irrelevant items of every query, sorted by query id."""
    order = np.lexsort((~relevant, ids))
    sorted_ids = ids[order]
    starts = np.flatnonzero(np.r_[True, sorted_ids[1:] != sorted_ids[:-1]]) if len(order) else order
    hits = np.add.reduceat(relevant[order].astype(np.int64), starts)
    lists = np.split(order, starts[1:])
    return [(items[:count], items[count:]) for items, count in zip(lists, hits, strict=True)]


def _some(items: Indices, count: int, generator: torch.Generator) -> Indices:
    """Draw `count` different items uniformly at random, in random order."""
    return items[draw_distinct(len(items), count, generator)]


class HistoryBatchSampler(SeededBatchSampler):
    """Batch sampler of a fixed number of users, with a number of chosen and other items of each.

    Only the chosen pairs are given; all remaining items are a user's other items. An index encodes a pair:
    `user * items + item`. An epoch visits every user with a chosen item once; a visit draws items at random without
    replacement, or all of them if there are too few. The time of a visit does not depend on the number of items.

    Args:
        user_ids: (N,) users of the chosen pairs, 0 or more.
        item_ids: (N,) items of the chosen pairs, 0 to `items` - 1.
        items: number of items.
        users: users in every batch; the last batch of an epoch may hold fewer.
        relevant: chosen items of each user.
        irrelevant: other items of each user.
        drop_last: leave out a last batch with fewer users.
        seed: a whole number of at least 0; seed and epoch determine every batch.
        rank: see `SeededBatchSampler`. The items of a user go to the same process at every visit, so that the shares
            differ in size and may be empty.
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
        if not _rises(owners, chosen):  # otherwise the given tensors are kept: they may be mapped from a file
            pairs = (owners * items + chosen).unique()
            owners, chosen = pairs // items, pairs % items
        starts = torch.cat([torch.zeros(1, dtype=torch.int64), (owners[1:] != owners[:-1]).nonzero().squeeze(1) + 1])
        self._users = owners[starts].numpy()
        self._chosen, self._borders = chosen.numpy(), np.append(starts.numpy(), len(chosen))
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

    def _own(self, batch: Indices, rank: int, world_size: int) -> Indices:
        own: Indices = batch[list_owners(batch // self.items, world_size) == rank]
        return own

    def _draw(self, generator: torch.Generator) -> Iterator[Indices]:
        deck = Deck(np.arange(len(self._users)), generator)
        for number in range(len(self)):
            parts = []
            for which in deck.deal(min(self.users, len(self._users) - number * self.users)).tolist():
                own = self._chosen[self._borders[which] : self._borders[which + 1]]
                others = self.items - len(own)
                hits = own[draw_distinct(len(own), min(self.relevant, len(own)), generator)]
                index = draw_distinct(others, min(self.irrelevant, others), generator)
                # The p-th other item is p plus the number of chosen items before it.
                rest = index + np.searchsorted(own - np.arange(len(own)), index, side="right")
                parts.append(self._users[which] * self.items + np.concatenate([hits, rest]))
            yield np.concatenate(parts)


def _rises(first: Tensor, second: Tensor) -> bool:
    """Return whether pairs are in rising order, none twice, from a block of them at a time."""
    for begin in range(0, len(first) - 1, _PAIRS_AT_ONCE):
        block = slice(begin, begin + _PAIRS_AT_ONCE + 1)
        steps, further = first[block].diff(), second[block].diff()
        if not bool(((steps > 0) | ((steps == 0) & (further > 0))).all()):
            return False
    return True
