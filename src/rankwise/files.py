"""Files that are there completely or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

__all__ = ["write_blocks", "write_whole"]

# Endings of the tables that we write.
TABLE_SUFFIXES = (".csv", ".parquet", ".jsonl")


def write_whole(path: Path, content: bytes | memoryview) -> None:
    """Write a file so that the whole of it appears, or what was there before stays, even if the machine stops."""
    write_blocks(path, [content])


def write_blocks(path: Path, blocks: Iterable[bytes | memoryview]) -> None:
    """Write a file as `write_whole` does, from blocks of which one is in memory at a time."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            for block in blocks:
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if os.name == "posix":  # elsewhere a folder cannot be opened to be forced to the disk
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
