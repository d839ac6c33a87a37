"""Sources at remote addresses, such as `s3://bucket/clicks/`: copied to a local folder once, by fsspec."""

from __future__ import annotations

import atexit
import hashlib
import json
import shutil
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from filelock import FileLock

from rankwise.data.files import address_of, tell_reading
from rankwise.extras import require

__all__ = ["local_copy"]

_BLOCK_BYTES = 1 << 23
STATE = "state.json"


def local_copy(source: Any, folder: str | Path | None) -> Any:
    """Return a local path for a source at a remote address; any other source as it is.

    The copy holds as long as names, sizes and versions of the remote files are the same. One process makes it, all
    others that share the folder wait for it; an interrupted one leaves nothing that is taken for a copy.

    Args:
        source: an address of a file, or of a folder with all files below it.
        folder: where to keep the copy; None keeps it until this process ends.
    """
    address = address_of(source)
    if address is None:
        return source
    require("reading a remote address", ("fsspec",))
    import fsspec

    name = PurePosixPath(address).name or "data"
    stored = Path(_temporary() if folder is None else folder) / f"{hashlib.sha256(address.encode()).hexdigest()[:16]}"
    stored = stored.with_name(f"{name}.{stored.name}.copy")
    try:
        system, root = fsspec.core.url_to_fs(address)
        files = _list_files(system, root)
        stored.parent.mkdir(parents=True, exist_ok=True)
        lock = Path(f"{stored}.lock")
        try:
            with FileLock(lock):
                if _read_state(stored) != files:
                    _copy(system, root, files, stored, Path(name))
        finally:
            with suppress(OSError):
                lock.unlink(missing_ok=True)
    except FileNotFoundError:
        raise FileNotFoundError(f"{address}: no such file or folder") from None
    except Exception as problem:  # every file system has error classes of its own
        said = " ".join(str(problem).split()) or type(problem).__name__
        raise ValueError(f"{address}: cannot be read ({said})") from problem
    return stored / name


def _list_files(system: Any, root: str) -> dict[str, str]:
    """Return size and version of each file by its path below the root; "" is the root itself, a file."""
    system.invalidate_cache()
    if not system.isdir(root):
        return {"": _version(system, root, system.info(root))}
    files = {}
    for path, info in sorted(system.find(root, detail=True).items()):
        below = PurePosixPath(path).relative_to(PurePosixPath(root))
        if ".." in below.parts or below.is_absolute():
            raise ValueError(f"expected names below the folder, got {path!r}")
        files[str(below)] = _version(system, path, info)
    if not files:
        raise FileNotFoundError(root)
    return files


def _version(system: Any, path: str, info: dict[str, Any]) -> str:
    """Return what changes with the content: the size, and the tag or time that the file system knows."""
    known = (info.get(key) for key in ("ETag", "etag", "md5Hash", "mtime", "LastModified", "updated", "created"))
    return " ".join([str(info.get("size")), *(str(value) for value in known if value is not None)])


def _read_state(stored: Path) -> dict[str, str] | None:
    try:
        state: dict[str, str] = json.loads((stored / STATE).read_text())
    except (OSError, ValueError):
        return None
    return state


def _copy(system: Any, root: str, files: dict[str, str], stored: Path, name: Path) -> None:
    """Write copies of the files to a folder beside the final one and rename it."""
    beside = Path(f"{stored}.part")
    for left in (beside, stored):  # of a process that was killed, or of other versions
        shutil.rmtree(left, ignore_errors=True)
    total, done = sum(int(version.split()[0]) for version in files.values()), 0
    try:
        for below in files:
            target = beside / name / below
            target.parent.mkdir(parents=True, exist_ok=True)
            with system.open(f"{root.rstrip('/')}/{below}" if below else root, "rb") as remote, target.open("wb") as to:
                while block := remote.read(_BLOCK_BYTES):
                    to.write(block)
                    done += len(block)
                    tell_reading(name, min(1.0, done / max(1, total)))
        (beside / STATE).write_text(json.dumps(files))
        beside.rename(stored)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise


@cache
def _temporary() -> Path:
    """Return a folder that is removed when this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="rankwise-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
