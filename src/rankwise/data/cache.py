"""Arrays that took long to read, kept in a file of their own until the original changes."""

from __future__ import annotations

import hashlib
import os
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

__all__ = ["Cache"]

Arrays = Mapping[str, NDArray[np.generic]]

FORMAT = 2  # raise it when what is stored changes: older files are then written anew


class Cache:
    """The cached form of one file, an .npz in a folder.

    It holds as long as the size and the time of change of the original are the same. The name of the cache file comes
    from the original's path and the options it was read with, so a changed original overwrites its old cache.

    Args:
        original: the file that takes long to read.
        folder: where to keep the arrays; made if it does not exist.
        options: how the original was read, anything that changes the arrays.
    """

    def __init__(self, original: Path, folder: str | Path, options: str) -> None:
        stat = original.stat()
        self._state = np.array([FORMAT, stat.st_size, stat.st_mtime_ns], dtype=np.int64)
        name = hashlib.sha256(f"{original.resolve()}\n{options}".encode()).hexdigest()[:16]
        self.path = Path(folder) / f"{original.name}.{name}.npz"

    def load(self) -> dict[str, NDArray[np.generic]] | None:
        """The arrays, or None if there are none, they are of another state of the original, or damaged."""
        try:
            with self.path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
                if not np.array_equal(stored["state"], self._state):
                    return None
                return {name: stored[name] for name in stored.files if name != "state"}
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return None

    def save(self, arrays: Arrays) -> None:
        """Write the arrays: other processes see the old file or the whole new one, nothing in between."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f"{self.path.name}.", suffix=".part", dir=self.path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                np.savez(file, allow_pickle=False, state=self._state, **arrays)
            os.replace(name, self.path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
