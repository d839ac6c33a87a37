"""The schema of interactions: users and items by name, and the histories of the users."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rankwise.data.columns import find_column, names_and_codes
from rankwise.data.files import read_line_blocks
from rankwise.data.histories import InteractionPart, drop_known
from rankwise.data.interactions import (
    Interactions,
    is_netflix,
    read_interaction_lists,
    read_movielens,
    read_netflix,
    table_pairs,
)
from rankwise.data.schema import DataNote, Labels, with_tuples
from rankwise.data.sparse import SparseRows
from rankwise.data.stored_tables import open_stored
from rankwise.data.table_files import RawTable, is_parquet

__all__ = ["InteractionSchema", "InteractionTable", "learn_interactions"]

TABLES = (".csv", ".tsv", ".parquet", ".arrow", ".feather", ".ipc", ".npz")


@dataclass(frozen=True)
class InteractionSchema:
    """The users and items of the training data, and how to read other sources alike.

    Attributes:
        users, items: names, in the order of the model's users and items.
        user, item: names of those columns of a table.
        columns: names of all columns of the training table, in its order; none if it was a folder or a file of lists.
        named: whether the training table had names of columns; otherwise a table with names must call them `user` and
            `item`.
        header: of text files, see `open_table`.
        histories: (users, items) 1 for what each user chose in the training source, with what was cut from it for
            validation and test; None if it is not kept.
    """

    users: tuple[str, ...]
    items: tuple[str, ...]
    user: str = "user"
    item: str = "item"
    columns: tuple[str, ...] = ()
    named: bool = False
    header: str = "auto"
    histories: SparseRows | None = field(default=None, compare=False, repr=False)

    def read(self, source: Any, *, labels: Labels = "required") -> InteractionPart:
        """Read another source: pairs that a ranking should put first, or histories to rank by.

        With `labels="required"` the pairs are wanted, and what is known of a user is the history in this schema. With
        `labels="optional"` the pairs are the histories; a table without items has the histories of this schema. The
        part has the users of the source, in the order of their first pair.

        A user who is not in the training data is a new user: a model by history scores the user by what is known, one
        by user refuses. Pairs of unknown items are left out with a `DataNote`.

        Args:
            source: a MovieLens or Netflix Prize folder, a table (see `open_table`; the columns by name, others are
                ignored), a file of lists, or `Interactions`.
            labels: see above.
        """
        read = self._open(source)
        if isinstance(read, _Users):
            if labels == "required":
                raise ValueError(f"{read.source}: expected a column of items, to evaluate, got none")
            return self._part(read.source, read.names, None, self._saved(read.source, read.names))
        users = _in_order(read)
        names = tuple(read.user_names[user] for user in users.tolist())
        given = self._rows(_name_of(source), read, users)
        if labels == "optional":
            return self._part(_name_of(source), names, None, given)
        return self._part(_name_of(source), names, given, self._saved(_name_of(source), names))

    def pairs(self, source: Any, *, cache: str | Path | None = None) -> Interactions:
        """Return the pairs of another source, with the names it has for users and items; `cache` as for tables."""
        read = self._open(source, cache)
        if isinstance(read, _Users):
            raise ValueError(f"{read.source}: expected a column of items, got none")
        return read

    def to_json(self) -> dict[str, Any]:
        """Return the schema as plain values, without the histories."""
        return {
            "users": list(self.users),
            "items": list(self.items),
            "user": self.user,
            "item": self.item,
            "columns": list(self.columns),
            "named": self.named,
            "header": self.header,
        }

    def tensors(self) -> dict[str, Tensor]:
        """Return the histories of the users as tensors."""
        if self.histories is None:
            return {}
        return {"starts": self.histories.starts, "items": self.histories.columns.int()}

    @classmethod
    def from_saved(cls, values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> InteractionSchema:
        """Return the schema that `to_json` and `tensors` describe."""
        schema = cls(**with_tuples(values))
        if not tensors:
            return schema
        starts, items = tensors["starts"].long(), tensors["items"].long()
        rows = SparseRows(starts, items, torch.ones(1).expand(len(items)), len(schema.items))
        if len(starts) != len(schema.users) + 1 or not _is_csr(rows):
            raise ValueError(f"expected histories of {len(schema.users)} users, got others")
        return replace(schema, histories=rows)

    def _open(self, source: Any, cache: str | Path | None = None) -> Interactions | _Users:
        whole = _read_whole(source, cache)
        if whole is not None:
            return whole
        raw = open_stored(source, cache, header=self.header)
        user, item = self._find_columns(raw)
        if raw.columns == [user]:
            codes, names = names_and_codes(raw.name, raw.frame, user)
            in_order = dict.fromkeys(code for piece in codes for code in piece.tolist())
            return _Users(raw.name, tuple(names[code] for code in in_order))
        return table_pairs(raw, user=user, item=item)

    def _find_columns(self, raw: RawTable) -> tuple[str, str]:
        """Return the columns of a table that hold the users and the items; a table of one column has users only."""
        if not raw.named:
            if len(raw.columns) == 1:
                return raw.columns[0], ""
            known = self.columns or ("user", "item")
            if self.columns and len(raw.columns) != len(known):
                raise ValueError(
                    f"{raw.name}: expected {len(known)} columns, as in the training data, because they have no names, "
                    f"got {len(raw.columns)}"
                )
            return raw.columns[known.index(self.user)], raw.columns[known.index(self.item)]
        user, item = (self.user, self.item) if self.named else ("user", "item")
        if missing := [name for name in (user, item) if name not in raw.columns and raw.columns != [user]]:
            given = ", ".join(map(repr, raw.columns[:10]))
            raise ValueError(f"{raw.name}: expected columns {user!r} and {item!r}, got no {missing[0]!r} in {given}")
        return user, item

    def _rows(self, name: str, pairs: Interactions, users: Tensor) -> SparseRows:
        """Return one row for each of these users, with the items that the schema knows."""
        numbers = {item: number for number, item in enumerate(self.items)}
        items = torch.tensor([numbers.get(item, -1) for item in pairs.item_names], dtype=torch.int64)[pairs.items]
        unknown = items < 0
        if bool(unknown.any()):
            strange = pairs.items[unknown].unique()
            warnings.warn(
                f"{name}: left out {int(unknown.sum())} of {len(items)} pairs, of {len(strange)} items that the "
                f"training data did not have, such as {pairs.item_names[int(strange[0])]!r}",
                DataNote,
                stacklevel=4,
            )
        row_of_user = torch.zeros(len(pairs.user_names), dtype=torch.int64)
        row_of_user[users] = torch.arange(len(users))
        rows = row_of_user[pairs.users]
        return SparseRows.of_pairs(rows[~unknown], items[~unknown], height=len(users), width=len(self.items))

    def _saved(self, name: str, users: tuple[str, ...]) -> SparseRows:
        """Return the histories of these users; new users have empty ones."""
        if self.histories is None:
            raise ValueError(
                f"{name}: expected a run that keeps the histories of its users, to know what they chose before, got "
                "one trained with data.save_histories: false"
            )
        starts = self.histories.starts
        padded = SparseRows(
            torch.cat([starts, starts[-1:]]), self.histories.columns, self.histories.values, self.histories.width
        )
        ids = self._ids(users)
        return padded.take(torch.where(ids < 0, len(self.users), ids))

    def _ids(self, users: tuple[str, ...]) -> Tensor:
        numbers = {name: number for number, name in enumerate(self.users)}
        return torch.tensor([numbers.get(name, -1) for name in users], dtype=torch.int64)

    def _part(self, name: str, users: tuple[str, ...], wanted: SparseRows | None, known: SparseRows) -> InteractionPart:
        ids = self._ids(users)
        new = int((ids < 0).sum())
        if new:
            warnings.warn(
                f"{name}: {new} of {len(ids)} users are not in the training data, such as "
                f"{users[int((ids < 0).int().argmax())]!r}",
                DataNote,
                stacklevel=4,
            )
        wanted = None if wanted is None else drop_known(name, wanted, known)
        return InteractionPart(known, wanted, ids, users, self.items)


class InteractionTable(NamedTuple):
    """Pairs, with what was learned about the form of their source."""

    pairs: Interactions
    schema: InteractionSchema


def learn_interactions(
    source: Any,
    *,
    user: str | int = 0,
    item: str | int = 1,
    time: str | int | None = None,
    header: str = "auto",
    cache: str | Path | None = None,
) -> InteractionTable:
    """Read pairs to learn from; the schema has their users and items, but not yet the histories.

    Args:
        source: see `InteractionSchema.read`.
        user, item, time: columns of a table, by name or position.
        header: of text files, see `open_table`.
        cache: a folder in which to keep the columns and pairs of a table, which are mapped from there, see
            `read_table`.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "clicks.csv")
        ...     _ = path.write_text("what,who\\n7,ann\\n9,bob\\n9,ann\\n")
        ...     pairs, schema = learn_interactions(path, user="who", item="what")
        >>> schema.users, schema.items, schema.columns
        (('ann', 'bob'), ('7', '9'), ('what', 'who'))
        >>> schema.read(pairs, labels="optional").known.dense().tolist()
        [[1.0, 1.0], [0.0, 1.0]]
    """
    whole = _read_whole(source, cache)
    if whole is not None:
        return InteractionTable(whole, InteractionSchema(whole.user_names, whole.item_names, header=header))
    raw = open_stored(source, cache, header=header)
    user, item = (find_column(raw.name, raw.columns, role, each) for role, each in (("user", user), ("item", item)))
    pairs = table_pairs(raw, user=user, item=item, time=time)
    names = (pairs.user_names, pairs.item_names, user, item, tuple(raw.columns))
    return InteractionTable(pairs, InteractionSchema(*names, named=raw.named, header=header))


class _Users(NamedTuple):
    """A source that names users only."""

    source: str
    names: tuple[str, ...]


def _read_whole(source: Any, cache: str | Path | None = None) -> Interactions | None:
    """Return the pairs of a source that is no table; None for a table."""
    if isinstance(source, Interactions):
        return source
    if not isinstance(source, str | Path):
        return None
    path = Path(source)
    if is_parquet(path):
        return None
    if path.is_dir():
        return read_netflix(path) if is_netflix(path) else read_movielens(path, cache=cache)
    name = path.name.removesuffix(".gz").removesuffix(".xz")
    is_table = Path(name).suffix.lower() in TABLES or _has_separators(path)
    return None if is_table else read_interaction_lists([path])[0]


def _has_separators(path: Path) -> bool:
    """Return whether the first line of a text file holds separators of a table; those of lists are spaces."""
    block = next(read_line_blocks(path, block_bytes=1 << 16), None)
    return block is not None and re.search(rb"[\t,;]", block.text.partition(b"\n")[0]) is not None


def _in_order(pairs: Interactions) -> Tensor:
    """Return the users who have a pair, in the order of their first one."""
    count = len(pairs.user_names)
    first = torch.full((count,), len(pairs)).scatter_reduce(0, pairs.users, torch.arange(len(pairs)), "amin")
    return first.argsort(stable=True)[: int((first < len(pairs)).sum())]


def _name_of(source: Any) -> str:
    return str(source) if isinstance(source, str | Path) else type(source).__name__


def _is_csr(rows: SparseRows) -> bool:
    starts, columns = rows.starts, rows.columns
    return (
        int(starts[0]) == 0
        and int(starts[-1]) == len(columns)
        and bool((starts.diff() >= 0).all())
        and bool(((columns >= 0) & (columns < rows.width)).all())
    )
