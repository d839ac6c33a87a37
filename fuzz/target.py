"""What all fuzz targets share: bytes become a file, a reader reads it, and only a clear refusal may come of it.

python fuzz/letor.py -max_total_time=60 corpus/

Needs `pip install atheris` (Linux). The arguments are libFuzzer's.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

import atheris

Reader = Callable[[Path], object]
MEMORY = 6 << 30


def fuzz(readers: Mapping[str, Reader], seeds: list[bytes], *, say_file: bool = True) -> None:
    """Run libFuzzer over readers.

    Args:
        readers: by the name of the file they read; its first byte chooses among several.
        seeds: files to begin with.
        say_file: whether a refusal must begin with the path of the file.
    """
    folder = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    names, found = list(readers), _Found()
    # A reader that asks for more gets a MemoryError, which no reader may let through.
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))

    def one(data: bytes) -> None:
        if not data:
            return
        name = names[data[0] % len(names)]
        path = folder / name
        path.write_bytes(data[1:])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", _note_class())
            try:
                readers[name](path)
            except BaseException as problem:
                if not _is_clear(problem, folder, say_file=say_file):
                    found(problem, data)

    seed_folder = folder / "seeds"
    seed_folder.mkdir()
    for number, seed in enumerate(seeds):
        for place in range(len(names)):
            (seed_folder / f"{number}-{place}").write_bytes(bytes([place]) + seed)
    atheris.Setup([*sys.argv, str(seed_folder), "-timeout=60", "-rss_limit_mb=0"], one)
    atheris.Fuzz()


def _is_clear(problem: BaseException, folder: Path, *, say_file: bool) -> bool:
    """Whether this is a refusal a user can understand: of our own kinds, naming the file or the argument."""
    if type(problem) not in (ValueError, FileNotFoundError) and type(problem).__name__ != "BadRecipe":
        return False
    return not say_file or str(problem).startswith(str(folder)) or re.match(r"[a-z_]+: ", str(problem)) is not None


def _note_class() -> type[Warning]:
    """Notes about data are no failures. Imported late, so that `instrumented` sees the first import."""
    from rankwise.data import DataNote

    return DataNote


class _Found:
    """Ends the search at the first unclear failure; with FUZZ_FOUND set, notes one for each place and goes on."""

    def __init__(self) -> None:
        self._file = os.environ.get("FUZZ_FOUND")
        self._places: set[tuple[str, int]] = set()

    def __call__(self, problem: BaseException, data: bytes) -> None:
        if self._file is None:
            raise problem
        *_, last = traceback.extract_tb(problem.__traceback__)
        place = (last.filename, last.lineno or 0)
        if place not in self._places:
            self._places.add(place)
            with open(self._file, "a") as file:
                file.write(f"{type(problem).__name__} at {place}: {problem}\n    {data[:300]!r}\n")
                file.write("".join(traceback.format_tb(problem.__traceback__)[-4:]))


@contextlib.contextmanager
def instrumented() -> object:  # type: ignore[misc]
    """Imports under this are watched for coverage."""
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with atheris.instrument_imports(include=["rankwise"]):
        yield
