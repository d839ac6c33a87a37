"""LETOR files (also called svmlight or libsvm): `grade qid:7 1:0.5 3:2.0 # comment`, one document a line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray

from rankwise.data.cache import Cache
from rankwise.data.complete_lines import parse_complete_lines
from rankwise.data.extras import need
from rankwise.data.files import (
    BLOCK_BYTES,
    LineBlock,
    Progress,
    bad_line,
    check_file,
    is_finite_number,
    read_line_blocks,
)
from rankwise.data.groups import query_ids_beside
from rankwise.data.parts import Part

__all__ = ["is_letor", "read_letor", "read_letor_comments"]

MOST_FEATURES = 100_000  # a larger index is a mistake or data too wide to be held densely
PIECE_BYTES = 8 << 20
SPARSE_LINES = 5_000  # scikit-learn's time grows with the square of the lines with a qid that it gets at once
CHUNK_BYTES = 64 << 20  # large enough that the system takes a chunk back as soon as it is freed
LINE = "`grade qid:number index:value ...` with indices from 1 that increase"

_FIRST_LINE = re.compile(rb"\s*[^\s,;:]+\s+(?:qid:\S+\s+)?\d+:\S+")

_Floats = NDArray[np.float32]
_Numbers = NDArray[np.float64]
_Ids = NDArray[np.int64]


def is_letor(path: str | Path) -> bool:
    """Return whether the first line of a text file, comments aside, is one of a LETOR file."""
    path = check_file(path)
    if path.suffix in (".parquet", ".npz", ".arrow", ".feather", ".ipc"):
        return False
    block = next(read_line_blocks(path, block_bytes=1 << 16), None)
    lines = (line for _, line in block.lines()) if block else iter(())
    first = next((line for line in lines if line.strip() and not line.lstrip().startswith(b"#")), b"")
    return _FIRST_LINE.match(first) is not None


def read_letor(
    path: str | Path,
    *,
    features: int | None = None,
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
        cache: a folder in which to keep the arrays, so that reading the unchanged file again takes seconds; by
            default nothing is kept. `Path(path).parent` puts them beside the file.
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
    path = check_file(path)
    if features is not None and (isinstance(features, bool) or not isinstance(features, int) or features < 1):
        raise ValueError(f"features: expected a whole number of at least 1 or None, got {features!r}")
    stored = None if cache is None else Cache(path, cache, f"letor {features}")
    arrays = stored.load() if stored else None
    if arrays is None:
        arrays = _parse(path, features, on_progress, block_bytes)
        if stored:
            stored.save(arrays)
    elif on_progress is not None:
        on_progress(1.0)
    query_ids = torch.from_numpy(arrays["query_ids"]) if len(arrays["query_ids"]) else None
    return Part(
        torch.from_numpy(arrays["features"]),
        torch.from_numpy(arrays["labels"]),
        query_ids_beside(path, len(arrays["labels"]), query_ids),
    )


def read_letor_comments(path: str | Path) -> list[str]:
    """What stands behind the `#` of every row, "" where nothing does: document ids, in the LETOR collections.

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
    path: Path, features: int | None, on_progress: Progress | None, block_bytes: int
) -> dict[str, NDArray[np.generic]]:
    limit = features or MOST_FEATURES
    rows = _Rows(features or 1)
    labels: list[_Numbers] = []
    queries: list[_Ids] = []
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
            for piece in _dense_pieces(values):
                rows.add(piece)
            labels.append(grades)
            queries.append(query_ids)
    if not sum(map(len, labels)):
        raise ValueError(f"{path}: expected lines {LINE}, got none")
    grades = np.concatenate(labels)
    whole = bool((grades == np.rint(grades)).all()) and bool((np.abs(grades) < 2**53).all())
    return {
        "features": rows.join(),
        "labels": grades.astype(np.int64 if whole else np.float32),
        "query_ids": np.concatenate(queries),
    }


def _parse_sparse_lines(
    path: Path, block: LineBlock, limit: int, with_queries: bool | None
) -> tuple[Any, _Numbers, _Ids]:
    need("sklearn", "reading sparse LETOR lines")
    from sklearn.datasets import load_svmlight_file

    try:
        sparse, grades, query_ids = load_svmlight_file(
            BytesIO(block.text), dtype=np.float32, zero_based=False, query_id=True
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
    values: _Floats | Any,
    grades: _Numbers,
    query_ids: _Ids,
) -> None:
    if with_queries is None:
        with_queries = len(query_ids) > 0
    cells = values if isinstance(values, np.ndarray) else values.data
    finite = bool(np.isfinite(cells).all()) and bool(np.isfinite(grades).all())
    if len(query_ids) != (len(grades) if with_queries else 0) or not finite:
        _find_bad_line(path, block, limit, with_queries)


def _dense_pieces(values: _Floats | Any) -> Iterator[_Floats]:
    """Rows, or a sparse matrix in pieces of a few rows: short lines of a wide file would need too much at once."""
    if isinstance(values, np.ndarray):
        yield values
        return
    rows = max(PIECE_BYTES // (4 * max(values.shape[1], 1)), 1)
    for start in range(0, values.shape[0], rows):
        yield values[start : start + rows].toarray()


def _find_bad_line(path: Path, block: LineBlock, limit: int, with_queries: bool | None) -> NoReturn:
    """Raise the error of the first bad line of a block that is known to hold one: slow, and only then."""
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
    """Blocks of rows, possibly ever wider, joined at the end with little more memory than the result takes."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._chunks: list[_Floats] = []
        self._used = 0  # rows of the last chunk

    def add(self, block: _Floats) -> None:
        self._width = max(self._width, block.shape[1])
        done = 0
        while done < len(block):
            if not self._chunks or self._used == len(self._chunks[-1]) or self._chunks[-1].shape[1] < block.shape[1]:
                self._begin_chunk()
            chunk = self._chunks[-1]
            count = min(len(block) - done, len(chunk) - self._used)
            chunk[self._used : self._used + count, : block.shape[1]] = block[done : done + count]
            self._used += count
            done += count

    def join(self) -> _Floats:
        self._trim()
        joined: _Floats = np.zeros((sum(map(len, self._chunks)), self._width), dtype=np.float32)
        start = 0
        self._chunks.reverse()
        while self._chunks:
            chunk = self._chunks.pop()  # freed before the next is copied
            joined[start : start + len(chunk), : chunk.shape[1]] = chunk
            start += len(chunk)
        return joined

    def _begin_chunk(self) -> None:
        self._trim()
        self._chunks.append(np.zeros((max(CHUNK_BYTES // (4 * self._width), 1), self._width), dtype=np.float32))
        self._used = 0

    def _trim(self) -> None:
        if self._chunks:
            self._chunks[-1] = self._chunks[-1][: self._used]
