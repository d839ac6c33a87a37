"""Files that are there completely or not at all."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["write_whole"]

# Endings of the tables that we write.
TABLE_SUFFIXES = (".csv", ".parquet", ".jsonl")


def write_whole(path: Path, content: bytes | memoryview) -> None:
    """Write a file so that the whole of it appears, or what was there before stays, even if the machine stops."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
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
