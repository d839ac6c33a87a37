"""Interactions: pairs of a user and an item, perhaps with ratings and times, and the files that hold them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rankwise.data.cache import Cache, cached_arrays
from rankwise.data.columns import (
    CELLS_AT_ONCE,
    LINE,
    find_column,
    names_and_codes,
    read_numbers,
    refuse_cells,
    refuse_missing,
)
from rankwise.data.files import LineBlock, bad_line, check_file, read_line_blocks
from rankwise.data.mapped import join_pieces
from rankwise.data.sparse import PAIRS_AT_ONCE
from rankwise.data.stored_tables import open_stored
from rankwise.data.table_files import RawTable
from rankwise.extras import require

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "Interactions",
    "is_netflix",
    "read_interaction_lists",
    "read_interactions",
    "read_movielens",
    "read_netflix",
    "table_pairs",
]

_FORMS = ("combined_data_*.txt", "mv_*.txt")


@dataclass(frozen=True)
class Interactions:
    """N pairs of a user and an item, both numbered from 0.

    Attributes:
        users, items: (N,) int64.
        ratings: (N,) float32, or None if a pair only says that the user chose the item.
        times: (N,) int64 in the file's unit, or None.
        user_names, item_names: names of user and item 0, 1, ... in the file.
        folder: where large arrays made of the pairs are kept, in temporary files that are mapped; None: in memory.
    """

    users: Tensor
    items: Tensor
    ratings: Tensor | None
    times: Tensor | None
    user_names: tuple[str, ...]
    item_names: tuple[str, ...]
    folder: Path | None = None

    def __len__(self) -> int:
        return len(self.users)

    def take(self, rows: Tensor) -> Interactions:
        """Return these pairs only; users and items keep their numbers."""

        def chosen(values: Tensor) -> Tensor:
            return join_pieces((values[block] for block in rows.split(PAIRS_AT_ONCE)), self.folder, values.dtype)

        return replace(
            self,
            users=chosen(self.users),
            items=chosen(self.items),
            ratings=None if self.ratings is None else chosen(self.ratings),
            times=None if self.times is None else chosen(self.times),
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
    cache: str | Path | None = None,
) -> Interactions:
    """Read pairs of users and items from a table; ids may be numbers or text.

    Args:
        source: a file or a table in memory, see `open_table`.
        user, item: the columns of the ids, by name or position (from 0).
        rating, time: the columns of ratings and times, if they are wanted.
        header, separator: of text files, see `open_table`.
        cache: a folder in which to keep the columns and pairs of a file, which are mapped from there, see `read_table`.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "clicks.csv")
        ...     _ = path.write_text("user,item,stars\\nann,7,5\\nbob,9,3\\nann,9,4\\n")
        ...     clicks = read_interactions(path, rating="stars")
        >>> clicks.users.tolist(), clicks.items.tolist(), clicks.ratings.tolist(), clicks.user_names
        ([0, 1, 0], [0, 1, 1], [5.0, 3.0, 4.0], ('ann', 'bob'))
    """
    raw = open_stored(source, cache, header=header, separator=separator)
    return table_pairs(raw, user=user, item=item, rating=rating, time=time)


def table_pairs(
    raw: RawTable,
    *,
    user: str | int,
    item: str | int,
    rating: str | int | None = None,
    time: str | int | None = None,
) -> Interactions:
    """Return the pairs of a table, see `read_interactions`; those of a mapped table are mapped, too."""
    wanted = {"user": user, "item": item, "rating": rating, "time": time}
    columns = {
        role: find_column(raw.name, raw.columns, role, each) for role, each in wanted.items() if each is not None
    }
    if raw.stored is None:
        return _pairs(_pair_arrays(raw, columns, None), None)
    assert raw.path is not None
    folder = raw.stored.parent
    stored = Cache(raw.path, folder, f"pairs {json.dumps([columns, raw.columns, raw.stored.name])}")
    return _pairs(cached_arrays(stored, lambda _: _pair_arrays(raw, columns, folder)), folder)


def _pair_arrays(raw: RawTable, columns: Mapping[str, str], folder: Path | None) -> dict[str, NDArray[Any]]:
    """Return users and items as codes, their names as JSON, ratings and times; with a folder, mapped from there."""
    arrays: dict[str, NDArray[Any]] = {}
    for role in ("user", "item"):
        codes, names = names_and_codes(raw.name, raw.frame, columns[role])
        arrays[f"{role}s"] = join_pieces(map(torch.from_numpy, codes), folder).numpy()
        arrays[f"{role}_names"] = np.frombuffer(json.dumps(names).encode(), dtype=np.uint8)
    for role, read, dtype in (("rating", _ratings, torch.float32), ("time", _times, torch.int64)):
        if role in columns:
            slices = raw.frame.select(columns[role], LINE).iter_slices(CELLS_AT_ONCE)
            pieces = (read(raw.name, cells, columns[role]) for cells in slices)
            arrays[f"{role}s"] = join_pieces(pieces, folder, dtype).numpy()
    return arrays


def _pairs(arrays: Mapping[str, NDArray[Any]], folder: Path | None) -> Interactions:
    tensors = {
        name: torch.from_numpy(arrays[name]) for name in ("users", "items", "ratings", "times") if name in arrays
    }
    users, items = (tuple(json.loads(arrays[name].tobytes())) for name in ("user_names", "item_names"))
    ratings, times = tensors.get("ratings"), tensors.get("times")
    return Interactions(tensors["users"], tensors["items"], ratings, times, users, items, folder)


def read_movielens(folder: str | Path, *, cache: str | Path | None = None) -> Interactions:
    """Read a MovieLens folder: `u.data` (100K), `ratings.dat` (1M, 10M) or `ratings.csv` (20M and later).

    Args:
        folder: the folder.
        cache: see `read_interactions`.

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
            return read_interactions(folder / name, rating=2, time=3, separator=separator, cache=cache)
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


def is_netflix(folder: str | Path) -> bool:
    """Return whether a folder holds files that `read_netflix` reads."""
    return bool(_files(Path(folder)))


def read_netflix(folder: str | Path) -> Interactions:
    """Return the ratings of a Netflix Prize folder: `combined_data_1.txt` .. `combined_data_4.txt`, or `mv_0000001.txt`
    ...

    A line `7:` says which film the lines `user,rating,date` below it are about. Times are days since 1970.

    Args:
        folder: where the files lie.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "combined_data_1.txt")
        ...     _ = path.write_text("7:\\n30,4,2005-09-06\\n8:\\n30,2,2005-09-07\\n")
        ...     ratings = read_netflix(folder)
        >>> ratings.items.tolist(), ratings.item_names, ratings.ratings.tolist(), ratings.times.diff().tolist()
        ([0, 1], ('7', '8'), [4.0, 2.0], [1])
    """
    require("reading interactions", ("polars",))
    import polars as pl

    paths = _files(Path(folder))
    if not paths:
        raise FileNotFoundError(f"{folder}: expected {' or '.join(_FORMS)} in this folder, got none of them")
    frame = pl.concat([_read(path) for path in paths])
    users, items = (np.unique(frame[name].to_numpy(), return_inverse=True) for name in ("user", "film"))
    return Interactions(
        torch.from_numpy(users[1]),
        torch.from_numpy(items[1]),
        torch.from_numpy(frame["rating"].to_numpy().copy()),
        torch.from_numpy(frame["date"].to_numpy().copy()),
        tuple(map(str, users[0].tolist())),
        tuple(map(str, items[0].tolist())),
    )


def _files(folder: Path) -> list[Path]:
    return next((files for form in _FORMS if (files := sorted(folder.glob(form)))), [])


def _read(path: Path) -> pl.DataFrame:
    """Return the columns user, film, rating and date (days) of one file, a row per rating."""
    import polars as pl

    text = pl.col("text").str.strip_chars()
    lines = pl.read_csv(
        path,
        # One column a line: the lines of films and those of ratings differ in their number of fields.
        separator="\x01",
        has_header=False,
        schema={"text": pl.String},
        quote_char=None,
        glob=False,
        raise_if_empty=False,
    ).select(text, film=text.str.extract(r"^(\d+):$").cast(pl.Int64, strict=False))
    rows = lines.with_row_index("line", offset=1).with_columns(
        pl.col("film").forward_fill(), head=pl.col("film").is_not_null()
    )
    fields = pl.col("text").str.split_exact(",", 2).struct
    rows = rows.filter(~pl.col("head") & (pl.col("text").fill_null("") != "")).select(
        "line",
        "film",
        fields.field("field_0").cast(pl.Int64, strict=False).alias("user"),
        fields.field("field_1").cast(pl.Float32, strict=False).alias("rating"),
        fields.field("field_2").str.to_date("%Y-%m-%d", strict=False).cast(pl.Int64).alias("date"),
    )
    broken = rows.filter(pl.any_horizontal(pl.all().is_null()))
    if len(broken):
        number = broken["line"][0]
        orphan = broken["film"][0] is None
        expected = "`film:` before the first rating" if orphan else "`user,rating,date`"
        bad_line(path, number, expected, repr(lines["text"][number - 1]))
    if not len(rows):
        raise ValueError(f"{path}: expected ratings, got none")
    return rows.drop("line")
