"""Files as untrusted input: blocks of whole lines, plain or compressed, and npz arrays; errors name file and line."""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NoReturn, cast

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "LineBlock",
    "Progress",
    "address_of",
    "bad_line",
    "check_expanded",
    "check_file",
    "is_compressed",
    "is_finite_number",
    "is_letor",
    "read_arrays",
    "read_bytes",
    "read_line_blocks",
    "read_text",
    "report_reading",
    "tell_reading",
]

Progress = Callable[[float], None]
"""Called now and then with the share of the work that is done, from 0 to 1."""
BLOCK_BYTES = 8 << 20
LARGEST = float(np.finfo(np.float32).max)
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# What a compressed file may hold: anything up to FREE_BYTES, beyond that MOST_TIMES its own size. Tables shrink to a
# tenth or a fiftieth; only a file made to fill the memory shrinks to less than a two-hundredth.
FREE_BYTES, MOST_TIMES = 1 << 28, 200
LONGEST_LINE = 1 << 26

# At least two letters: `c:/data` is a path of Windows. A `Path` has one slash where the address has two or three.
_ADDRESS = re.compile(r"(?P<protocol>[a-z][a-z0-9+.-]+):/+(?P<rest>.*)", re.DOTALL)

GZIP, XZ, BZIP = b"\x1f\x8b", b"\xfd7zXZ\x00", b"BZh"
_OTHER_TEXT = (b"\xff\xfe", b"\xfe\xff")
_LETOR = re.compile(rb"\s*[^\s,;:]+\s+(?:qid:\S+\s+)?\d+:\S+")
Report = Callable[[Path, float], None]
_REPORT: ContextVar[Report | None] = ContextVar("report", default=None)


@contextmanager
def report_reading(report: Report) -> Iterator[None]:
    """Call `report` for every file read in blocks inside the context, with its path and the share that has been
    read.
    """
    token = _REPORT.set(report)
    try:
        yield
    finally:
        _REPORT.reset(token)


def tell_reading(path: Path, share: float) -> None:
    """Call the function given to `report_reading`, if any, with the share of a file that has been read."""
    if (report := _REPORT.get()) is not None:
        report(path, share)


@dataclass(frozen=True)
class LineBlock:
    """Whole lines of a file: `text` and the number of its first line, counted from 1."""

    text: bytes
    first_line: int

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield each line with its number, without its ending."""
        for offset, line in enumerate(self.text.split(b"\n")):
            yield self.first_line + offset, line.removesuffix(b"\r")

    def split(self, count: int) -> Iterator[LineBlock]:
        """Return the same lines in blocks of at most `count`."""
        lines = self.text.split(b"\n")
        for start in range(0, len(lines), count):
            yield LineBlock(b"\n".join(lines[start : start + count]), self.first_line + start)


def check_file(path: str | Path) -> Path:
    """Return `path` if it is a file that is not empty; raise an error otherwise."""
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file")
    if path.is_dir():
        raise ValueError(f"{path}: expected a file, got a folder")
    if path.stat().st_size == 0:
        raise ValueError(f"{path}: expected data, got an empty file")
    return path


def address_of(source: object) -> str | None:
    """Return the address that a source names, also after it was made a `Path`; None for anything else.

    Example:
        >>> address_of(Path("s3://bucket/clicks")), address_of("clicks.csv")
        ('s3://bucket/clicks', None)
    """
    match = _ADDRESS.fullmatch(str(source)) if isinstance(source, str | Path) else None
    if match is None:
        return None
    root = "/" if match["protocol"] in ("file", "local") else ""
    return f"{match['protocol']}://{root}{match['rest']}"


def bad_line(path: Path, line: int, expected: str, got: str | bytes) -> NoReturn:
    """Raise the error of a line that cannot be read."""
    if isinstance(got, bytes):
        got = repr(got.decode("utf-8", errors="backslashreplace"))
    shown = got if len(got) <= 80 else f"{got[:77]}..."
    raise ValueError(f"{path}, line {line}: expected {expected}, got {shown}")


def check_expanded(path: Path, size: int) -> None:
    """Refuse a compressed file that holds `size` bytes, if that is far more than files of its size do."""
    if size > max(FREE_BYTES, MOST_TIMES * path.stat().st_size):
        raise ValueError(
            f"{path}: expected at most {FREE_BYTES >> 20} MiB or {MOST_TIMES} times its own size when decompressed, "
            "got more; decompress it first if that is meant"
        )


def is_finite_number(text: str | bytes) -> bool:
    """Return whether this is a number that float32 can hold."""
    try:
        return abs(float(text)) <= LARGEST
    except ValueError:
        return False


def is_compressed(path: Path) -> bool:
    """Return whether a file begins as gzip, xz or bzip2 files do, whatever its name."""
    with _explained(path), path.open("rb") as raw:
        return raw.read(len(XZ)).startswith((GZIP, XZ, BZIP))


def read_bytes(path: str | Path) -> bytes:
    """Return the whole file, decompressed, without a byte order mark."""
    path = check_file(path)
    with _explained(path), path.open("rb") as raw:
        stream = _decompressed(path, raw)
        content = b"".join(iter(lambda: stream.read(BLOCK_BYTES), b""))
    _check_encoding(path, content)
    return content.removeprefix(BYTE_ORDER_MARK)


def read_text(path: str | Path) -> str:
    """Return the whole file as text (UTF-8), decompressed."""
    content = read_bytes(path)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as problem:
        line = content.count(b"\n", 0, problem.start) + 1
        bad_line(Path(path), line, "text in UTF-8", f"the byte 0x{content[problem.start]:02x}")


def read_line_blocks(
    path: str | Path, *, block_bytes: int = BLOCK_BYTES, on_progress: Progress | None = None
) -> Iterator[LineBlock]:
    """Return the file in blocks of whole lines, decompressed, of about `block_bytes` each.

    Args:
        path: a text file, plain or compressed by gzip, xz or bzip2 (told by its first bytes).
        block_bytes: how much to hold in memory at a time; a longer line is a block of its own, up to 64 MiB.
        on_progress: told the share of the file that has been read.
    """
    path = check_file(path)
    total = path.stat().st_size

    def tell(share: float) -> None:
        if on_progress is not None:
            on_progress(share)
        tell_reading(path, share)

    with _explained(path), path.open("rb") as raw:
        stream = _decompressed(path, raw)
        start = stream.read(len(BYTE_ORDER_MARK))
        _check_encoding(path, start)
        line, rest = 1, [start.removeprefix(BYTE_ORDER_MARK)]
        while piece := stream.read(block_bytes):
            text, newline, rest_of_piece = piece.rpartition(b"\n")
            if not newline:
                rest.append(piece)
                if sum(map(len, rest)) > LONGEST_LINE:
                    bad_line(path, line, f"lines of at most {LONGEST_LINE >> 20} MiB", "a longer one")
                continue
            block = LineBlock(b"".join([*rest, text]), line)
            rest = [rest_of_piece]
            yield block
            line += block.text.count(b"\n") + 1
            tell(min(raw.tell() / total, 1.0))
        if last := b"".join(rest):
            yield LineBlock(last.removesuffix(b"\n"), line)
        tell(1.0)


def is_letor(path: str | Path) -> bool:
    """Return whether the first line of a text file, comments aside, is one of a LETOR file."""
    path = Path(path)
    if path.suffix in (".parquet", ".npz", ".arrow", ".feather", ".ipc") or path.is_dir():
        return False
    path = check_file(path)
    block = next(read_line_blocks(path, block_bytes=1 << 16), None)
    lines = (line for _, line in block.lines()) if block else iter(())
    first = next((line for line in lines if line.strip() and not line.lstrip().startswith(b"#")), b"")
    return _LETOR.match(first) is not None


def read_arrays(path: str | Path) -> dict[str, NDArray[np.generic]]:
    """Return the arrays of an npz file by name; pickled objects are refused, and so is a file that is damaged.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "numbers.npz"
        >>> np.savez(path, X=np.arange(3))
        >>> read_arrays(path)
        {'X': array([0, 1, 2])}
    """
    path = check_file(path)
    try:
        with zipfile.ZipFile(path) as archive:
            check_expanded(path, sum(entry.file_size for entry in archive.infolist()))
        with np.load(path, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except (
        OSError,
        ValueError,
        KeyError,
        EOFError,
        RuntimeError,
        MemoryError,
        zipfile.BadZipFile,
        zlib.error,
    ) as problem:
        said = " ".join(str(problem).split()) or type(problem).__name__
        if said.startswith(f"{path}: "):
            raise
        raise ValueError(f"{path}: expected a whole npz file of arrays of numbers or text, got {said}") from None


def _decompressed(path: Path, raw: IO[bytes]) -> IO[bytes] | _Limited:
    start = raw.read(len(XZ))
    raw.seek(0)
    if start.startswith(GZIP):
        return _Limited(path, cast("IO[bytes]", gzip.open(raw)))
    if start.startswith(BZIP):
        return _Limited(path, cast("IO[bytes]", bz2.open(raw)))
    return _Limited(path, lzma.open(raw)) if start.startswith(XZ) else raw


class _Limited:
    """Contents of a compressed file, refused beyond a limit."""

    def __init__(self, path: Path, stream: IO[bytes]) -> None:
        self._path, self._stream, self._size = path, stream, 0

    def read(self, size: int) -> bytes:
        piece = self._stream.read(size)
        self._size += len(piece)
        check_expanded(self._path, self._size)
        return piece


def _check_encoding(path: Path, start: bytes) -> None:
    if start.startswith(_OTHER_TEXT):
        bad_line(path, 1, "text in UTF-8", "UTF-16 (save the file as UTF-8)")


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn what can go wrong while reading bytes into a ValueError that names the file."""
    try:
        yield
    except FileNotFoundError:
        raise
    except EOFError:
        raise ValueError(f"{path}: expected a whole compressed file, got one that ends too early") from None
    except (OSError, lzma.LZMAError, zlib.error) as problem:
        raise ValueError(f"{path}: cannot be read: {problem}") from None
