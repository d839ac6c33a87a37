"""A file of scores larger than memory, as chunks of whole lists: rows are sorted into temporary files by their list."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from numpy.typing import NDArray

from rankwise.data.files import Progress, is_compressed
from rankwise.data.scores import Scores, ScoreTable, check_scores_file, parse_scores, read_scores
from rankwise.data.table_files import open_parquet, read_records

__all__ = ["ScoreLists", "open_score_lists"]

ROWS_AT_ONCE = 1 << 18  # of a chunk, if lists are not longer
BYTES_PER_ROW = 16  # of a text file, at least
MOST_CHUNKS = 256  # as many files are open while reading


@dataclass
class ScoreLists:
    """The rows of a file of scores, in chunks in which every list is complete.

    Attributes:
        rows: how many there are.
        graded: whether a label is neither 0 nor 1.
        by_query: whether the file says which list a row belongs to; otherwise there is one list and one chunk.
        group_names: by id; None if there are no groups.
    """

    rows: int = 0
    graded: bool = False
    by_query: bool = False
    group_names: dict[int, str] | None = None
    _chunks: list[Any] = field(default_factory=list)
    _whole_labels: bool = True

    def __iter__(self) -> Iterator[Scores]:
        for chunk in self._chunks:
            scores = chunk if isinstance(chunk, Scores) else self._read(chunk)
            if len(scores):
                yield scores

    def _read(self, rows: NDArray[Any] | IO[bytes]) -> Scores:
        if not isinstance(rows, np.ndarray):
            rows.seek(0)
            rows = np.fromfile(rows, dtype=_row_type(self.by_query, self.group_names is not None))
        labels = rows["label"].astype(np.int64) if self._whole_labels else rows["label"].copy()

        def ids(name: str) -> torch.Tensor | None:
            return torch.from_numpy(rows[name].copy()) if name in (rows.dtype.names or ()) else None

        return Scores(
            torch.from_numpy(rows["score"].copy()),
            torch.from_numpy(labels),
            query_ids=ids("query"),
            group_ids=ids("group"),
        )


@contextmanager
def open_score_lists(
    path: str | Path,
    *,
    score: str | None = None,
    label: str | None = None,
    query: str | None = None,
    group: str | None = None,
    on_progress: Progress | None = None,
) -> Iterator[ScoreLists]:
    """Read a file of scores as chunks of whole lists, with a few hundred megabytes of memory at most.

    Text and Parquet files are read once, block by block, and their rows sorted by a hash of their list into temporary
    files (24 bytes a row), which are gone when the context ends. An npz file is one chunk.

    Args:
        path, score, label, query, group: see `read_scores`.
        on_progress: told the share of the file that was read.

    Example:
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "scores.csv")
        ...     _ = path.write_text("user,prob,label\\nann,.9,1\\nbob,.2,0\\nann,.4,0\\n")
        ...     with open_score_lists(path) as lists:
        ...         [chunk.query_ids for chunk in lists]
        [tensor([0, 1, 0])]
    """
    path = check_scores_file(Path(path))
    asked = {"score": score, "label": label, "query": query, "group": group}
    with ExitStack() as files:
        if path.suffix.lower() == ".npz":
            yield _in_memory(read_scores(path, score=score, label=label, query=query, group=group))
            return
        text: set[str] = set()
        while True:
            reading = _Reading(path, asked, text, files)
            try:
                for table in _tables(path, reading.columns, on_progress):
                    reading.add(table)
                break
            except _NotWhole as kind:  # ids so far were numbers; number all of them in order of appearance
                files.close()
                text.add(str(kind))
        yield reading.finish()


def _in_memory(scores: Scores) -> ScoreLists:
    names = None
    if scores.group_ids is not None:
        known = scores.group_names
        names = {each: str(each) if known is None else known[each] for each in scores.group_ids.unique().tolist()}
    graded = bool(((scores.labels != 0) & (scores.labels != 1)).any())
    return ScoreLists(len(scores), graded, scores.query_ids is not None, names, [scores])


def _tables(path: Path, columns: dict[str, str], on_progress: Progress | None) -> Iterator[ScoreTable]:
    """Yield the file in blocks of rows; `columns` are known after the first."""
    if path.suffix.lower() == ".parquet":
        for first, done, frame in open_parquet(path, ROWS_AT_ONCE):
            yield ScoreTable(path, {name.strip(): frame[name] for name in frame.columns}, first=first)
            if on_progress is not None:
                on_progress(done)
        return
    names: list[str] | None = None
    for text, first_line in read_records(path, on_progress=on_progress):
        if names is None:
            table = parse_scores(path, BytesIO(text))
            names = list(table.columns)
        else:
            numbers = (columns["score"], columns["label"])
            table = parse_scores(path, BytesIO(text), names=names, numbers=numbers, first_line=first_line)
        if table.rows:
            yield table


class _NotWhole(Exception):
    """A column of ids holds something other than whole numbers."""


class _Reading:
    """Rows on their way from blocks of a file to chunks of whole lists."""

    def __init__(self, path: Path, asked: dict[str, str | None], text: set[str], files: ExitStack) -> None:
        self._path, self._asked, self._files = path, asked, files
        self._numbers: dict[str, dict[str, int] | None] = {kind: {} if kind in text else None for kind in _IDS}
        self._groups: set[int] = set()
        self._lists = ScoreLists()
        self.columns: dict[str, str] = {}
        self._stores: list[IO[bytes]] = []
        self._held: list[NDArray[Any]] = []

    def add(self, table: ScoreTable) -> None:
        if not self.columns:
            self._begin(table)
        scores, labels = table.scores_and_labels(self.columns["score"], self.columns["label"])
        rows = np.empty(len(scores), dtype=_row_type("query" in self.columns, "group" in self.columns))
        rows["score"], rows["label"] = scores, labels
        lists = self._lists
        lists.rows += len(rows)
        lists.graded |= bool(((labels != 0) & (labels != 1)).any())
        lists._whole_labels &= bool((labels == np.floor(labels)).all())
        for kind in _IDS:
            if kind in self.columns:
                rows[kind] = self._ids(table, kind)
        if "group" in self.columns:
            self._groups.update(np.unique(rows["group"]).tolist())
        self._keep(rows)

    def finish(self) -> ScoreLists:
        if not self._lists.rows:
            raise ValueError(f"{self._path}: expected at least one row, got none")
        if "group" in self.columns:
            names = {number: name for name, number in (self._numbers["group"] or {}).items()}
            self._lists.group_names = {each: names.get(each, str(each)) for each in sorted(self._groups)}
        self._lists._chunks = [*self._stores] or [np.concatenate(self._held)]
        return self._lists

    def _begin(self, table: ScoreTable) -> None:
        columns = {kind: table.find(kind, name) for kind, name in self._asked.items()}
        self.columns.update({kind: column for kind, column in columns.items() if column is not None})
        self._lists.by_query = "query" in self.columns
        size = self._path.stat().st_size * (8 if is_compressed(self._path) or table.unit == "row" else 1)
        chunks = min(MOST_CHUNKS, size // (BYTES_PER_ROW * ROWS_AT_ONCE)) if self._lists.by_query else 0
        if chunks > 1:
            self._stores = [self._files.enter_context(_open_store()) for _ in range(chunks)]

    def _ids(self, table: ScoreTable, kind: str) -> NDArray[np.int64]:
        numbers = self._numbers[kind]
        if numbers is None:
            whole = table.whole_ids(self.columns[kind])
            if whole is None:
                raise _NotWhole(kind)
            return whole
        texts, names = table.text_ids(self.columns[kind])
        return np.array([numbers.setdefault(name, len(numbers)) for name in names], dtype=np.int64)[texts]

    def _keep(self, rows: NDArray[Any]) -> None:
        if not self._stores:
            self._held.append(rows)
            return
        # Ids that are multiples of something must not all fall into one chunk.
        mixed = rows["query"].astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(40)
        chunk = (mixed % np.uint64(len(self._stores))).astype(np.uint16)
        words = rows.view(np.int64).reshape(len(rows), -1)  # numpy is slow to select rows of a structured array
        sorted_rows = words[np.argsort(chunk, kind="stable")]
        ends = np.cumsum(np.bincount(chunk, minlength=len(self._stores)))
        for store, begin, end in zip(self._stores, [0, *ends[:-1].tolist()], ends.tolist(), strict=True):
            store.write(sorted_rows[begin:end].data)


_IDS = ("query", "group")


def _open_store() -> IO[bytes]:
    return tempfile.TemporaryFile()


def _row_type(by_query: bool, by_group: bool) -> np.dtype[Any]:
    kinds = [("score", "f8"), ("label", "f8")]
    return np.dtype([*kinds, *([("query", "i8")] if by_query else []), *([("group", "i8")] if by_group else [])])
