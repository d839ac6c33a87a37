"""Parts of a data set, batches of their rows, and ways to cut it into train, validation and test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Generic, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.utils.data import Dataset

from rankwise.checks import check_choice, check_count
from rankwise.data.mapped import FeatureRows, MappedNames, join_features, take_features, take_names

__all__ = [
    "Batch",
    "Boxes",
    "Part",
    "Split",
    "cut_by_class",
    "cut_by_query",
    "cut_stratified",
    "cut_within_queries",
    "folds_by_query",
    "put_in_folds",
    "put_lists_in_folds",
    "require_labels",
]

THIRDS = (0.6, 0.2, 0.2)


class Boxes(NamedTuple):
    """Boxes of the objects of B images, at most M in each.

    Attributes:
        corners: (B, M, 4) left, top, right and bottom edge in pixels.
        mask: (B, M) False where there is no object.
        ignored: (B, M) objects that are neither missed nor wrong (crowds, difficult ones).
    """

    corners: Tensor
    mask: Tensor
    ignored: Tensor


class Batch(NamedTuple):
    """Some rows of a part.

    Attributes:
        features: (B, D), or images (B, C, H, W); labels: (B,), or (B, M) where a row has several.
        sample_ids: (B,) indices of the rows in the part.
        query_ids: (B,) the list each row belongs to, or None if all rows are one list.
        boxes: where the M objects of each image stand, in detection.
        folds: (B,) of rows in folds, see `Part`.
    """

    features: Tensor
    labels: Tensor
    sample_ids: Tensor
    query_ids: Tensor | None
    boxes: Boxes | None = None
    folds: Tensor | None = None


@dataclass(frozen=True)
class Part(Dataset[Batch]):
    """Rows and their labels; an ordinary map-style data set.

    Attributes:
        features: (N, D), in memory or in mapped files.
        targets: (N,) labels: 0 and 1, classes, or grades of relevance; None if the rows have none.
        query_ids: (N,) any integers, the list each row belongs to; None if all rows are one list.
        query_names: names of the lists 0, 1, 2, ... where the data call them by text, in the order of appearance.
        row_numbers: (N,) numbers of the rows in their source, from 1; None if this is all of it, in its order.
        row_ids: N ids of the rows in their source, if it has any, in memory or in a mapped file.
        folds: (N,) the member of an ensemble that does not learn from a row; None if all do.
    """

    features: FeatureRows
    targets: Tensor | None
    query_ids: Tensor | None = None
    query_names: tuple[str, ...] | None = None
    row_numbers: Tensor | None = None
    row_ids: tuple[str, ...] | MappedNames | None = None
    folds: Tensor | None = None

    def __post_init__(self) -> None:
        for name, values in (("labels", self.targets), ("query_ids", self.query_ids), ("folds", self.folds)):
            if values is not None and (values.dim() != 1 or len(self.features) != len(values)):
                raise ValueError(
                    f"{name}: expected shape (N,) with one for each of the {len(self.features)} rows, "
                    f"got {tuple(values.shape)}"
                )

    @property
    def labels(self) -> Tensor:
        """Return the labels (N,); raise an error if the rows have none."""
        return require_labels(self.targets)

    @property
    def rows(self) -> Tensor:
        """Return the numbers (N,) of the rows in their source, from 1."""
        return torch.arange(1, len(self) + 1) if self.row_numbers is None else self.row_numbers

    def row_name(self, index: int) -> str:
        """Return what a row is called: by its number in the source, and its id if it has one."""
        own = "" if self.row_ids is None else f" ({self.row_ids[index]})"
        return f"row {int(self.rows[index])}{own}"

    def __len__(self) -> int:
        return len(self.features)

    def __getitem__(self, index: int) -> Batch:
        return self.__getitems__([index])

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        # A DataLoader asks this for a whole batch: one gather instead of N small ones and a stack.
        rows = torch.as_tensor(indices, dtype=torch.int64)
        query_ids = None if self.query_ids is None else self.query_ids[rows]
        folds = None if self.folds is None else self.folds[rows]
        return Batch(self.features[rows], self.labels[rows], rows, query_ids, folds=folds)

    def take(self, rows: Tensor) -> Part:
        """Return the part that holds these rows only, in this order."""
        targets = None if self.targets is None else self.targets[rows]
        query_ids = None if self.query_ids is None else self.query_ids[rows]
        ids = None if self.row_ids is None else take_names(self.row_ids, rows)
        features = take_features(self.features, rows)
        folds = None if self.folds is None else self.folds[rows]
        return Part(features, targets, query_ids, self.query_names, self.rows[rows], ids, folds)

    def join(self, other: Part) -> Part:
        """Return the rows of this part and then those of another, in no folds.

        Lists of the other part that have a number in use get another, unless both parts name their lists alike.

        Example:
            >>> first, second = (Part(torch.rand(2, 3), torch.ones(2), torch.tensor([7, 8])) for _ in range(2))
            >>> first.join(second).query_ids.tolist()
            [7, 8, 9, 10]
        """
        targets = None if self.targets is None else torch.cat([self.targets, other.labels])
        features = join_features(self.features, other.features)
        if self.query_ids is None or other.query_ids is None:
            return Part(features, targets)
        own, others, names = self.query_ids, other.query_ids, self.query_names
        if names is not None and other.query_names != names:
            others, names = others + len(names), (*names, *(other.query_names or ()))
        elif names is None and bool(torch.isin(others, own).any()):
            others = others - others.min() + own.max() + 1
        return Part(features, targets, torch.cat([own, others]), names)


L = TypeVar("L")


def require_labels(targets: L | None) -> L:
    """Return the labels of a part; raise an error if it has none."""
    if targets is None:
        raise ValueError("data: expected labels, to train or to evaluate, got data without them")
    return targets


P = TypeVar("P")


@dataclass(frozen=True)
class Split(Generic[P]):
    """Three parts: `train` to learn from, `validation` for choices, `test` for the final figure.

    They are disjoint, but `validation` may be a `train` in folds itself: choices are then made by scores of members
    that did not learn from the row. A part that is still to be cut from `train` is None.
    """

    train: P
    validation: P | None = None
    test: P | None = None

    @property
    def cross_validated(self) -> bool:
        """Return whether the validation part is the training part, in folds."""
        return self.validation is self.train

    def part(self, name: str) -> P:
        """Return the part called "train", "validation" or "test"."""
        check_choice("part", name, ("train", "validation", "test"))
        part: P | None = getattr(self, name)
        if part is None:
            raise ValueError(f"part: expected one that was given or cut, got {name!r}, which this split lacks")
        return part


def cut_by_class(
    features: Tensor, labels: Tensor, *, train: Sequence[int], validation: Sequence[int], seed: int
) -> Split[Part]:
    """Cut a data set at random, with a given number of rows of every class in two of the parts.

    Args:
        features: (N, D).
        labels: (N,) classes 0 .. C-1.
        train: rows of each of the C classes to learn from.
        validation: rows of each of the C classes for choices. What is left is the test part.
        seed: decides which rows go where.

    Example:
        >>> labels = torch.tensor([0, 0, 0, 0, 1, 1, 1])
        >>> split = cut_by_class(torch.rand(7, 2), labels, train=[2, 1], validation=[1, 1], seed=0)
        >>> [part.labels.tolist() for part in (split.train, split.validation, split.test)]
        [[0, 0, 1], [0, 1], [0, 1]]
    """
    generator = torch.Generator().manual_seed(seed)
    chosen: tuple[list[Tensor], ...] = ([], [], [])
    for label, (learn, choose) in enumerate(zip(train, validation, strict=True)):
        rows = (labels == label).nonzero().squeeze(1)
        if len(rows) <= learn + choose:
            raise ValueError(
                f"labels: expected more than {learn + choose} rows of class {label} to leave some for the test part, "
                f"got {len(rows)}"
            )
        shuffled = rows[torch.randperm(len(rows), generator=generator)]
        for part, of_class in zip(chosen, shuffled.tensor_split([learn, learn + choose]), strict=True):
            part.append(of_class)
    return Split(*(Part(features[rows], labels[rows]) for rows in map(torch.cat, chosen)))


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


def put_lists_in_folds(part: Part, folds: int, *, seed: int) -> Part:
    """Return the part with its lists in folds at random, each with the same share of those with a positive label.

    Example:
        >>> part = Part(torch.rand(9, 2), torch.tensor([1, 0, 0] * 3), torch.arange(9) // 3)
        >>> put_lists_in_folds(part, 3, seed=0).folds.unique_consecutive().sort().values.tolist()
        [0, 1, 2]
    """
    count, list_of_row = _queries(part)
    positive = torch.zeros(count, dtype=torch.int64).index_add_(0, list_of_row, (part.labels > 0).long()) > 0
    lists = put_in_folds(Part(torch.empty(count, 0), positive.long()), folds, seed=seed)
    assert lists.folds is not None
    return replace(part, folds=lists.folds[list_of_row])


def put_in_folds(part: Part, folds: int, *, seed: int) -> Part:
    """Return the part with its rows in folds at random, each with the same share of every class, to within one row.

    Example:
        >>> part = put_in_folds(Part(torch.rand(9, 2), torch.tensor([1] * 3 + [0] * 6)), 3, seed=0)
        >>> part.folds[:3].sort().values.tolist(), part.folds.bincount().tolist()
        ([0, 1, 2], [3, 3, 3])
    """
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(part), generator=generator)
    # By class, and within a class at random; dealing goes on from one class to the next.
    order = order[part.labels[order].argsort(stable=True)]
    numbers = torch.empty_like(order)
    numbers[order] = torch.arange(len(part)) % check_count("folds", folds, least=2)
    return replace(part, folds=numbers)


def _queries(part: Part) -> tuple[int, Tensor]:
    if part.query_ids is None:
        raise ValueError("part: expected query ids, to cut between lists, got none; cut_stratified needs none")
    queries, query_of_row = part.query_ids.unique(return_inverse=True)
    return len(queries), query_of_row


def _shuffled(count: int, seed: int) -> Tensor:
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))


def _whole_sizes(count: int, shares: Sequence[float], *, what: str) -> list[int]:
    """Cut `count` by shares, rounded at the borders; a share above 0 of nothing is refused."""
    if len(shares) != 3 or any(not 0 <= share <= 1 for share in shares) or abs(sum(shares) - 1) > 1e-6:
        raise ValueError(f"shares: expected three numbers from 0 to 1 that add up to 1, got {tuple(shares)}")
    borders = [0, round(count * shares[0]), round(count * (shares[0] + shares[1])), count]
    sizes = [end - begin for begin, end in pairwise(borders)]
    for share, size in zip(shares, sizes, strict=True):
        if share > 0 and size == 0:
            raise ValueError(f"shares: expected enough {what} for every part, got {count} for {tuple(shares)}")
    return sizes
