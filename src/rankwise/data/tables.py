"""Tables of numbers with a label column: the schema that is learned from one and reads all others."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from torch import Tensor

from rankwise.checks import check_choice
from rankwise.data.columns import (
    find_column,
    find_group_file,
    query_ids_beside,
    read_known_labels,
    read_labels,
    refuse_missing,
    strip_text,
)
from rankwise.data.features import FeatureEncoding, learn_features
from rankwise.data.files import Progress, is_letor
from rankwise.data.letor import LetorFile, parse_letor, read_letor_chunks
from rankwise.data.mapped import FeatureRows, MappedNames
from rankwise.data.parts import Part
from rankwise.data.schema import DataNote, Labels, with_tuples
from rankwise.data.stored_tables import map_features, open_stored
from rankwise.data.table_files import RawTable, open_chunks, open_table
from rankwise.registry import nearest

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Table", "TableSchema", "read_table"]

MISSING = ("auto", "error", "median", "keep")

Target = Literal["binary", "classes", "any"]


@dataclass(frozen=True)
class TableSchema:
    """The form of a table: which columns are features, what a model gets from them, and what its labels mean.

    Attributes:
        encoding: the feature columns and the model's inputs.
        label, query: names of those columns; None if the training table had none.
        columns: names of all columns of the training table, in its order.
        classes: names of label 0, 1, ...; None if labels are the table's own numbers.
        named: whether the training table had names; otherwise `columns` are `column 1`, `column 2`, ...
        missing: "error" refuses missing cells, "auto" and "median" read them as NaN, which the model replaces by the
            median of its training part, "keep" reads them as NaN.
        header: of text files, see `open_table`.
        letor: whether the training data came as a LETOR file, whose features are called "1", "2", ...; their label is
            called "label", the query "qid".
        left_out: columns of the training table that are no features because they tell nothing, with the reason.
        unknown_classes: "error" refuses named classes that the training table did not have, "number" numbers them after
            the known ones.
    """

    encoding: FeatureEncoding
    label: str | None = None
    query: str | None = None
    columns: tuple[str, ...] = ()
    classes: tuple[str, ...] | None = None
    named: bool = True
    missing: str = "auto"
    header: str = "auto"
    letor: bool = False
    left_out: Mapping[str, str] = field(default_factory=dict)
    unknown_classes: str = "error"

    @classmethod
    def of(cls, part: Part) -> TableSchema:
        """Return the schema of rows in memory, whose features have no names.

        Example:
            >>> TableSchema.of(Part(torch.rand(5, 2), torch.zeros(5))).features
            ('column 1', 'column 2')
        """
        names = tuple(f"column {index + 1}" for index in range(part.features.shape[1]))
        return cls(FeatureEncoding(names), columns=names, named=False)

    @property
    def features(self) -> tuple[str, ...]:
        """Return the names of the feature columns."""
        return self.encoding.names

    @property
    def inputs(self) -> tuple[str, ...]:
        """Return the names of the D inputs of the model."""
        return self.encoding.inputs

    @property
    def fill_missing(self) -> bool:
        """Return whether the model replaces missing values."""
        return self.missing in ("auto", "median")

    def read(
        self,
        source: Any,
        *,
        labels: Labels = "required",
        cache: str | Path | None = None,
        on_progress: Progress | None = None,
    ) -> Part:
        """Read another table of the same form.

        Columns are matched by name, in any order. Columns that the training table did not have are ignored with a
        `DataNote`; a missing one is an error that names all missing ones. A table without names must have the columns
        of the training table in its order, with or without the label. The column of the queries must be there if the
        training table had one.

        Args:
            source: see `open_table`; or a LETOR file, if the training data came as one. Features that it leaves out
                are 0, those beyond the width of the training data are ignored with a `DataNote`.
            labels: "optional" reads a table without a label column, too.
            cache: a folder in which to keep the columns and features of a file, which are mapped from there, see
                `read_table`.
            on_progress: for LETOR files, see `read_letor`.
        """
        if isinstance(source, str | Path) and is_letor(source):
            return self._read_letor(Path(source), cache, on_progress)
        return self._read_raw(open_stored(source, cache, header=self.header, names=self._known_names), labels)

    def read_chunks(
        self, source: Any, *, keep: Collection[str] = (), whole: bool = False
    ) -> Iterator[tuple[Part, RawTable | None]]:
        """Read a table that may be larger than memory: yield chunks of rows, with or without labels.

        Each comes with the columns it was read from; None for a LETOR file.

        Args:
            source: see `read`.
            keep: columns that the caller uses itself, so that no note says they are ignored.
            whole: read the table as one chunk.
        """
        if isinstance(source, str | Path) and is_letor(source):
            for part in [self._read_letor(Path(source), None, None)] if whole else self._letor_chunks(Path(source)):
                yield part, None
            return
        if isinstance(source, str | Path) and find_group_file(source) is not None:
            whole = True  # the sizes of the lists are those of the whole file
        form: dict[str, Any] = {"header": self.header, "names": self._known_names}
        noted = False
        for raw in [open_table(source, **form)] if whole else open_chunks(source, **form):
            with warnings.catch_warnings():
                if noted:  # what is true of the columns of the first chunk is true of all
                    warnings.simplefilter("ignore", DataNote)
                part = self._read_raw(raw, "optional", keep)
            noted = True
            yield part, raw

    @property
    def _known_names(self) -> tuple[str, ...]:
        return self.features if self.named else ()

    def _read_raw(self, table: RawTable, labels: Labels, keep: Collection[str] = ()) -> Part:
        raw = self._match(table, keep)
        label = self.label if self.label in raw.columns else None
        if label is None and labels == "required":
            raise ValueError(f"{raw.name}: expected the label column {self.label!r}, got none")
        targets: Tensor | None = None
        if label is not None:
            targets = read_known_labels(raw.name, raw.frame, label, self.classes, unknown=self.unknown_classes)
        query_ids, query_names = _read_queries(raw, self.query)
        if self.query is not None and query_ids is None:
            raise ValueError(f"{raw.name}: expected the query column {self.query!r}, got none")
        return Part(self._values(raw), targets, query_ids, query_names, row_ids=_read_ids(raw, self._used))

    @property
    def _used(self) -> tuple[str | None, ...]:
        return (*self.features, self.label, self.query)

    def to_json(self) -> dict[str, Any]:
        """Return the schema as plain values."""
        return asdict(self)

    def tensors(self) -> dict[str, Tensor]:
        """Return what is too large for JSON: nothing."""
        return {}

    @classmethod
    def from_saved(cls, values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> TableSchema:
        """Return the schema that `to_json` describes."""
        return cls(**{**with_tuples(values), "encoding": FeatureEncoding.from_saved(values["encoding"])})

    def _match(self, raw: RawTable, keep: Collection[str]) -> RawTable:
        """Return the table with the names of the training table, all features present."""
        if not raw.named:
            return self._match_by_position(raw)
        if not self.named:
            raise ValueError(
                f"{raw.name}: expected a table without names of columns, as the training data had none, got names such "
                f"as {raw.columns[0]!r} (header: no reads the first line as values)"
            )
        present = set(raw.columns)
        if missing := [name for name in self.features if name not in present]:
            shown = ", ".join(map(repr, missing[:10])) + (f" and {len(missing) - 10} more" if len(missing) > 10 else "")
            hint = nearest(missing[0], raw.columns) if len(missing) == 1 else ""
            raise ValueError(f"{raw.name}: expected all columns of the training data, got none called {shown}{hint}")
        if extra := [name for name in raw.columns if name not in self.columns and name not in keep]:
            shown = ", ".join(extra[:10]) + (f" and {len(extra) - 10} more" if len(extra) > 10 else "")
            warnings.warn(
                f"{raw.name}: ignored {len(extra)} columns that the training data did not have: {shown}",
                DataNote,
                stacklevel=4,
            )
        return raw

    def _match_by_position(self, raw: RawTable) -> RawTable:
        given = [name for name in raw.columns if name not in ("labels", "query_ids")]
        without_label = tuple(name for name in self.columns if name != self.label)
        for names in (self.columns, without_label, self.features):
            if len(names) == len(given) and (len(given) == len(raw.columns) or names != self.columns):
                renamed = dict(zip(given, names, strict=True))
                if len(given) < len(raw.columns):  # arrays that came with labels
                    renamed |= {"labels": self.label or "labels", "query_ids": self.query or "query_ids"}
                frame = raw.frame.rename({old: new for old, new in renamed.items() if old in raw.columns})
                return replace(raw, frame=frame, named=True)
        sizes = sorted({len(self.features), len(without_label), len(self.columns)})
        raise ValueError(
            f"{raw.name}: expected {' or '.join(map(str, sizes))} columns, as in the training data, because they have "
            f"no names, got {len(given)}"
        )

    def _values(self, raw: RawTable) -> FeatureRows:
        """Return the inputs (N, D) of the model, float32; those of a mapped table are mapped, too."""
        if raw.stored is not None:
            return map_features(raw, self.encoding, self.missing, raw.stored.parent)
        return torch.from_numpy(self.encoding.encode(raw, self.missing))

    def _read_letor(self, path: Path, cache: str | Path | None, on_progress: Progress | None) -> Part:
        self._expect_letor(path)
        width, origins = len(self.features), self._letor_origins
        file = parse_letor(path, width=width, beyond="ignore", origins=origins, cache=cache, on_progress=on_progress)
        if file.width > width:
            self._note_width(path, file.width)
        return self._checked_letor(path, file)

    def _letor_chunks(self, path: Path) -> Iterator[Part]:
        self._expect_letor(path)
        width = widest = len(self.features)
        for file in read_letor_chunks(path, width=width, origins=self._letor_origins):
            if widest == width < file.width:  # once for a file
                self._note_width(path, file.width)
            widest = max(widest, file.width)
            yield self._checked_letor(path, file)

    @property
    def _letor_origins(self) -> dict[int, float]:
        return {int(name): origin for name, origin in self.encoding.origins.items()}

    def _expect_letor(self, path: Path) -> None:
        if not self.letor:
            raise ValueError(f"{path}: expected a table with the columns of the training data, got a LETOR file")

    def _note_width(self, path: Path, width: int) -> None:
        warnings.warn(
            f"{path}: ignored features {len(self.features) + 1} to {width}, which the training data did not have",
            DataNote,
            stacklevel=5,
        )

    def _checked_letor(self, path: Path, file: LetorFile) -> Part:
        if self.query is not None and file.part.query_ids is None:
            raise ValueError(f"{path}: expected `qid:number` behind the grade in every line, got lines without")
        return file.part


class Table(NamedTuple):
    """A table as a part, with its schema."""

    part: Part
    schema: TableSchema


def read_table(
    source: Any,
    *,
    label: str | int = -1,
    features: Sequence[str] | None = None,
    query: str | None = None,
    drop: Sequence[str] = (),
    positive: str | None = None,
    target: Target = "any",
    missing: str = "auto",
    categories: Sequence[str] = (),
    header: str = "auto",
    width: int | None = None,
    cache: str | Path | None = None,
    on_progress: Progress | None = None,
) -> Table:
    """Read a table to learn from, and learn its schema; `schema.read` then reads others alike.

    Labels of two kinds become 0 and 1: 0 and 1 stay, false is 0 and true is 1, of any others the rarer kind is positive
    unless `positive` names it; `schema.classes` says which is which. More than two kinds of text become 0, 1, 2, ... in
    alphabetical order. Other numbers (grades) stay as they are, as do all numbers where there are queries.

    Args:
        source: a file or a table in memory, see `open_table`; or a LETOR file, which has no named columns: `label`,
            `query`, `drop`, `features` and `positive` are refused then.
        label: name or position of the label column; by default the last one.
        features: names of the columns to use; by default all that are not used otherwise and tell something, see
            `learn_features`.
        query: name of the column with the list a row belongs to. Without it `PATH.query` or `PATH.group` beside the
            file may give the sizes of the lists; without those all rows are one list.
        drop: names of columns to leave out.
        positive: name of the positive class; all others are negative.
        target: "binary" refuses labels of more than two kinds, unless `positive` is given; with "classes" other tables
            may hold classes that this one does not.
        missing: of cells that are empty, `NA`, `?` or `nan`: "auto" reads them as NaN and adds an input that is 1 for
            them to each column that has any; "median" and "keep" only read them as NaN, see `TableSchema`; "error"
            refuses them by line. Missing labels and query ids are always refused.
        categories: names of columns of whole numbers that are categories. Columns of text are categories or dates.
        header: of text files, see `open_table`.
        width: number of features of a LETOR file that may leave out the last ones.
        cache: a folder in which to keep the columns and features of a file, which are mapped from there: they take no
            memory of their own, all processes of a machine share them, and a second reading takes seconds. The result
            is the same, bit for bit. By default everything is in memory.
        on_progress: for LETOR files, see `read_letor`.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "cells.csv")
        ...     _ = path.write_text("size,round,cancer\\n1.5,0.2,no\\n2.5,0.1,yes\\n1.0,0.3,no\\n")
        ...     part, schema = read_table(path)
        >>> part.labels.tolist(), schema.classes, schema.features
        ([0, 1, 0], ('no', 'yes'), ('size', 'round'))
    """
    check_choice("missing", missing, MISSING)
    if isinstance(source, str | Path) and is_letor(source):
        given = {
            "label": label != -1, "query": query, "drop": drop, "features": features, "positive": positive,
            "categories": categories,
        }  # fmt: skip
        if wrong := [name for name, value in given.items() if value]:
            raise ValueError(f"{wrong[0]}: expected nothing, as {source} is a LETOR file and has no named columns")
        return _learn_letor(Path(source), missing, width, cache, on_progress)
    raw = open_stored(source, cache, header=header)
    if width is not None:
        raise ValueError(f"width: expected nothing, as {raw.name} is not a LETOR file, got {width}")
    columns = raw.columns
    label_name = find_column(raw.name, columns, "label", label)
    if query is None and not raw.named and "query_ids" in columns:
        query = "query_ids"
    if query == label_name:
        raise ValueError(
            f"label: expected another column of {raw.name} than the query {query!r}, got the same; name it with label="
        )
    chosen = _choose_features(raw, label_name, query, drop, features, categories)
    has_lists = query is not None or (raw.path is not None and find_group_file(raw.path) is not None)
    labels, classes = read_labels(
        raw.name, raw.frame, label_name, positive, as_numbers=has_lists, binary=target == "binary"
    )
    # Arrays have no names to match by, so that all their columns stay.
    keep_all = features is not None or (not raw.named and (raw.path is None or raw.path.suffix == ".npz"))
    learned = learn_features(raw, chosen, missing=missing, categories=categories, keep_all=keep_all)
    if not learned.encoding.names:
        shown = "; ".join(f"{name!r}: {reason}" for name, reason in list(learned.left_out.items())[:5])
        raise ValueError(f"{raw.name}: expected at least one column of features, got none of use ({shown})")
    schema = TableSchema(
        learned.encoding,
        label_name,
        query,
        tuple(columns),
        classes,
        raw.named,
        missing,
        header,
        left_out=learned.left_out,
        unknown_classes="number" if target == "classes" else "error",
    )
    ids = _read_ids(raw, schema._used)
    return Table(Part(schema._values(raw), labels, *_read_queries(raw, query), row_ids=ids), schema)


def find_unusable(
    source: Any, *, label: str | int = -1, query: str | None = None, drop: Sequence[str] = (), header: str = "auto"
) -> dict[str, str]:
    """Return the columns that `read_table` refuses, each with the reason; it stops at the first."""
    raw = open_table(source, header=header)
    chosen = _choose_features(raw, find_column(raw.name, raw.columns, "label", label), query, drop, None, ())
    reasons: dict[str, str] = {}
    for name in chosen:
        try:
            learn_features(raw, [name], missing="keep")
        except ValueError as problem:
            reasons[name] = str(problem).removeprefix(f"{raw.name}, ").partition(";")[0]
    return reasons


def _learn_letor(
    path: Path, missing: str, width: int | None, cache: str | Path | None, on_progress: Progress | None
) -> Table:
    file = parse_letor(path, width=width, cache=cache, on_progress=on_progress)
    origins = file.origins
    if origins:
        # The origins are known at the end of the file only: read it once more with them, the first features freed.
        width = file.part.features.shape[1]
        del file
        file = parse_letor(path, width=width, origins=origins, cache=cache)
    names = tuple(str(index + 1) for index in range(file.part.features.shape[1]))
    schema = TableSchema(
        FeatureEncoding(names, origins={str(index): origin for index, origin in origins.items()}),
        "label",
        None if file.part.query_ids is None else "qid",
        (*names, "label", "qid"),
        missing=missing,
        letor=True,
    )
    return Table(file.part, schema)


def _choose_features(
    raw: RawTable,
    label: str,
    query: str | None,
    drop: Sequence[str],
    features: Sequence[str] | None,
    categories: Sequence[str],
) -> list[str]:
    columns = raw.columns
    given = {
        "query": [query] if query is not None else [],
        "drop": drop,
        "features": features,
        "categories": categories,
    }
    for argument, names in given.items():
        for name in names or ():
            if name not in columns:
                raise ValueError(f"{argument}: {raw.name} has no column {name!r}{nearest(str(name), columns)}")
    kept = [name for name in columns if name not in (label, query, *drop)]
    chosen = kept if features is None else list(features)
    if not chosen:
        raise ValueError(f"{raw.name}: expected at least one column of features, got none besides the label {label!r}")
    if unfit := [name for name in chosen if name not in kept]:
        raise ValueError(f"features: expected columns that are not the label, the query or dropped, got {unfit[0]!r}")
    return chosen


def _read_queries(raw: RawTable, name: str | None) -> tuple[Tensor | None, tuple[str, ...] | None]:
    """Return the list of each row, and the names of the lists if they are text, see `Part`."""
    query_ids, names = None, None
    if name is not None and name in raw.columns:
        refuse_missing(raw.name, raw.frame, name)
        query_ids, names = _codes(raw.frame[name])
    return query_ids if raw.path is None else query_ids_beside(raw.path, len(raw.frame), query_ids), names


def _read_ids(raw: RawTable, used: Collection[str | None]) -> tuple[str, ...] | MappedNames | None:
    """Return the ids of the rows: the first column left out whose cells all differ, whole numbers or text."""
    import polars as pl

    for name in raw.columns:
        column = raw.frame[name]
        named = name not in used and (column.dtype.is_integer() or column.dtype == pl.String)
        if named and column.null_count() == 0 and column.n_unique() == len(column):
            return tuple(column.cast(pl.String).to_list()) if raw.stored is None else MappedNames(column)
    return None


def _codes(column: pl.Series) -> tuple[Tensor, tuple[str, ...] | None]:
    import polars as pl

    if column.dtype.is_integer():
        numbers = column.cast(pl.Int64, strict=False)
        if numbers.null_count() == 0:
            return torch.from_numpy(numbers.to_numpy().copy()), None
    text = strip_text(column.cast(pl.String))
    words = text.unique(maintain_order=True)
    codes = text.replace_strict(words, range(len(words)), return_dtype=pl.Int64)
    return torch.from_numpy(codes.to_numpy().copy()), tuple(words.to_list())
