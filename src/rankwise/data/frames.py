"""Any table file as a polars frame with the line of every row."""

from __future__ import annotations

import csv
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from rankwise.data.arrays import read_arrays
from rankwise.data.files import bad_line, is_compressed, read_bytes, read_line_blocks, read_text

if TYPE_CHECKING:
    import polars as pl

__all__ = ["read_frame", "read_parquet"]

MISSING = ["", "NA", "N/A", "na", "nan", "NaN", "null", "?"]
LINES_FOR_TYPES = 1000
# A column of one value takes no room in a Parquet file, so its size says little: so many cells may be in any file,
# and more if there are no more than so many to a byte.
FREE_CELLS, CELLS_PER_BYTE = 1 << 27, 256
ARRAYS = {"features": ("features", "X"), "labels": ("labels", "y"), "query_ids": ("query_ids", "qid")}


def read_frame(path: Path, *, header: str, line: str, separator: str | None = None) -> pl.DataFrame:
    """The columns of a table, plus one called `line`: where each row stands in the file, counted from 1.

    Args:
        path: .parquet and .npz are read as such, everything else as text with separators.
        header: "auto", "yes" or "no".
        line: the name of the added column.
        separator: between the fields of a text file, one character or more; by default what its first line holds
            most of: tab, `;` or `,`.
    """
    if path.suffix == ".parquet":
        return read_parquet(path).with_row_index(line, offset=1)
    if path.suffix == ".npz":
        return _read_npz(path).with_row_index(line, offset=1)
    return _read_text(path, header, line, separator)


def read_parquet(path: Path) -> pl.DataFrame:
    """A Parquet file; one that is damaged, or would fill the memory, is refused."""
    import polars as pl

    try:
        lazy = pl.scan_parquet(path, glob=False)
        cells = lazy.select(pl.len()).collect().item() * len(lazy.collect_schema())
        if cells <= max(FREE_CELLS, CELLS_PER_BYTE * path.stat().st_size):
            return pl.read_parquet(path, glob=False)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as problem:
        raise ValueError(f"{path}: expected a Parquet file, got {_first_line(problem)}") from None
    raise ValueError(
        f"{path}: expected at most {FREE_CELLS:,} cells or {CELLS_PER_BYTE} to a byte of the file, got {cells:,}"
    )


def _read_text(path: Path, header: str, line: str, separator: str | None) -> pl.DataFrame:
    import polars as pl

    separator, fields = _first_fields(path, separator)
    named = header == "yes" or (header == "auto" and not any(map(_is_number, fields)))
    if named and len(set(fields)) < len(fields):
        twice = next(name for name in fields if fields.count(name) > 1)
        bad_line(path, 1, "a different name for every column", f"{twice!r} twice")
    names = fields if named else [f"column {number}" for number in range(1, len(fields) + 1)]
    # A path is read in place; what is compressed, or has separators that polars does not know, has to be in memory.
    source: Path | BytesIO = path
    if is_compressed(path) or len(separator) > 1:
        source = BytesIO(read_bytes(path).replace(separator.encode(), separator[:1].encode()))

    def read(lines_to_look_at: int | None) -> pl.DataFrame:
        return pl.read_csv(
            source,
            separator=separator[:1],
            has_header=False,
            skip_lines=1 if named else 0,
            new_columns=names,
            null_values=MISSING,
            infer_schema_length=lines_to_look_at,
            raise_if_empty=False,
            glob=False,
        )

    try:
        try:
            frame = read(LINES_FOR_TYPES)
        except pl.exceptions.PolarsError:
            # A later line does not fit the types of the first ones: now look at all of them, which takes longer.
            frame = read(None)
    except (pl.exceptions.PolarsError, OSError) as problem:
        _find_bad_line(path, separator, len(fields))
        raise ValueError(f"{path}: cannot be read as a table: {_first_line(problem)}") from None
    if frame.width and frame.width != len(fields):
        _find_bad_line(path, separator, len(fields))
        raise ValueError(f"{path}: expected {len(fields)} fields in every line, got {frame.width}")
    return frame.with_row_index(line, offset=2 if named else 1)


def _first_fields(path: Path, separator: str | None) -> tuple[str, list[str]]:
    block = next(read_line_blocks(path, block_bytes=1 << 16), None)
    line = b"" if block is None else next(block.lines())[1]
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as problem:
        bad_line(path, 1, "text in UTF-8", f"the byte 0x{line[problem.start]:02x}")
    if not text.strip():
        bad_line(path, 1, "the names of the columns or numbers", "an empty line")
    if separator is None:
        separator = max("\t;,", key=text.count)
    if "\r" in text:
        bad_line(path, 1, "lines that end with a newline", "a carriage return within the line")
    fields = next(csv.reader([text.replace(separator, separator[:1])], delimiter=separator[:1]))
    return separator, [field.strip() for field in fields]


def _is_number(field: str) -> bool:
    try:
        float(field.strip("'\""))
    except ValueError:
        return False
    return True


def _find_bad_line(path: Path, separator: str, fields: int) -> None:
    """Raise the error of the first line that is not UTF-8 or has more fields than the first: slow, and only then."""
    text = read_text(path).replace(separator, separator[:1])
    reader = csv.reader(text.splitlines(keepends=True), delimiter=separator[:1])
    try:
        for row in reader:
            if len(row) > fields:
                bad_line(path, reader.line_num, f"{fields} fields as in the first line", f"{len(row)}")
    except csv.Error as problem:
        bad_line(path, reader.line_num, "fields with separators", str(problem))


def _read_npz(path: Path) -> pl.DataFrame:
    import polars as pl

    stored = read_arrays(path)
    arrays = {}
    for name, spellings in ARRAYS.items():
        found = [stored[spelling] for spelling in spellings if spelling in stored]
        if found:
            arrays[name] = found[0]
    if "features" not in arrays or "labels" not in arrays:
        raise ValueError(f"{path}: expected arrays called features (or X) and labels (or y), got {', '.join(stored)}")
    features = arrays.pop("features")
    if features.ndim != 2 or not len(features):
        raise ValueError(f"{path}: expected features of shape (N, D), got {features.shape}")
    for name, values in arrays.items():
        if values.shape != features.shape[:1]:
            raise ValueError(f"{path}: expected {name} of shape ({len(features)},), got {values.shape}")
    columns = {f"column {place + 1}": features[:, place] for place in range(features.shape[1])}
    columns |= {name: arrays[name] for name in ("query_ids", "labels") if name in arrays}
    return pl.DataFrame(columns)


def _first_line(problem: BaseException) -> str:
    return str(problem).strip().partition("\n")[0] or type(problem).__name__
