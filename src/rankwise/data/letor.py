"""LETOR files (also called svmlight or libsvm): `grade qid:7 1:0.5 3:2.0 # comment`, one document a line."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray

from rankwise.data.cache import Cache, cached_arrays
from rankwise.data.columns import find_group_file, loses_differences, query_ids_beside
from rankwise.data.complete_lines import parse_complete_lines
from rankwise.data.files import (
    BLOCK_BYTES,
    FREE_BYTES,
    LARGEST,
    LineBlock,
    Progress,
    bad_line,
    check_file,
    is_compressed,
    is_finite_number,
    read_line_blocks,
)
from rankwise.data.mapped import MappedFeatures
from rankwise.data.memory import check_fits
from rankwise.data.parts import Part
from rankwise.data.schema import DataNote
from rankwise.extras import require

__all__ = ["LetorFile", "parse_letor", "read_letor", "read_letor_chunks", "read_letor_comments"]

MOST_FEATURES = 100_000  # a larger index is a mistake or data too wide to be held densely
PIECE_BYTES = 8 << 20
SPARSE_LINES = 5_000  # scikit-learn's time grows with the square of the lines with a qid that it gets at once
CHUNK_BYTES = 64 << 20  # large enough that the system takes a chunk back as soon as it is freed
LINE = "`grade qid:number index:value ...` with indices from 1 that increase"


_Floats = NDArray[np.float32]
_Numbers = NDArray[np.float64]
_Ids = NDArray[np.int64]


def read_letor(
    path: str | Path,
    *,
    features: int | None = None,
    origins: Mapping[int, float] | None = None,
    cache: str | Path | None = None,
    on_progress: Progress | None = None,
    block_bytes: int = BLOCK_BYTES,
) -> Part:
    """Read a LETOR file into dense features; indices that a line leaves out are 0.

    Files may be plain, gzip or xz. Memory: the features themselves (4 bytes each), 40 bytes a row for labels and query
    ids, and at most 64 MiB + 25 times `block_bytes` more, however long the file is.

    Args:
        path: the file. Lines without `qid:` have no lists, unless `PATH.query` or `PATH.group` gives their sizes.
        features: how many there are, if the file may leave out the last ones; by default the largest index.
        origins: values to subtract from features, by index, before they are rounded to float32. Without it a
            `DataNote` warns of features whose differences float32 cannot hold (Unix times, 16777217); `read_table`
            finds their origins and keeps them in its schema.
        cache: a folder in which to keep the arrays, which are mapped from there: they take no memory of their own, all
            processes share them, and reading the unchanged file again takes seconds. By default nothing is kept.
            `Path(path).parent` puts them beside the file.
        on_progress: called with the share of the file that has been read.
        block_bytes: how much text to read at a time.

    Returns:
        Features (N, D) float32; labels (N,), int64 if all are whole, else float32; query ids (N,) or None.

    Raises:
        ValueError: the first line that is not of this form, by file and number; nothing is returned then.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "train.txt")
        ...     _ = path.write_text("2 qid:7 1:0.5 3:1.5 # doc 1\\n0 qid:7 2:1\\n")
        ...     part = read_letor(path)
        >>> part.features.tolist(), part.labels.tolist(), part.query_ids.tolist()
        ([[0.5, 0.0, 1.5], [0.0, 1.0, 0.0]], [2, 0], [7, 7])
    """
    parsed = parse_letor(
        path, width=features, origins=origins, cache=cache, on_progress=on_progress, block_bytes=block_bytes
    )
    if parsed.origins and origins is None:
        index = next(iter(parsed.origins))
        warnings.warn(
            f"{path}: float32 cannot hold the differences of {len(parsed.origins)} features, such as feature {index}; "
            "read_table shifts them first",
            DataNote,
            stacklevel=2,
        )
    return replace(parsed.part, features=parsed.part.features[:])


class LetorFile(NamedTuple):
    """Content of a LETOR file.

    Attributes:
        part: its rows.
        width: the largest index in the file.
        origins: by index, values to subtract from features whose differences float32 cannot represent; without those
            that are already subtracted.
    """

    part: Part
    width: int
    origins: dict[int, float]


def parse_letor(
    path: str | Path,
    *,
    width: int | None = None,
    beyond: str = "error",
    origins: Mapping[int, float] | None = None,
    cache: str | Path | None = None,
    on_progress: Progress | None = None,
    block_bytes: int = BLOCK_BYTES,
) -> LetorFile:
    """Read a LETOR file with what is known of its features; see `read_letor`.

    Args:
        width: number of features; by default the largest index.
        beyond: features with an index beyond the width are an "error", or "ignore".
        path, origins, cache, on_progress, block_bytes: see `read_letor`.
    """
    path = check_file(path)
    if width is not None and (isinstance(width, bool) or not isinstance(width, int) or width < 1):
        raise ValueError(f"features: expected a whole number of at least 1 or None, got {width!r}")
    shifts = dict(sorted((origins or {}).items()))
    stored = None if cache is None else Cache(path, cache, f"letor {width} {beyond} {shifts}")
    if stored is None:
        _check_memory(path)
        arrays = _parse(path, width, beyond, shifts, on_progress, block_bytes, None)
    else:

        def parse(spool: IO[bytes]) -> dict[str, NDArray[np.generic]]:
            return _parse(path, width, beyond, shifts, on_progress, block_bytes, spool)

        arrays = cached_arrays(stored, parse, None if on_progress is None else partial(on_progress, 1.0))
    query_ids = torch.from_numpy(arrays["query_ids"][:]) if len(arrays["query_ids"]) else None
    features = torch.from_numpy(arrays["features"])
    part = Part(
        features if stored is None else MappedFeatures([features]),
        torch.from_numpy(arrays["labels"]),
        query_ids_beside(path, len(arrays["labels"]), query_ids),
    )
    needed = zip(arrays["origin_indices"].tolist(), arrays["origin_values"].tolist(), strict=True)
    return LetorFile(part, int(arrays["width"]), dict(needed))


def _check_memory(path: Path) -> None:
    """Refuse a file whose features would not fit into memory, by the width and length of its first lines."""
    if path.stat().st_size < FREE_BYTES:
        return
    block = next(read_line_blocks(path, block_bytes=1 << 20))
    lines = block.text.count(b"\n") + 1
    width = max(int(index) for index in re.findall(rb"\s(\d+):", block.text) or [b"1"])
    rows = path.stat().st_size * lines / len(block.text) * (5 if is_compressed(path) else 1)
    # Features once while they are joined and once in the parts that are cut, labels and ids.
    check_fits(path, rows * (8 * width + 80), "set data.cache=FOLDER (or cache=) to keep the features on disk")


def read_letor_chunks(path: str | Path, *, width: int, origins: Mapping[int, float]) -> Iterator[LetorFile]:
    """Yield the rows of a LETOR file that may be larger than memory, in chunks, see `read_letor`.

    A file with the sizes of its lists beside it is one chunk.

    Args:
        path: the file.
        width: number of features; those with a larger index are ignored.
        origins: values to subtract from features, by index.
    """
    path = check_file(path)
    if find_group_file(path) is not None:
        yield parse_letor(path, width=width, beyond="ignore", origins=origins)
        return
    empty = True
    for values, grades, query_ids in _parse_blocks(path, MOST_FEATURES, None, BLOCK_BYTES):
        if not len(grades):
            continue
        empty = False
        rows = _Rows(width, origins)
        for piece in _dense_pieces(values):
            rows.add(piece)
        part = Part(
            torch.from_numpy(rows.join()),
            torch.from_numpy(_label_numbers(grades)),
            torch.from_numpy(np.require(query_ids, requirements="W")) if len(query_ids) else None,
        )
        yield LetorFile(part, values.shape[1], {})
    if empty:
        raise ValueError(f"{path}: expected lines {LINE}, got none")


def read_letor_comments(path: str | Path) -> list[str]:
    """Return the text after the `#` of every row, "" if there is none: document ids, in the LETOR collections.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "train.txt")
        ...     _ = path.write_text("2 qid:7 1:0.5 #docid = A\\n0 qid:7 2:1\\n")
        ...     read_letor_comments(path)
        ['docid = A', '']
    """
    return [
        line.partition(b"#")[2].strip().decode("utf-8", errors="replace")
        for block in read_line_blocks(path)
        for _, line in block.lines()
        if line.partition(b"#")[0].strip()
    ]


def _parse(
    path: Path,
    width: int | None,
    beyond: str,
    origins: Mapping[int, float],
    on_progress: Progress | None,
    block_bytes: int,
    spool: IO[bytes] | None,
) -> dict[str, NDArray[np.generic]]:
    """Parse the whole file; its features go to memory, or to a temporary file (`spool`), which is mapped."""
    limit = width if width is not None and beyond == "error" else MOST_FEATURES
    rows, spreads = _Rows(width, origins, spool), _Spreads()
    labels: list[_Numbers] = []
    queries: list[_Ids] = []
    for values, grades, query_ids in _parse_blocks(path, limit, on_progress, block_bytes):
        spreads.add(values)
        for piece in _dense_pieces(values):
            rows.add(piece)
        labels.append(grades)
        queries.append(query_ids)
    if not sum(map(len, labels)):
        raise ValueError(f"{path}: expected lines {LINE}, got none")
    needed = {index: mean for index, mean in spreads.origins().items() if index not in origins}
    return {
        "features": rows.join(),
        "labels": _label_numbers(np.concatenate(labels)),
        "query_ids": np.concatenate(queries),
        "width": np.array(spreads.width),
        "origin_indices": np.array(list(needed), dtype=np.int64),
        "origin_values": np.array(list(needed.values()), dtype=np.float64),
    }


def _parse_blocks(
    path: Path, limit: int, on_progress: Progress | None, block_bytes: int
) -> Iterator[tuple[Any, _Numbers, _Ids]]:
    """Yield features (dense or sparse), grades and query ids of one block of lines after the other."""
    with_queries: bool | None = None
    for block in read_line_blocks(path, block_bytes=block_bytes, on_progress=on_progress):
        complete = parse_complete_lines(block.text)
        if complete is not None and complete[0].shape[1] > limit:
            complete = None
        for lines in [block] if complete else block.split(SPARSE_LINES):
            values, grades, query_ids = complete or _parse_sparse_lines(path, lines, limit, with_queries)
            _check_lines(path, lines, limit, with_queries, values, grades, query_ids)
            if len(grades):
                with_queries = len(query_ids) > 0
            yield values, grades, query_ids


def _label_numbers(grades: _Numbers) -> NDArray[np.generic]:
    """Return grades as int64 if all are whole, else as float32."""
    whole = bool((grades == np.rint(grades)).all()) and bool((np.abs(grades) < 2**53).all())
    return grades.astype(np.int64 if whole else np.float32)


def _parse_sparse_lines(
    path: Path, block: LineBlock, limit: int, with_queries: bool | None
) -> tuple[Any, _Numbers, _Ids]:
    require("reading sparse LETOR lines", ("sklearn",), extra="data")
    from sklearn.datasets import load_svmlight_file

    try:
        sparse, grades, query_ids = load_svmlight_file(
            BytesIO(block.text), dtype=np.float64, zero_based=False, query_id=True
        )
    except (ValueError, OverflowError, IndexError):
        _find_bad_line(path, block, limit, with_queries)
    if sparse.shape[1] > limit:
        _find_bad_line(path, block, limit, with_queries)
    return sparse, grades.astype(np.float64), query_ids.astype(np.int64)


def _check_lines(
    path: Path,
    block: LineBlock,
    limit: int,
    with_queries: bool | None,
    values: _Numbers | Any,
    grades: _Numbers,
    query_ids: _Ids,
) -> None:
    if with_queries is None:
        with_queries = len(query_ids) > 0
    cells = values if isinstance(values, np.ndarray) else values.data
    # A comparison with NaN is false.
    finite = bool((np.abs(cells) <= LARGEST).all()) and bool(np.isfinite(grades).all())
    if len(query_ids) != (len(grades) if with_queries else 0) or not finite:
        _find_bad_line(path, block, limit, with_queries)


def _dense_pieces(values: _Numbers | Any) -> Iterator[_Numbers]:
    """Yield rows, or a sparse matrix in pieces of a few rows: short lines of a wide file would need too much at
    once.
    """
    if isinstance(values, np.ndarray):
        yield values
        return
    rows = max(PIECE_BYTES // (8 * max(values.shape[1], 1)), 1)
    for start in range(0, values.shape[0], rows):
        yield values[start : start + rows].toarray()


def _find_bad_line(path: Path, block: LineBlock, limit: int, with_queries: bool | None) -> NoReturn:
    """Raise the error of the first bad line of a block that contains one; too slow to call on other blocks."""
    for number, line in block.lines():
        fields = line.partition(b"#")[0].split()
        if not fields:
            continue
        grade, *items = fields
        if not is_finite_number(grade):
            bad_line(path, number, f"{LINE}, with a number as the grade", grade)
        has_query = bool(items) and items[0].startswith(b"qid")
        if with_queries is None:
            with_queries = has_query
        if has_query != with_queries:
            what = "`qid:number` behind the grade" if with_queries else "no qid"
            bad_line(path, number, f"{what}, as in the lines before", line)
        if has_query:
            name, _, query = items.pop(0).partition(b":")
            if name != b"qid" or not _is_whole(query, -(2**63), 2**63 - 1):
                bad_line(path, number, "`qid:` and a whole number", name + b":" + query)
        last = 0
        for item in items:
            index, colon, value = item.partition(b":")
            if not colon or not _is_whole(index, last + 1, limit):
                bad_line(path, number, f"`index:value` with an index from {last + 1} to {limit}", item)
            if not is_finite_number(value):
                bad_line(path, number, f"a finite number (float32) as feature {index.decode()}", item)
            last = int(index)
    raise ValueError(f"{path}, line {block.first_line} or later: expected {LINE}, got something else")


def _is_whole(text: bytes, least: int, most: int) -> bool:
    try:
        return least <= int(text) <= most
    except ValueError:
        return False


class _Rows:
    """Blocks of rows, possibly ever wider, joined at the end with little more memory than the result takes.

    Args:
        width: columns to keep; None keeps all.
        origins: values to subtract from columns, by index from 1; cells that a block lacks are 0 before that.
        spool: a file for the rows; None keeps them in memory.
    """

    def __init__(self, width: int | None, origins: Mapping[int, float], spool: IO[bytes] | None = None) -> None:
        self._spool = spool
        self._most = width
        self._width = max([width or 1, *(index for index in origins if width is None)])
        self._origins = {index - 1: value for index, value in origins.items() if index <= self._width}
        self._chunks: list[_Floats] = []
        self._used = 0  # rows of the last chunk

    def add(self, block: _Numbers) -> None:
        block = block[:, : self._most]
        self._width = max(self._width, block.shape[1])
        done = 0
        while done < len(block):
            if not self._chunks or self._used == len(self._chunks[-1]) or self._chunks[-1].shape[1] < block.shape[1]:
                self._begin_chunk()
            chunk = self._chunks[-1]
            count = min(len(block) - done, len(chunk) - self._used)
            piece, target = block[done : done + count], chunk[self._used : self._used + count]
            target[:, : block.shape[1]] = piece
            for column, origin in self._origins.items():
                target[:, column] = (piece[:, column] if column < piece.shape[1] else 0.0) - origin
            self._used += count
            done += count

    def join(self) -> _Floats:
        self._end_chunk()
        shape = (sum(map(len, self._chunks)), self._width)
        joined: _Floats
        if self._spool is None:
            joined = np.zeros(shape, dtype=np.float32)
        elif all(chunk.shape[1] == self._width for chunk in self._chunks):
            return np.memmap(self._spool, np.float32, "r", shape=shape)
        else:  # later blocks were wider: copy all rows behind them
            joined = np.memmap(self._spool, np.float32, "r+", offset=self._spool.seek(0, 2), shape=shape)
        start = 0
        self._chunks.reverse()
        while self._chunks:
            chunk = self._chunks.pop()  # freed before the next is copied
            joined[start : start + len(chunk), : chunk.shape[1]] = chunk
            start += len(chunk)
        return joined

    def _begin_chunk(self) -> None:
        self._end_chunk()
        self._chunks.append(np.zeros((max(CHUNK_BYTES // (4 * self._width), 1), self._width), dtype=np.float32))
        self._used = 0

    def _end_chunk(self) -> None:
        if not self._chunks:
            return
        chunk = self._chunks[-1][: self._used]
        if self._spool is None or isinstance(self._chunks[-1], np.memmap):
            self._chunks[-1] = chunk
            return
        begin = self._spool.seek(0, 2)
        self._spool.write(chunk.data)
        self._spool.flush()
        self._chunks[-1] = np.memmap(self._spool, np.float32, "r", offset=begin, shape=chunk.shape)


class _Spreads:
    """Mean, spread and rounding error of every column, from blocks of rows that may become wider."""

    def __init__(self) -> None:
        self._count = 0
        self._mean, self._squares, self._error = np.zeros(0), np.zeros(0), np.zeros(0)

    @property
    def width(self) -> int:
        """Return the largest index so far."""
        return len(self._mean)

    def add(self, values: _Numbers | Any) -> None:
        """Add a block of rows: dense, or sparse with zeros that are left out."""
        rows, width = values.shape
        if not rows:
            return
        if isinstance(values, np.ndarray):
            mean = values.mean(0)
            squares = np.square(values - mean).sum(0)
            error = _rounding_error(values).max(0)
        else:
            cells, columns = values.data, values.indices
            known = np.bincount(columns, minlength=width)
            mean = np.bincount(columns, cells, minlength=width) / rows
            squares = (rows - known) * np.square(mean)
            squares += np.bincount(columns, np.square(cells - mean[columns]), minlength=width)
            error = np.zeros(width)
            np.maximum.at(error, columns, _rounding_error(cells))
        more = (0, max(width - self.width, 0))
        self._mean, self._squares, self._error = (
            np.pad(each, more) for each in (self._mean, self._squares, self._error)
        )
        mean, squares, error = (np.pad(each, (0, self.width - width)) for each in (mean, squares, error))
        # Chan, Golub and LeVeque: the moments of two sets of rows, joined.
        together, apart = self._count + rows, mean - self._mean
        self._squares += squares + np.square(apart) * self._count * rows / together
        self._mean += apart * rows / together
        self._error = np.maximum(self._error, error)
        self._count = together

    def origins(self) -> dict[int, float]:
        """Return the means of the columns, by index from 1, whose differences float32 cannot hold."""
        spread = np.sqrt(self._squares / max(self._count, 1))
        (chosen,) = loses_differences(spread, self._error).nonzero()
        return dict(zip((chosen + 1).tolist(), self._mean[chosen].tolist(), strict=True))


def _rounding_error(values: _Numbers) -> _Numbers:
    return np.abs(values - values.astype(np.float32))
