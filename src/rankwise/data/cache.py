"""Arrays that took long to read, kept in a file of their own until the original changes, and mapped from there."""

from __future__ import annotations

import hashlib
import os
import struct
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
from filelock import FileLock
from numpy.lib import format as npy
from numpy.typing import NDArray

__all__ = ["FORMAT", "Cache", "cached_arrays", "file_state", "name_in_cache"]

Arrays = Mapping[str, NDArray[np.generic]]

FORMAT = 3  # raise it when what is stored changes: older files are then written anew
# Arrays begin at multiples of so many bytes of the file, as torch wants them in memory.
ALIGNMENT = 64
# Of a local header of a zip file: its length without name and extra fields; the extra field of sizes beyond 4 GiB.
HEADER, ZIP64 = 30, 20
BLOCK_BYTES = 1 << 24
PADDING = 0xFFFF  # the kind of an extra field that means nothing


class Cache:
    """The cached form of one file, an uncompressed .npz in a folder, whose arrays are mapped, not read.

    It holds as long as the size and the time of change of the original are the same. The name of the cache file comes
    from the original's path and the options it was read with, so a changed original overwrites its old cache.

    Args:
        original: the file, or folder of files, that takes long to read.
        folder: where to keep the arrays; made if it does not exist.
        options: how the original was read, anything that changes the arrays.
    """

    def __init__(self, original: Path, folder: str | Path, options: str) -> None:
        self._state = np.array([FORMAT, *file_state(original)], dtype=np.int64)
        self.path = Path(folder) / f"{name_in_cache(original, options)}.npz"

    def load(self, *, check: bool = True) -> dict[str, NDArray[np.generic]] | None:
        """Map the arrays; None if there are none, they are of another state of the original, or damaged.

        All processes of a machine share the pages of the file. A page that is written to becomes a private copy.
        `check=False` is for a file just written: it is not read once more.
        """
        try:
            with zipfile.ZipFile(self.path) as archive:
                with archive.open("state.npy") as file:
                    if not np.array_equal(npy.read_array(file, allow_pickle=False), self._state):
                        return None
                if check and archive.testzip() is not None:  # compares the checksum of every array
                    return None
                names = [each.filename for each in archive.infolist() if each.filename != "state.npy"]
                return {name.removesuffix(".npy"): self._map(archive.getinfo(name)) for name in names}
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, struct.error, NotImplementedError):
            return None

    def save(self, arrays: Arrays) -> None:
        """Write the arrays: other processes see the old file or the whole new one, nothing in between."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f"{self.path.name}.", suffix=".part", dir=self.path.parent)
        try:
            with os.fdopen(handle, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
                for key, array in {"state": self._state, **arrays}.items():
                    _write_aligned(archive, file, f"{key}.npy", array)
            os.replace(name, self.path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise

    @contextmanager
    def writing(self) -> Iterator[IO[bytes]]:
        """Keep other processes from writing this cache while entered; give a temporary file beside it."""
        folder, lock = self.path.parent, Path(f"{self.path}.lock")
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with FileLock(lock), tempfile.TemporaryFile(dir=folder) as spool:
                yield spool
        finally:
            # Whoever waits for the lock has it open; a second writer would only do the work twice.
            with suppress(OSError):
                lock.unlink(missing_ok=True)
            with suppress(OSError):  # the folder is empty only if reading failed
                folder.rmdir()

    def _map(self, info: zipfile.ZipInfo) -> NDArray[np.generic]:
        with self.path.open("rb") as file:
            file.seek(info.header_offset)
            header = file.read(HEADER)
            file.seek(info.header_offset + HEADER + sum(struct.unpack("<HH", header[26:30])))
            version = npy.read_magic(file)
            read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
            shape, fortran, dtype = read_header(file)
            if fortran or dtype.hasobject:
                raise ValueError(f"{self.path}: expected plain arrays in rows")
            if 0 in shape or not shape:
                return np.fromfile(file, dtype, count=int(np.prod(shape))).reshape(shape)
            return np.memmap(self.path, dtype, "c", offset=file.tell(), shape=shape)


def cached_arrays(
    stored: Cache, make: Callable[[IO[bytes]], Arrays], on_hit: Callable[[], None] | None = None
) -> dict[str, NDArray[np.generic]]:
    """Return the mapped arrays of a cache; the first process makes them, all others wait for it.

    Args:
        stored: the cache.
        make: returns the arrays; it may use the temporary file it is given.
        on_hit: called if the arrays are there already.
    """
    arrays = stored.load()
    if arrays is not None:
        if on_hit is not None:
            on_hit()
        return arrays
    with stored.writing() as spool:
        arrays = stored.load()  # another process may have written it meanwhile
        if arrays is None:
            stored.save(make(spool))
            arrays = stored.load(check=False)
    if arrays is None:
        raise ValueError(f"{stored.path}: expected the arrays just written, got a damaged file")
    return arrays


def file_state(path: Path) -> tuple[int, int]:
    """Return the size of a file and the time of its last change; of a folder, the size and a hash of all its files."""
    if not path.is_dir():
        stat = path.stat()
        return stat.st_size, stat.st_mtime_ns
    files = [(file, file.stat()) for file in sorted(path.rglob("*")) if file.is_file()]
    listing = "\n".join(f"{file.relative_to(path)} {stat.st_size} {stat.st_mtime_ns}" for file, stat in files)
    hashed = int.from_bytes(hashlib.sha256(listing.encode()).digest()[:7], "big")
    return sum(stat.st_size for _, stat in files), hashed


def name_in_cache(original: Path, options: str) -> str:
    """Return the name of what a cache keeps of a file that was read with these options."""
    name = hashlib.sha256(f"{original.resolve()}\n{options}".encode()).hexdigest()[:16]
    return f"{original.name}.{name}"


def _write_aligned(archive: zipfile.ZipFile, file: IO[bytes], name: str, array: NDArray[Any]) -> None:
    """Add an array to an archive so that its numbers begin at a multiple of `ALIGNMENT`, as the header of .npy is."""
    info = zipfile.ZipInfo(name)
    begin = file.tell() + HEADER + len(name) + ZIP64 + 4
    padding = -begin % ALIGNMENT
    info.extra = struct.pack("<HH", PADDING, padding) + bytes(padding)
    with archive.open(info, "w", force_zip64=True) as member:
        header = {"descr": npy.dtype_to_descr(array.dtype), "fortran_order": False, "shape": array.shape}
        npy.write_array_header_1_0(member, header)
        flat = array.reshape(-1) if array.ndim < 2 else array
        step = max(1, BLOCK_BYTES // max(1, flat[:1].nbytes))
        for first in range(0, len(flat), step):  # a block at a time: the array may be mapped, or stored in columns
            member.write(np.ascontiguousarray(flat[first : first + step]).data.cast("B"))
