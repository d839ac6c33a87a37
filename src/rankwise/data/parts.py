"""Parts of a data set, batches of their rows, and the split into train, validation and test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.utils.data import Dataset

from rankwise.checks import check_choice
from rankwise.data.mapped import FeatureRows, join_features, take_features

__all__ = ["Batch", "Boxes", "Part", "Split", "cut_by_class", "require_labels"]


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
    """

    features: Tensor
    labels: Tensor
    sample_ids: Tensor
    query_ids: Tensor | None
    boxes: Boxes | None = None


@dataclass(frozen=True)
class Part(Dataset[Batch]):
    """Rows and their labels; an ordinary map-style data set.

    Attributes:
        features: (N, D), in memory or in mapped files.
        targets: (N,) labels: 0 and 1, classes, or grades of relevance; None if the rows have none.
        query_ids: (N,) any integers, the list each row belongs to; None if all rows are one list.
        query_names: names of the lists 0, 1, 2, ... where the data call them by text, in the order of appearance.
        row_numbers: (N,) numbers of the rows in their source, from 1; None if this is all of it, in its order.
        row_ids: N ids of the rows in their source, if it has any.
    """

    features: FeatureRows
    targets: Tensor | None
    query_ids: Tensor | None = None
    query_names: tuple[str, ...] | None = None
    row_numbers: Tensor | None = None
    row_ids: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        for name, values in (("labels", self.targets), ("query_ids", self.query_ids)):
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
        rows = torch.as_tensor(indices)
        query_ids = None if self.query_ids is None else self.query_ids[rows]
        return Batch(self.features[rows], self.labels[rows], rows, query_ids)

    def take(self, rows: Tensor) -> Part:
        """Return the part that holds these rows only, in this order."""
        targets = None if self.targets is None else self.targets[rows]
        query_ids = None if self.query_ids is None else self.query_ids[rows]
        ids = None if self.row_ids is None else tuple(self.row_ids[index] for index in torch.arange(len(self))[rows])
        features = take_features(self.features, rows)
        return Part(features, targets, query_ids, self.query_names, self.rows[rows], ids)

    def join(self, other: Part) -> Part:
        """Return the rows of this part and then those of another.

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
    """Three disjoint parts: `train` to learn from, `validation` for choices, `test` for the final figure.

    A part that is still to be cut from `train` is None.
    """

    train: P
    validation: P | None = None
    test: P | None = None

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
