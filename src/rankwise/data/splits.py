"""Ways to cut a data set into parts: whole lists at random, folds of lists, the same share of every class."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from rankwise.data.parts import Part, Split

__all__ = ["cut_by_query", "cut_stratified", "cut_within_queries", "folds_by_query"]

THIRDS = (0.6, 0.2, 0.2)


def cut_by_query(part: Part, *, shares: Sequence[float] = THIRDS, seed: int) -> Split[Part]:
    """Cut at random into parts of whole lists: no list is in two of them.

    Args:
        part: the data, with query ids.
        shares: of the lists that go to train, validation and test; they add up to 1.
        seed: decides which lists go where.

    Example:
        >>> part = Part(torch.rand(10, 2), torch.zeros(10), torch.arange(10) // 2)
        >>> split = cut_by_query(part, shares=(0.6, 0.2, 0.2), seed=0)
        >>> [each.query_ids.unique().tolist() for each in (split.train, split.validation, split.test)]
        [[0, 1, 4], [3], [2]]
    """
    queries, query_of_row = _queries(part)
    order = _shuffled(queries, seed)
    piece_of_query = torch.empty_like(order)
    sizes = _whole_sizes(queries, shares, what="lists")
    piece_of_query[order] = torch.repeat_interleave(torch.arange(3), torch.tensor(sizes))
    return Split(*(part.take((piece_of_query[query_of_row] == piece).nonzero().squeeze(1)) for piece in range(3)))


def cut_within_queries(part: Part, *, shares: Sequence[float] = THIRDS, seed: int) -> Split[Part]:
    """Cut the rows of every list at random: each list is in all parts, with these shares of its rows, rounded.

    Args:
        part: the data, with query ids.
        shares: of the rows of a list that go to train, validation and test; they add up to 1.
        seed: decides which rows go where.

    Example:
        >>> part = Part(torch.rand(20, 2), torch.zeros(20), torch.arange(20) // 10)
        >>> split = cut_within_queries(part, shares=(0.6, 0.2, 0.2), seed=0)
        >>> [each.query_ids.bincount().tolist() for each in (split.train, split.validation, split.test)]
        [[6, 6], [2, 2], [2, 2]]
    """
    _, query_of_row = _queries(part)
    _whole_sizes(len(part), shares, what="rows")
    order = _shuffled(len(part), seed)
    order = order[query_of_row[order].argsort(stable=True)]
    lengths = query_of_row.bincount()
    index = torch.arange(len(part)) - (lengths.cumsum(0) - lengths).repeat_interleave(lengths)
    share = (index + 0.5) / lengths.repeat_interleave(lengths)
    piece = torch.empty_like(order)
    piece[order] = (share >= shares[0]).long() + (share >= shares[0] + shares[1]).long()
    return Split(*(part.take((piece == number).nonzero().squeeze(1)) for number in range(3)))


def folds_by_query(part: Part, *, k: int, seed: int) -> list[Split[Part]]:
    """Cut the lists at random into k equal groups; each is the test part once, the next one validation then.

    Args:
        part: the data, with query ids.
        k: how many folds, at least 3.
        seed: decides which lists stand together.

    Example:
        >>> part = Part(torch.rand(8, 2), torch.zeros(8), torch.arange(8) // 2)
        >>> [split.test.query_ids.unique().tolist() for split in folds_by_query(part, k=4, seed=0)]
        [[0], [1], [3], [2]]
    """
    queries, query_of_row = _queries(part)
    if isinstance(k, bool) or not isinstance(k, int) or not 3 <= k <= queries:
        raise ValueError(f"k: expected a whole number from 3 to the {queries} lists, got {k!r}")
    group_of_query = torch.empty(queries, dtype=torch.int64)
    group_of_query[_shuffled(queries, seed)] = torch.arange(queries) % k
    group_of_row = group_of_query[query_of_row]

    def rows(chosen: Tensor) -> Part:
        return part.take(chosen.nonzero().squeeze(1))

    splits = []
    for test in range(k):
        validation = (test + 1) % k
        others = (group_of_row != test) & (group_of_row != validation)
        splits.append(Split(rows(others), rows(group_of_row == validation), rows(group_of_row == test)))
    return splits


def cut_stratified(part: Part, *, shares: Sequence[float] = THIRDS, seed: int) -> Split[Part]:
    """Cut at random with the same share of every class in each part, to within one row.

    Args:
        part: the data; its labels are classes, 0 and 1 or more of them.
        shares: of the rows of each class that go to train, validation and test; they add up to 1.
        seed: decides which rows go where.

    Example:
        >>> part = Part(torch.rand(20, 2), torch.tensor([1] * 5 + [0] * 15))
        >>> split = cut_stratified(part, shares=(0.6, 0.2, 0.2), seed=0)
        >>> [(int(each.labels.sum()), len(each)) for each in (split.train, split.validation, split.test)]
        [(3, 12), (1, 4), (1, 4)]
    """
    generator = torch.Generator().manual_seed(seed)
    pieces: tuple[list[Tensor], ...] = ([], [], [])
    for label in part.labels.unique():
        rows = (part.labels == label).nonzero().squeeze(1)
        sizes = _whole_sizes(len(rows), shares, what=f"rows of class {label.item():g}")
        shuffled = rows[torch.randperm(len(rows), generator=generator)]
        for piece, of_class in zip(pieces, shuffled.split(sizes), strict=True):
            piece.append(of_class)
    return Split(*(part.take(torch.cat(piece).sort().values) for piece in pieces))


def _queries(part: Part) -> tuple[int, Tensor]:
    if part.query_ids is None:
        raise ValueError("part: expected query ids, to cut between lists, got none; cut_stratified needs none")
    queries, query_of_row = part.query_ids.unique(return_inverse=True)
    return len(queries), query_of_row


def _shuffled(count: int, seed: int) -> Tensor:
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))


def _whole_sizes(count: int, shares: Sequence[float], *, what: str) -> list[int]:
    """`count` cut by shares, rounded at the borders; a share above 0 of nothing is refused."""
    if len(shares) != 3 or any(not 0 <= share <= 1 for share in shares) or abs(sum(shares) - 1) > 1e-6:
        raise ValueError(f"shares: expected three numbers from 0 to 1 that add up to 1, got {tuple(shares)}")
    borders = [0, round(count * shares[0]), round(count * (shares[0] + shares[1])), count]
    sizes = [end - begin for begin, end in pairwise(borders)]
    for share, size in zip(shares, sizes, strict=True):
        if share > 0 and size == 0:
            raise ValueError(f"shares: expected enough {what} for every part, got {count} for {tuple(shares)}")
    return sizes
