"""Interactions: pairs of a user and an item, perhaps with ratings and times, and the files that hold them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rankwise.data.columns import find_column, names_and_codes, read_numbers, refuse_cells, refuse_missing
from rankwise.data.files import LineBlock, bad_line, check_file, read_line_blocks
from rankwise.data.table_files import RawTable, open_table

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Interactions", "read_interaction_lists", "read_interactions", "read_movielens", "table_pairs"]


@dataclass(frozen=True)
class Interactions:
    """N pairs of a user and an item, both numbered from 0.

    Attributes:
        users, items: (N,) int64.
        ratings: (N,) float32, or None if a pair only says that the user chose the item.
        times: (N,) int64 in the file's unit, or None.
        user_names, item_names: names of user and item 0, 1, ... in the file.
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
        """Return these pairs only; users and items keep their numbers."""
        return Interactions(
            self.users[rows],
            self.items[rows],
            None if self.ratings is None else self.ratings[rows],
            None if self.times is None else self.times[rows],
            self.user_names,
            self.item_names,
        )


def read_interactions(
    source: Any,
    *,
    user: str | int = 0,
    item: str | int = 1,
    rating: str | int | None = None,
    time: str | int | None = None,
    header: str = "auto",
    separator: str | None = None,
) -> Interactions:
    """Read pairs of users and items from a table; ids may be numbers or text.

    Args:
        source: a file or a table in memory, see `open_table`.
        user, item: the columns of the ids, by name or position (from 0).
        rating, time: the columns of ratings and times, if they are wanted.
        header, separator: of text files, see `open_table`.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "clicks.csv")
        ...     _ = path.write_text("user,item,stars\\nann,7,5\\nbob,9,3\\nann,9,4\\n")
        ...     clicks = read_interactions(path, rating="stars")
        >>> clicks.users.tolist(), clicks.items.tolist(), clicks.ratings.tolist(), clicks.user_names
        ([0, 1, 0], [0, 1, 1], [5.0, 3.0, 4.0], ('ann', 'bob'))
    """
    return table_pairs(
        open_table(source, header=header, separator=separator), user=user, item=item, rating=rating, time=time
    )


def table_pairs(
    raw: RawTable,
    *,
    user: str | int,
    item: str | int,
    rating: str | int | None = None,
    time: str | int | None = None,
) -> Interactions:
    """Return the pairs of a table, see `read_interactions`."""
    name, frame, columns = raw.name, raw.frame, raw.columns
    codes, names = [], []
    for argument, wanted in (("user", user), ("item", item)):
        code, called = names_and_codes(name, frame, find_column(name, columns, argument, wanted))
        codes.append(torch.from_numpy(code))
        names.append(called)
    ratings = None if rating is None else _ratings(name, frame, find_column(name, columns, "rating", rating))
    times = None if time is None else _times(name, frame, find_column(name, columns, "time", time))
    return Interactions(codes[0], codes[1], ratings, times, names[0], names[1])


def read_movielens(folder: str | Path) -> Interactions:
    """Read a MovieLens folder: `u.data` (100K), `ratings.dat` (1M, 10M) or `ratings.csv` (20M and later).

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
    """Read files of lines `user item item ...`, such as a `train.txt` and a `test.txt`; ids are whole numbers.

    Args:
        paths: the files; their users and items are numbered together.

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


def _ratings(path: str, frame: pl.DataFrame, name: str) -> Tensor:
    refuse_missing(path, frame, name)
    return torch.from_numpy(read_numbers(path, frame, name).astype(np.float32))


def _times(path: str, frame: pl.DataFrame, name: str) -> Tensor:
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
