"""Who chose what: users, items, perhaps ratings and times, as recommendation data come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rankwise.checks import check_choice
from rankwise.data.columns import find_column, names_and_codes, read_numbers, refuse_cells, refuse_missing
from rankwise.data.files import LineBlock, bad_line, check_file, read_line_blocks
from rankwise.data.table_files import open_table

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "InteractionSplit",
    "Interactions",
    "leave_one_out",
    "read_interaction_lists",
    "read_interactions",
    "read_movielens",
]


@dataclass(frozen=True)
class Interactions:
    """N pairs of a user and an item, both numbered from 0.

    Attributes:
        users, items: (N,) int64.
        ratings: (N,) float32, or None if a pair only says that the user chose the item.
        times: (N,) int64 in the file's unit, or None.
        user_names, item_names: what user and item 0, 1, ... are called in the file.
    """

    users: Tensor
    items: Tensor
    ratings: Tensor | None
    times: Tensor | None
    user_names: tuple[str, ...]
    item_names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.users)

    def take(self, rows: Tensor) -> Interactions:
        """Some of the pairs; users and items keep their numbers."""
        return Interactions(
            self.users[rows],
            self.items[rows],
            None if self.ratings is None else self.ratings[rows],
            None if self.times is None else self.times[rows],
            self.user_names,
            self.item_names,
        )


@dataclass(frozen=True)
class InteractionSplit:
    """Pairs to learn from, for choices and for the final figure; users and items have the same numbers in all three."""

    train: Interactions
    validation: Interactions
    test: Interactions


def read_interactions(
    path: str | Path,
    *,
    user: str | int = 0,
    item: str | int = 1,
    rating: str | int | None = None,
    time: str | int | None = None,
    header: str = "auto",
    separator: str | None = None,
) -> Interactions:
    """Read pairs of users and items from CSV, TSV or Parquet; ids may be numbers or text.

    Args:
        path: the file; text may be compressed by gzip or xz.
        user, item: the columns of the ids, by name or position (from 0).
        rating, time: those of ratings and times, if they are wanted.
        header: "auto", "yes" or "no", as for `read_table`.
        separator: between fields; by default what the first line holds most of: tab, `;` or `,`.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "clicks.csv")
        ...     _ = path.write_text("user,item,stars\\nann,7,5\\nbob,9,3\\nann,9,4\\n")
        ...     clicks = read_interactions(path, rating="stars")
        >>> clicks.users.tolist(), clicks.items.tolist(), clicks.ratings.tolist(), clicks.user_names
        ([0, 1, 0], [0, 1, 1], [5.0, 3.0, 4.0], ('ann', 'bob'))
    """
    table = open_table(path, header=header, separator=separator)
    path, frame, columns = Path(table.name), table.frame, table.columns
    codes, names = [], []
    for argument, wanted in (("user", user), ("item", item)):
        code, name = names_and_codes(path, frame, find_column(path, columns, argument, wanted))
        codes.append(torch.from_numpy(code))
        names.append(name)
    ratings = None if rating is None else _ratings(path, frame, find_column(path, columns, "rating", rating))
    times = None if time is None else _times(path, frame, find_column(path, columns, "time", time))
    return Interactions(codes[0], codes[1], ratings, times, names[0], names[1])


def read_movielens(folder: str | Path) -> Interactions:
    """The ratings of a MovieLens folder: `u.data` (100K), `ratings.dat` (1M, 10M) or `ratings.csv` (20M and later).

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "ratings.dat").write_text("1::1193::5::978300760\\n2::661::3::978302109\\n")
        ...     read_movielens(folder).item_names
        ('661', '1193')
    """
    folder = Path(folder)
    for name, separator in (("u.data", "\t"), ("ratings.dat", "::"), ("ratings.csv", ",")):
        if (folder / name).exists():
            return read_interactions(folder / name, rating=2, time=3, separator=separator)
    raise FileNotFoundError(f"{folder}: expected u.data, ratings.dat or ratings.csv in this folder, got none of them")


def read_interaction_lists(paths: Sequence[str | Path]) -> list[Interactions]:
    """Files of `user item item ...`, one user a line, such as a `train.txt` and a `test.txt`; ids are whole numbers.

    Args:
        paths: the files. Their users and items are numbered together, so that they fit each other.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     paths = [Path(folder, "train.txt"), Path(folder, "test.txt")]
        ...     _ = paths[0].write_text("0 10 30\\n1 20\\n"), paths[1].write_text("0 20\\n")
        ...     train, test = read_interaction_lists(paths)
        >>> train.items.tolist(), test.items.tolist(), test.item_names
        ([0, 2, 1], [1], ('10', '20', '30'))
    """
    pairs = [_read_lists(check_file(path)) for path in paths]
    if not pairs:
        raise ValueError("paths: expected at least one file, got none")
    users, user_codes = np.unique(np.concatenate([user for user, _ in pairs]), return_inverse=True)
    items, item_codes = np.unique(np.concatenate([item for _, item in pairs]), return_inverse=True)
    sizes = [len(user) for user, _ in pairs]
    user_names, item_names = tuple(map(str, users.tolist())), tuple(map(str, items.tolist()))
    pieces = zip(torch.from_numpy(user_codes).split(sizes), torch.from_numpy(item_codes).split(sizes), strict=True)
    return [Interactions(user, item, None, None, user_names, item_names) for user, item in pieces]


def leave_one_out(interactions: Interactions, *, by: str, seed: int = 0) -> InteractionSplit:
    """Each user's last pair is for the test, the one before for validation, the others for training.

    Users with fewer than three pairs stay in training altogether.

    Args:
        interactions: the pairs.
        by: "time" (pairs of the same time in the order of the file) or "random".
        seed: decides which pairs those are, for `by="random"`.

    Example:
        >>> zeros = torch.zeros(4, dtype=torch.int64)
        >>> seen = Interactions(zeros, torch.arange(4), None, torch.tensor([30, 10, 40, 20]), ("ann",), tuple("abcd"))
        >>> split = leave_one_out(seen, by="time")
        >>> split.train.items.tolist(), split.validation.items.tolist(), split.test.items.tolist()
        ([1, 3], [0], [2])
    """
    check_choice("by", by, ("time", "random"))
    if by == "time":
        if interactions.times is None:
            raise ValueError("by: expected pairs with times, to cut by time, got none; by='random' needs none")
        order = torch.argsort(interactions.times, stable=True)
    else:
        order = torch.randperm(len(interactions), generator=torch.Generator().manual_seed(seed))
    order = order[torch.argsort(interactions.users[order], stable=True)]
    counts = interactions.users.bincount(minlength=len(interactions.user_names))
    from_end = torch.empty_like(order)
    count_of_row = counts[interactions.users[order]]
    place = torch.arange(len(order)) - (counts.cumsum(0) - counts)[interactions.users[order]]
    from_end[order] = torch.where(count_of_row >= 3, count_of_row - 1 - place, 2)

    def rows(chosen: Tensor) -> Interactions:
        return interactions.take(chosen.nonzero().squeeze(1))

    return InteractionSplit(rows(from_end >= 2), rows(from_end == 1), rows(from_end == 0))


def _ratings(path: Path, frame: pl.DataFrame, name: str) -> Tensor:
    refuse_missing(path, frame, name)
    return torch.from_numpy(read_numbers(path, frame, name).astype(np.float32))


def _times(path: Path, frame: pl.DataFrame, name: str) -> Tensor:
    import polars as pl

    refuse_missing(path, frame, name)
    if frame[name].dtype.is_temporal():
        return torch.from_numpy(frame[name].cast(pl.Int64).to_numpy().copy())
    numbers = read_numbers(path, frame, name)
    broken = (numbers != np.rint(numbers)) | (np.abs(numbers) >= 2.0**63)
    if broken.any():
        refuse_cells(path, frame, name, broken, "whole numbers as times, such as seconds", "others")
    return torch.from_numpy(numbers.astype(np.int64))


def _read_lists(path: Path) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    users, items = [], []
    for block in read_line_blocks(path):
        lengths = np.array([len(line.split()) for _, line in block.lines()])
        try:
            numbers = np.array(block.text.split(), dtype=np.int64)
        except (ValueError, OverflowError):
            _find_bad_list(path, block)
        starts = np.cumsum(lengths) - lengths
        filled = lengths > 0
        users.append(np.repeat(numbers[starts[filled]], lengths[filled] - 1))
        items.append(np.delete(numbers, starts[filled]))
    if not sum(map(len, items)):
        raise ValueError(f"{path}: expected lines `user item item ...`, got no items")
    return np.concatenate(users), np.concatenate(items)


def _find_bad_list(path: Path, block: LineBlock) -> NoReturn:
    for number, line in block.lines():
        for field in line.split():
            if not (field.removeprefix(b"-").isdigit() and -(2**63) <= int(field) < 2**63):
                bad_line(path, number, "whole numbers `user item item ...`", field)
    raise ValueError(f"{path}, line {block.first_line} or later: expected whole numbers, got something else")
