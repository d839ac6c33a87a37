"""Tables from files and from memory, as polars frames with the line of every row."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rankwise.checks import check_choice
from rankwise.data.arff import ATTRIBUTE
from rankwise.data.columns import LINE
from rankwise.data.files import (
    FREE_BYTES,
    Progress,
    bad_line,
    check_file,
    is_compressed,
    read_arrays,
    read_bytes,
    read_line_blocks,
    read_text,
    tell_reading,
)
from rankwise.data.memory import check_fits
from rankwise.extras import require

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "OtherTypes",
    "RawTable",
    "check_table",
    "is_parquet",
    "open_chunks",
    "open_parquet",
    "open_table",
    "open_typed_chunks",
    "read_parquet",
    "read_records",
]

MISSING = ["", "NA", "N/A", "na", "nan", "NaN", "null", "?"]
LINES_FOR_TYPES, LINES_FOR_HEADER = 1000, 100
# A column of one value takes no room in a Parquet file, so its size says little: so many cells may be in any file,
# and more if there are no more than so many to a byte.
FREE_CELLS, CELLS_PER_BYTE = 1 << 27, 256
JSON_LINES = (".jsonl", ".ndjson")
# Cells of a chunk: a few hundred megabytes at most, whatever the types.
CHUNK_CELLS = 1 << 23
# Bytes of a cell while a table in memory becomes parts, measured at 5 million rows of 30 columns.
CELL_BYTES = 20
Types = dict[str, "pl.DataType"]
ARRAYS = {"features": ("features", "X"), "labels": ("labels", "y"), "query_ids": ("query_ids", "qid")}


@dataclass(frozen=True)
class RawTable:
    """A table as it was given: columns of any type.

    Attributes:
        frame: the columns, plus one called `LINE` with the line of each row in the file, counted from 1.
        name: what errors call the table: its path, or the kind of object.
        named: whether the columns have names of their own; otherwise they are called `column 1`, `column 2`, ...
        path: of the file; None for a table in memory.
        stored: where the columns are mapped from; None if they are in memory.
    """

    frame: pl.DataFrame
    name: str
    named: bool
    path: Path | None = None
    stored: Path | None = None

    @property
    def columns(self) -> list[str]:
        """Return the names of the columns without `LINE`."""
        return [name for name in self.frame.columns if name != LINE]


def open_table(
    source: object, *, header: str = "auto", separator: str | None = None, names: Sequence[str] = ()
) -> RawTable:
    """Open a table from a file or from memory.

    Args:
        source: a path (.parquet, a folder of Parquet files, .arrow, .feather, .npz, .jsonl, .arff of dense rows;
            everything else is text with separators, plain or compressed by gzip or xz), a `RawTable`, a polars or
            pandas frame, an array (N, D), or a tuple of arrays: features (N, D), labels (N,) or None, and perhaps query
            ids (N,).
        header: of a text file: "yes" if the first line holds the names of the columns, "no" if it does not, "auto"
            decides by comparing it with the lines below.
        separator: between the fields of a text file; by default what its first line holds most of: tab, `;` or `,`.
        names: of columns that the table is known to have; a first line that holds them all holds names, also if they
            are numbers.
    """
    if isinstance(source, RawTable):
        return source
    require("reading a table", ("polars",))
    check_choice("header", header, ("auto", "yes", "no"))
    if isinstance(source, str | Path):
        path = check_table(source)
        _check_memory(path)
        table = _read_file(path, header, separator, names)
    else:
        table = _read_object(source)
    table = _without_empty_rows(table)
    if not len(table.frame):
        raise ValueError(f"{table.name}: expected rows below the names of the columns, got none")
    return table


def open_chunks(source: object, *, header: str = "auto", names: Sequence[str] = ()) -> Iterator[RawTable]:
    """Open a table in chunks of rows, so that a file larger than memory can be read.

    Text, Parquet, Arrow and JSON lines are read in chunks; anything else is one chunk.

    Args:
        source, header, names: see `open_table`.
    """
    if not isinstance(source, str | Path) or Path(source).suffix.lower() in (".npz", ".arff"):
        yield open_table(source, header=header, names=names)
        return
    require("reading a table", ("polars",))
    path = check_table(source)
    yield from _filled_chunks(path, _file_chunks(path, header, names))


def open_typed_chunks(
    path: Path,
    *,
    header: str = "auto",
    separator: str | None = None,
    names: Sequence[str] = (),
    types: Types | None = None,
) -> Iterator[RawTable]:
    """Open a file in chunks of rows whose columns have the types that `open_table` gives them.

    Text, Parquet and Arrow are read in chunks; anything else is one chunk.

    Args:
        path: see `check_table`.
        header, separator, names: see `open_table`.
        types: of the columns of a text file; by default those of its first lines.

    Raises:
        OtherTypes: a later line of a text file does not fit the types of the first ones.
    """
    if _is_scanned(path):
        chunks: Iterator[RawTable] = _scanned_chunks(path)
    elif path.suffix.lower() in (".npz", ".arff", *JSON_LINES):
        chunks = iter([_read_file(path, header, separator, names)])
    else:
        chunks = _typed_text_chunks(path, _TextForm.of(path, header, separator, names), types)
    yield from _filled_chunks(path, chunks)


def check_table(source: str | Path) -> Path:
    """Return the path of a file that is not empty or of a folder of Parquet files; raise an error otherwise."""
    return Path(source) if is_parquet(Path(source)) else check_file(source)


def is_parquet(path: Path) -> bool:
    """Return whether this is a Parquet file or a folder of them."""
    return path.suffix == ".parquet" if not path.is_dir() else bool(_parquet_parts(path))


def _parquet_parts(path: Path) -> list[Path]:
    """Return the Parquet files of a folder and of those below it, by name; hidden and temporary ones are left out."""
    if not path.is_dir():
        return [path]
    files = (file.relative_to(path) for file in path.rglob("*.parquet"))
    return [path / file for file in sorted(files) if not any(part.startswith((".", "_")) for part in file.parts)]


def _is_scanned(path: Path) -> bool:
    return is_parquet(path) or path.suffix in (".arrow", ".feather", ".ipc")


def _scan_parquet(path: Path) -> pl.LazyFrame:
    """Return a lazy frame of a file or of a folder; folders `key=value` below it are columns, as Spark writes them."""
    import polars as pl

    parts = _parquet_parts(path)
    partitioned = path.is_dir() and any("=" in part.relative_to(path).parent.as_posix() for part in parts)
    return pl.scan_parquet(parts, glob=False, hive_partitioning=partitioned)


def _check_memory(path: Path) -> None:
    """Refuse a large file whose columns and features would not fit into memory."""
    if _is_scanned(path):
        with _explain_damage(path, _format_name(path)):
            needed: float = _check_cells(path, _scan(path)) * CELL_BYTES
        if needed < FREE_BYTES:
            return
    elif path.stat().st_size < FREE_BYTES:
        return
    else:
        block = next(read_line_blocks(path, block_bytes=1 << 20))
        cells = max(block.text.count(separator) for separator in (b"\t", b";", b",")) + block.text.count(b"\n") + 1
        needed = path.stat().st_size * cells / len(block.text) * CELL_BYTES * (5 if is_compressed(path) else 1)
    check_fits(path, needed, "set data.cache=FOLDER (or cache=) to keep the table on disk")


def _filled_chunks(path: Path, chunks: Iterator[RawTable]) -> Iterator[RawTable]:
    """Yield the chunks without empty rows; raise an error if nothing is left."""
    rows = 0
    for table in chunks:
        filled = _without_empty_rows(table)
        rows += len(filled.frame)
        if len(filled.frame):
            yield filled
    if not rows:
        raise ValueError(f"{path}: expected rows below the names of the columns, got none")


def _file_chunks(path: Path, header: str, names: Sequence[str]) -> Iterator[RawTable]:
    if _is_scanned(path):
        yield from _scanned_chunks(path)
        return
    if path.suffix in JSON_LINES:
        for block in read_line_blocks(path):
            yield RawTable(_parse_json(path, block.text, block.first_line), str(path), True, path)
        return
    form = _TextForm.of(path, header, None, names)
    skip = int(form.named)
    for text, first_line in read_records(path):
        yield RawTable(
            form.parse(form.content(text), skip=skip, first_line=first_line + skip), str(path), form.named, path
        )
        skip = 0


def read_records(path: Path, *, on_progress: Progress | None = None) -> Iterator[tuple[bytes, int]]:
    """Yield blocks of lines with the number of the first; a quoted field may hold a newline."""
    held, first_line = b"", 1
    for block in read_line_blocks(path, on_progress=on_progress):
        first_line = first_line if held else block.first_line
        held = held + block.text + b"\n"
        if b'"' not in held or held.count(b'"') % 2 == 0:
            yield held, first_line
            held = b""
    if held:
        yield held, first_line


class OtherTypes(Exception):
    """A later line does not fit the types of the first ones: read all chunks again with these `types`."""

    def __init__(self, types: Types) -> None:
        super().__init__()
        self.types = types


def _typed_text_chunks(path: Path, form: _TextForm, types: Types | None) -> Iterator[RawTable]:
    import polars as pl

    known = types is not None
    for content, skip, line in _text_blocks(path, form):
        try:
            frame = form.parse_typed(content, skip, types)
        except pl.exceptions.PolarsError:
            if known:
                raise
            raise OtherTypes(_types_of_all(path, form)) from None
        types = types or dict(frame.schema)
        yield RawTable(frame.with_row_index(LINE, offset=line), str(path), form.named, path)


def _text_blocks(path: Path, form: _TextForm) -> Iterator[tuple[BytesIO, int, int]]:
    """Yield blocks of lines, with the number of lines to skip in each and the number of the first one after them."""
    skip = int(form.named)
    for text, line in read_records(path):
        yield form.content(text), skip, line + skip
        skip = 0


def _types_of_all(path: Path, form: _TextForm) -> Types:
    """Return the types of the columns that fit all lines, as polars finds them in a whole file."""
    import polars as pl

    kinds_of: dict[str, set[Any]] = {name: set() for name in form.names}
    for content, skip, line in _text_blocks(path, form):
        frame = form.parse(content, skip=skip, first_line=line, look_at_all=True)
        for name in form.names:
            if name in frame.columns and frame[name].null_count() < len(frame):
                kinds_of[name].add(frame[name].dtype)
    numbers = {pl.Int64(), pl.Float64()}
    types = {}
    for name, kinds in kinds_of.items():
        types[name] = kinds.pop() if len(kinds) == 1 else pl.Float64() if kinds == numbers else pl.String()
    return types


def _scan(path: Path) -> pl.LazyFrame:
    import polars as pl

    return _scan_parquet(path) if is_parquet(path) else pl.scan_ipc(path, glob=False)


def _format_name(path: Path) -> str:
    return "a Parquet" if is_parquet(path) else "an Arrow (Feather)"


def _scanned_chunks(path: Path) -> Iterator[RawTable]:
    with _explain_damage(path, _format_name(path)):
        lazy = _scan(path)
        _check_cells(path, lazy)
        step = max(1, CHUNK_CELLS // max(1, len(lazy.collect_schema())))
        for first, share, frame in _slices(lazy, step):
            tell_reading(path, share)
            yield RawTable(frame.with_row_index(LINE, offset=first), str(path), True, path)


def open_parquet(path: Path, rows: int) -> Iterator[tuple[int, float, pl.DataFrame]]:
    """Yield a Parquet file in chunks: the number of the first row from 1, the share of the file done, the rows."""

    with _explain_damage(path, "a Parquet"):
        lazy = _scan_parquet(path)
        _check_cells(path, lazy)
        yield from _slices(lazy, rows)


def _slices(lazy: pl.LazyFrame, step: int) -> Iterator[tuple[int, float, pl.DataFrame]]:
    import polars as pl

    rows = lazy.select(pl.len()).collect().item()
    for start in range(0, rows, step):
        yield start + 1, min(1.0, (start + step) / rows), lazy.slice(start, step).collect()


def _parse_json(path: Path, text: bytes, first_line: int) -> pl.DataFrame:
    import polars as pl

    try:
        frame = pl.read_ndjson(BytesIO(text), infer_schema_length=None)
    except pl.exceptions.PolarsError as problem:
        raise ValueError(f"{path}: expected one JSON object in each line, got {_first_line(problem)}") from None
    return frame.with_row_index(LINE, offset=first_line)


def _without_empty_rows(table: RawTable) -> RawTable:
    import polars as pl

    return replace(table, frame=table.frame.filter(~pl.all_horizontal(pl.exclude(LINE).is_null())))


def _read_file(path: Path, header: str, separator: str | None, names: Sequence[str]) -> RawTable:
    if is_parquet(path):
        return RawTable(read_parquet(path).with_row_index(LINE, offset=1), str(path), True, path)
    if path.suffix in (".arrow", ".feather", ".ipc"):
        return RawTable(_read_arrow(path).with_row_index(LINE, offset=1), str(path), True, path)
    if path.suffix == ".npz":
        return RawTable(_read_npz(path).with_row_index(LINE, offset=1), str(path), False, path)
    if path.suffix in JSON_LINES:
        return RawTable(_parse_json(path, read_bytes(path), 1), str(path), True, path)
    if path.suffix.lower() == ".arff":
        return RawTable(_read_arff(path), str(path), True, path)
    frame, named = _read_text(path, header, separator, names)
    return RawTable(frame, str(path), named, path)


def _read_object(source: object) -> RawTable:
    import polars as pl

    if isinstance(source, pl.DataFrame):
        return RawTable(source.with_row_index(LINE, offset=1), "polars frame", True)
    if type(source).__module__.partition(".")[0] == "pandas" and hasattr(source, "columns"):
        return RawTable(_from_pandas(source).with_row_index(LINE, offset=1), "pandas frame", True)
    arrays = source if isinstance(source, tuple | list) else (source,)
    given = {name: each for name, each in zip(ARRAYS, arrays, strict=False) if each is not None}
    if len(arrays) > len(ARRAYS) or "features" not in given or not all(hasattr(x, "__array__") for x in given.values()):
        raise TypeError(
            "source: expected a path, a polars or pandas frame, an array of features, or a tuple of arrays (features, "
            f"labels, query ids), got {type(source).__name__}"
        )
    columns = _array_columns("arrays", {name: np.asarray(each) for name, each in given.items()})
    return RawTable(columns.with_row_index(LINE, offset=1), "arrays", False)


def _from_pandas(frame: Any) -> pl.DataFrame:
    import polars as pl

    names = [str(name) for name in frame.columns]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"pandas frame: expected a different name for every column, got {twice[0]!r} twice")
    columns = {}
    for position, name in enumerate(names):
        column = frame.iloc[:, position]
        if column.dtype.kind == "M":
            moments = column if getattr(column.dtype, "tz", None) is None else column.dt.tz_convert(None)
            values: Any = moments.to_numpy(dtype="datetime64[us]")
        elif column.dtype.kind in "biuf":
            values = column.to_numpy()
        else:
            values = column.astype(object).where(column.notna(), None).tolist()
        columns[name] = pl.Series(name, values, strict=False)
    return pl.DataFrame(columns)


def _read_arrow(path: Path) -> pl.DataFrame:
    import polars as pl

    with _explain_damage(path, "an Arrow (Feather)"), path.open("rb") as file:
        _check_cells(path, pl.scan_ipc(file))
        file.seek(0)
        return pl.read_ipc(file)


def read_parquet(path: Path) -> pl.DataFrame:
    """Read a Parquet file; one that is damaged, or would fill the memory, is refused."""

    with _explain_damage(path, "a Parquet"):
        lazy = _scan_parquet(path)
        _check_cells(path, lazy)
        return lazy.collect()


@contextmanager
def _explain_damage(path: Path, kind: str) -> Iterator[None]:
    import polars as pl

    try:
        yield
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as problem:
        raise ValueError(f"{path}: expected {kind} file, got {_first_line(problem)}") from None


def _check_cells(path: Path, lazy: pl.LazyFrame) -> int:
    """Return the number of cells; refuse a file that is made to fill the memory."""
    import polars as pl

    cells: int = lazy.select(pl.len()).collect().item() * len(lazy.collect_schema())
    size = sum(part.stat().st_size for part in _parquet_parts(path))
    if cells > max(FREE_CELLS, CELLS_PER_BYTE * size):
        raise ValueError(
            f"{path}: expected at most {FREE_CELLS:,} cells or {CELLS_PER_BYTE} to a byte of the file, got {cells:,}"
        )
    return cells


def _read_arff(path: Path) -> pl.DataFrame:
    """Read an ARFF file of dense rows, whose attributes are numbers, categories or text."""
    import polars as pl

    text = read_text(path)
    names: list[str] = []
    lines = text.splitlines()
    for number, line in enumerate(lines, start=1):
        stripped = line.strip()
        if stripped.lower().startswith("@attribute"):
            match = ATTRIBUTE.match(stripped)
            if match is None:
                bad_line(path, number, "`@attribute name type`", repr(stripped))
            names.append(match[1].strip("'\""))
        elif stripped.lower().startswith("@data"):
            break
    else:
        raise ValueError(f"{path}: expected a line @data, got none (is this an ARFF file?)")
    kept = [(line_number, row) for line_number, row in enumerate(lines[number:], start=number + 1) if row.strip()]
    kept = [(line_number, row) for line_number, row in kept if not row.lstrip().startswith("%")]
    if not names or not kept:
        raise ValueError(f"{path}: expected attributes and rows, got {len(names)} and {len(kept)}")
    rows = [next(csv.reader([row], quotechar="'", skipinitialspace=True)) for _, row in kept]
    for (line_number, row), fields in zip(kept, rows, strict=True):
        if len(fields) != len(names):
            bad_line(path, line_number, f"{len(names)} values, one for each attribute", repr(row))
    columns = {
        name: pl.Series(name, [None if cell.strip() in MISSING else cell.strip() for cell in cells])
        for name, cells in zip(names, zip(*rows, strict=True), strict=True)
    }
    frame = pl.DataFrame({name: _numbers_if_all(column) for name, column in columns.items()})
    return frame.with_columns(pl.Series(LINE, [line_number for line_number, _ in kept], dtype=pl.UInt32))


def _numbers_if_all(column: pl.Series) -> pl.Series:
    """Return a column of text as whole numbers or numbers if all its cells are."""
    import polars as pl

    for kind in (pl.Int64, pl.Float64):
        numbers = column.cast(kind, strict=False)
        if numbers.null_count() == column.null_count():
            return numbers
    return column


@dataclass(frozen=True)
class _TextForm:
    """The form of a text file: its separator, the names of its columns, and whether its first line holds them."""

    path: Path
    separator: str
    names: list[str]
    named: bool

    @classmethod
    def of(cls, path: Path, header: str, separator: str | None, known: Sequence[str]) -> _TextForm:
        separator, lines = _first_lines(path, separator)
        fields = lines[0]
        named = header == "yes"
        if header == "auto":
            named = (bool(known) and set(known) <= set(fields)) or _is_header(path, lines)
        if named and len(set(fields)) < len(fields):
            twice = next(name for name in fields if fields.count(name) > 1)
            bad_line(path, 1, "a different name for every column", f"{twice!r} twice")
        names = fields if named else [f"column {number}" for number in range(1, len(fields) + 1)]
        return cls(path, separator, names, named)

    def content(self, text: bytes) -> BytesIO:
        """Return lines with a separator that polars knows."""
        return BytesIO(text if len(self.separator) == 1 else text.replace(self.separator.encode(), self._separator))

    @property
    def _separator(self) -> bytes:
        return self.separator[:1].encode()

    def parse_typed(self, source: BytesIO, skip: int, types: Types | None) -> pl.DataFrame:
        """Parse some lines with known types, None to find them in the first lines; others raise polars' error."""
        import polars as pl

        given: dict[str, Any] = {"schema": types} if types is not None else {"new_columns": self.names}
        return pl.read_csv(source, **self._options(skip), infer_schema_length=LINES_FOR_TYPES, **given)

    def _options(self, skip: int) -> dict[str, Any]:
        return {
            "separator": self.separator[:1],
            "has_header": False,
            "skip_lines": skip,
            "null_values": MISSING,
            "raise_if_empty": False,
            "glob": False,
        }

    def parse(self, source: Path | BytesIO, *, skip: int, first_line: int, look_at_all: bool = False) -> pl.DataFrame:
        """Parse the file or some of its lines, without the line of names (`skip`)."""
        import polars as pl

        def read(lines: int | None) -> pl.DataFrame:
            return pl.read_csv(source, **self._options(skip), new_columns=self.names, infer_schema_length=lines)

        try:
            try:
                frame = read(None if look_at_all else LINES_FOR_TYPES)
            except pl.exceptions.PolarsError:
                # A later line does not fit the types of the first ones: now look at all of them, which takes longer.
                frame = read(None)
        except (pl.exceptions.PolarsError, OSError) as problem:
            if "DataFrame of width 0" in str(problem):  # nothing below the names; newer versions of polars allow that
                return pl.DataFrame({name: [] for name in (LINE, *self.names)})
            _find_bad_line(self.path, self.separator, len(self.names))
            raise ValueError(f"{self.path}: cannot be read as a table: {_first_line(problem)}") from None
        if frame.width and frame.width != len(self.names):
            _find_bad_line(self.path, self.separator, len(self.names))
            raise ValueError(f"{self.path}: expected {len(self.names)} fields in every line, got {frame.width}")
        return frame.with_row_index(LINE, offset=first_line)


def _read_text(path: Path, header: str, separator: str | None, known: Sequence[str]) -> tuple[pl.DataFrame, bool]:
    form = _TextForm.of(path, header, separator, known)
    skip = int(form.named)
    # A path is read in place; what is compressed, or has separators that polars does not know, has to be in memory.
    source: Path | BytesIO = path
    if is_compressed(path) or len(form.separator) > 1:
        source = form.content(read_bytes(path))
    return form.parse(source, skip=skip, first_line=1 + skip), form.named


def _first_lines(path: Path, separator: str | None) -> tuple[str, list[list[str]]]:
    """Return the separator and the fields of the first lines."""
    block = next(read_line_blocks(path, block_bytes=1 << 16), None)
    lines = [] if block is None else [line for _, line in islice(block.lines(), LINES_FOR_HEADER)]
    first = lines[0] if lines else b""
    try:
        text = first.decode("utf-8")
    except UnicodeDecodeError as problem:
        bad_line(path, 1, "text in UTF-8", f"the byte 0x{first[problem.start]:02x}")
    if not text.strip():
        bad_line(path, 1, "the names of the columns or numbers", "an empty line")
    if separator is None:
        separator = max("\t;,", key=text.count)
    if "\r" in text:
        bad_line(path, 1, "lines that end with a newline", "a carriage return within the line")
    decoded = [line.decode("utf-8", errors="replace").replace(separator, separator[:1]) for line in lines]
    rows = csv.reader([line for line in decoded if line.strip()], delimiter=separator[:1])
    try:
        fields = [next(rows)]
        if rows.line_num > 1:
            bad_line(path, 1, "all fields in one line", "a line break in a name or a value in quotes; take it out")
        return separator, [[field.strip() for field in row] for row in [*fields, *rows]]
    except csv.Error as problem:
        bad_line(path, 1, "fields with separators", str(problem))


def _is_header(path: Path, lines: list[list[str]]) -> bool:
    """Return whether the first line holds names: it differs in kind from the lines below it."""
    first, below = lines[0], [row for row in lines[1:] if len(row) == len(lines[0])]
    if not any(map(_is_number, first)):
        return True
    if all(map(_is_number, first)):
        return False
    texts = [column for column, field in enumerate(first) if field not in MISSING and not _is_number(field)]
    for column in texts:
        values = [row[column] for row in below if row[column] not in MISSING]
        if values and all(map(_is_number, values)):
            return True  # a name above numbers
        if first[column] in values:
            return False  # a value that occurs again
    raise ValueError(
        f"{path}: expected a first line of names or of values, got {', '.join(first[:4])!r}, which may be either; say "
        "which with header: yes or header: no"
    )


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
    stored = read_arrays(path)
    arrays = {}
    for name, spellings in ARRAYS.items():
        present = [stored[spelling] for spelling in spellings if spelling in stored]
        if present:
            arrays[name] = present[0]
    if "features" not in arrays:
        raise ValueError(f"{path}: expected an array called features (or X), got {', '.join(stored)}")
    return _array_columns(str(path), arrays)


def _array_columns(name: str, arrays: dict[str, NDArray[np.generic]]) -> pl.DataFrame:
    import polars as pl

    features = arrays.pop("features")
    if features.ndim != 2 or not len(features):
        raise ValueError(f"{name}: expected features of shape (N, D), got {features.shape}")
    for key, values in arrays.items():
        if values.shape != features.shape[:1]:
            raise ValueError(f"{name}: expected {key} of shape ({len(features)},), got {values.shape}")
    columns = {f"column {index + 1}": features[:, index] for index in range(features.shape[1])}
    columns |= {key: arrays[key] for key in ("query_ids", "labels") if key in arrays}
    return pl.DataFrame(columns)


def _first_line(problem: BaseException) -> str:
    return str(problem).strip().partition("\n")[0] or type(problem).__name__
