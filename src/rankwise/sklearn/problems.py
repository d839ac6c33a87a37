"""Problems for the training loop of the estimators: batches, losses, and the metric on held-out rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rankwise.metrics import Metric, average_precision, evaluate

__all__ = ["Batch", "ManyLists", "OneList", "Problem", "hold_out"]

Rows = NDArray[np.intp]


class Batch(NamedTuple):
    """Rows (M, B) for each of M members, and what each weighs (0: not there)."""

    rows: Rows
    weights: Tensor


class Problem(Protocol):
    """Labelled rows, some of them held out from each member."""

    held: NDArray[np.bool_]

    def batches(self, random: np.random.Generator) -> Iterator[Batch]:
        """Yield batches without end."""

    def cost(self, loss: nn.Module, scores: Tensor, batch: Batch) -> Tensor:
        """Compute the loss of the scores (M, B, C) of a batch, a scalar."""

    def quality(self, scores: Tensor, rows: Rows) -> float:
        """Compute the metric of one member's scores (n, C) of some rows; NaN if it is undefined."""


class OneList:
    """All rows are one list, or C lists for C classes.

    Args:
        labels: (N, C) 0 or 1; weights: (N,) positive numbers.
        held: (M, N) which rows are held out from which member.
        batch_size: rows in a batch; with no more rows than this, every batch holds all of them.
    """

    def __init__(self, labels: Tensor, weights: Tensor, held: NDArray[np.bool_], batch_size: int) -> None:
        self.labels, self.weights, self.held, self.batch_size = labels, weights, held, batch_size
        members, self.size = held.shape
        classes = labels.shape[1]
        self.lists = torch.arange(members * classes)

    @property
    def whole(self) -> bool:
        """Return whether every batch holds all rows."""
        return bool(self.size <= self.batch_size)

    def batches(self, random: np.random.Generator) -> Iterator[Batch]:
        if self.whole:
            rows = np.broadcast_to(np.arange(self.size), self.held.shape).copy()
            weights = self.weights.expand(self.held.shape) * torch.from_numpy(~self.held)
            while True:
                yield Batch(rows, weights)
        kinds = _kinds(self.labels)
        decks = [_decks(np.flatnonzero(~held), kinds, self.batch_size, random) for held in self.held]
        while True:
            rows = np.stack([next(deck) for deck in decks])
            yield Batch(rows, self.weights[rows])

    def cost(self, loss: nn.Module, scores: Tensor, batch: Batch) -> Tensor:
        members, _, classes = scores.shape
        rows = torch.from_numpy(batch.rows)
        labels = self.labels[rows].transpose(1, 2).flatten(0, 1)
        ids = rows.repeat_interleave(classes, 0) + self.size * self.lists[:, None]
        value: Tensor = loss(
            scores.transpose(1, 2).flatten(0, 1),
            labels,
            query_ids=self.lists,
            sample_ids=ids,
            weights=batch.weights.to(scores.dtype).repeat_interleave(classes, 0),
        )
        return value * members

    def quality(self, scores: Tensor, rows: Rows) -> float:
        weights = self.weights[rows, None].expand(scores.shape)
        return float(average_precision(scores.T, self.labels[rows].T, weights=weights.T))


class ManyLists:
    """Each query is a list.

    Args:
        labels: (N,) relevance; weights: (N,) positive numbers.
        queries: (N,) 0 .. Q-1, the query of each row.
        held: (M, N) which rows are held out from which member: whole queries.
        batch_queries: queries in a batch.
        metric: what held-out queries are judged by.
    """

    def __init__(
        self,
        labels: Tensor,
        weights: Tensor,
        queries: Rows,
        held: NDArray[np.bool_],
        *,
        batch_queries: int,
        metric: Metric,
    ) -> None:
        self.labels, self.weights, self.held, self.metric = labels, weights, held, metric
        self.queries = torch.from_numpy(queries)
        self.batch_queries = batch_queries
        self._by_query = np.argsort(queries, kind="stable")
        self._lengths = np.bincount(queries)
        self._starts = np.cumsum(self._lengths) - self._lengths

    def batches(self, random: np.random.Generator) -> Iterator[Batch]:
        held = self.held[:, self._by_query[self._starts]]
        hands = [_deck(queries, min(self.batch_queries, len(queries)), random) for queries in map(_where_not, held)]
        while True:
            yield self._together([self._rows_of(next(hand)) for hand in hands])

    def cost(self, loss: nn.Module, scores: Tensor, batch: Batch) -> Tensor:
        rows = torch.from_numpy(batch.rows)
        member = torch.arange(len(rows))[:, None]
        value: Tensor = loss(
            scores.flatten(),
            self.labels[rows].flatten(),
            query_ids=(self.queries[rows] + member * len(self._lengths)).flatten(),
            sample_ids=(rows + member * len(self.labels)).flatten(),
            weights=batch.weights.to(scores.dtype).flatten(),
        )
        return value * len(rows)

    def quality(self, scores: Tensor, rows: Rows) -> float:
        result = evaluate(
            scores[:, 0],
            self.labels[rows],
            self.metric,
            query_ids=self.queries[rows],
            weights=self.weights[rows],
            bootstrap=0,
        )
        return result.means[self.metric.name]

    def _rows_of(self, queries: Rows) -> Rows:
        """All rows of some queries."""
        lengths = self._lengths[queries]
        offset = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        rows: Rows = self._by_query[np.repeat(self._starts[queries], lengths) + offset]
        return rows

    def _together(self, rows_of_members: list[Rows]) -> Batch:
        """Padded to the longest by rows of weight 0."""
        width = max(map(len, rows_of_members))
        rows = np.zeros((len(rows_of_members), width), dtype=np.intp)
        weights = torch.zeros(rows.shape, dtype=self.weights.dtype)
        for member, own in enumerate(rows_of_members):
            rows[member, : len(own)] = own
            weights[member, : len(own)] = self.weights[own]
        return Batch(rows, weights)


def _where_not(held: NDArray[np.bool_]) -> Rows:
    return np.flatnonzero(~held)


def hold_out(keys: NDArray[np.uint64], kinds: Rows, members: int, fraction: float) -> NDArray[np.bool_]:
    """Return the rows (N,) held out from each member, (M, N): the same share of each class, different rows per member.

    Rows with the same key go together, so a repeated row is never learned from and held out at once.
    """
    held = np.zeros((members, len(keys)), dtype=bool)
    starts = np.arange(members) * fraction
    for kind in np.unique(kinds):
        rows = np.flatnonzero(kinds == kind)
        distinct, index = np.unique(keys[rows], return_inverse=True)
        if len(distinct) > 1:
            at = (index + 0.5) / len(distinct)
            held[:, rows] = (at - starts[:, None]) % 1 < fraction
    return held


def _kinds(labels: Tensor) -> Rows:
    """The class of each row: of one column 0 or 1, of several the first that is set."""
    classes = labels[:, 0] if labels.shape[1] == 1 else labels.argmax(1)
    return classes.numpy().astype(np.intp)


def _decks(rows: Rows, kinds: Rows, batch_size: int, random: np.random.Generator) -> Iterator[Rows]:
    """Batches in which a class of n rows gets a share in proportion to sqrt(n): rare classes are seen more often."""
    counts = np.bincount(kinds[rows])
    share = np.sqrt(counts) / np.sqrt(counts).sum()
    sizes = np.floor(share * batch_size).astype(int)
    sizes[share.argmax()] += batch_size - sizes.sum()
    decks = [_deck(rows[kinds[rows] == kind], size, random) for kind, size in enumerate(sizes) if size]
    while True:
        yield np.concatenate([next(deck) for deck in decks])


def _deck(cards: Rows, hand: int, random: np.random.Generator) -> Iterator[Rows]:
    """Hands in random order; every card once before any comes again."""
    left = cards[:0]
    while True:
        while len(left) < hand:
            left = np.concatenate([left, random.permutation(cards)])
        yield left[:hand]
        left = left[hand:]
