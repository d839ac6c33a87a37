"""NumPy's npz files as untrusted input: plain arrays only, and no more of them than the file is good for."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rankwise.data.files import check_expanded, check_file

__all__ = ["read_arrays"]


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
