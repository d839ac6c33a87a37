"""Tables kept on disk as Arrow files that are mapped: a column takes memory only while it is used."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from filelock import FileLock
from numpy.typing import NDArray

from rankwise.data.cache import FORMAT, Cache, cached_arrays, file_state, name_in_cache
from rankwise.data.mapped import MappedFeatures
from rankwise.data.schema import DataNote
from rankwise.data.table_files import CHUNK_CELLS, OtherTypes, RawTable, check_table, open_table, open_typed_chunks
from rankwise.extras import require

if TYPE_CHECKING:
    import polars as pl

    from rankwise.data.features import FeatureEncoding

__all__ = ["map_features", "map_table", "open_stored"]

STATE = "state.json"


def map_table(
    source: str | Path,
    folder: str | Path,
    *,
    header: str = "auto",
    separator: str | None = None,
    names: Sequence[str] = (),
) -> RawTable:
    """Open a table whose columns are mapped from files in a folder, which are written if they are not there yet.

    One process writes them, all others wait for it; all share the pages. They hold as long as the size and the time of
    change of the source are the same, and may be deleted at any time. An interrupted writing leaves nothing that is
    taken for a table.

    Args:
        source: see `open_table`. Text, Parquet and Arrow are converted in chunks, other formats in memory.
        folder: where to keep the files; made if it does not exist.
        header, separator, names: see `open_table`.
    """
    require("mapping a table from disk", ("polars", "pyarrow"), extra="data")
    import polars as pl

    path = check_table(source)
    form = {"header": header, "separator": separator, "names": tuple(names)}
    stored = Path(folder) / f"{name_in_cache(path, json.dumps(form))}.table"
    if (state := _read_state(stored, path)) is None:
        stored.parent.mkdir(parents=True, exist_ok=True)
        lock = Path(f"{stored}.lock")
        try:
            with FileLock(lock):
                if (state := _read_state(stored, path)) is None:  # another process may have written it meanwhile
                    state = _write(stored, path, form)
        finally:
            # Whoever waits for the lock has it open; a second writer would only do the work twice.
            with suppress(OSError):
                lock.unlink(missing_ok=True)
    parts = [_map_part(stored / part) for part in state["parts"]]
    return RawTable(pl.concat(parts, rechunk=False), str(path), state["named"], path, stored)


def open_stored(source: Any, folder: str | Path | None, **form: Any) -> RawTable:
    """Open a table: a file is mapped from a folder if one is given, see `map_table`, all else is read to memory."""
    if folder is not None and isinstance(source, str | Path):
        return map_table(source, folder, **form)
    return open_table(source, **form)


def _map_part(path: Path) -> pl.DataFrame:
    import polars as pl
    import pyarrow as pa

    with pa.memory_map(str(path)) as file:
        frame = pl.from_arrow(pa.ipc.open_file(file).read_all(), rechunk=False)
    assert isinstance(frame, pl.DataFrame)
    return frame


def _read_state(stored: Path, source: Path) -> dict[str, Any] | None:
    """Return the state of stored files; None if there are none, they are of another state of the source, or damaged."""
    try:
        state = json.loads((stored / STATE).read_text())
        sizes = {part: (stored / part).stat().st_size for part in state["parts"]}
    except (OSError, ValueError, KeyError, TypeError):
        return None
    known: dict[str, Any] = state
    return known if (state["format"], state["source"], state["parts"]) == (*_origin(source), sizes) else None


def _origin(source: Path) -> tuple[int, list[int]]:
    return FORMAT, list(file_state(source))


def _write(stored: Path, source: Path, form: dict[str, Any]) -> dict[str, Any]:
    """Write the files to a folder beside the final one and rename it."""
    format_, origin = _origin(source)
    beside = Path(f"{stored}.part")
    for folder in (beside, stored):  # of a writer that was killed, or of another state of the source
        shutil.rmtree(folder, ignore_errors=True)
    try:
        try:
            sizes, named = _write_parts(beside, open_typed_chunks(source, **form))
        except OtherTypes as later:
            shutil.rmtree(beside, ignore_errors=True)
            sizes, named = _write_parts(beside, open_typed_chunks(source, **form, types=later.types))
        state = {"format": format_, "source": origin, "parts": sizes, "named": named}
        (beside / STATE).write_text(json.dumps(state))
        beside.rename(stored)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    return state


def _write_parts(folder: Path, chunks: Iterator[RawTable]) -> tuple[dict[str, int], bool]:
    """Write chunks to files of about equal size; return the sizes by name, and whether the columns have names."""
    import polars as pl

    folder.mkdir(parents=True)
    sizes: dict[str, int] = {}
    held: list[pl.DataFrame] = []
    named = True

    def flush() -> None:
        part = folder / f"{len(sizes):05d}.arrow"
        pl.concat(held, rechunk=False).write_ipc(part, compression="uncompressed")
        sizes[part.name] = part.stat().st_size
        held.clear()

    for chunk in chunks:
        named = chunk.named
        held.append(chunk.frame)
        if sum(frame.height * frame.width for frame in held) >= CHUNK_CELLS:
            flush()
    if held:
        flush()
    return sizes, named


def map_features(raw: RawTable, encoding: FeatureEncoding, missing: str, folder: str | Path) -> MappedFeatures:
    """Return the inputs (N, D) of a mapped table, mapped from a file in a folder.

    Args:
        raw: a table of `map_table` with the columns of the encoding.
        encoding, missing: see `FeatureEncoding.encode`.
        folder: where to keep the file.
    """
    assert raw.path is not None
    stored = Cache(raw.path, folder, f"table {json.dumps([asdict(encoding), missing, raw.columns])}")
    rows, width = raw.frame.height, len(encoding.inputs)

    def encode(spool: Any) -> dict[str, NDArray[Any]]:
        # Column by column into a temporary file in columns; rows are made of it when it is saved.
        columns = np.memmap(spool, np.float32, "w+", shape=(width, rows))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            encoding.encode(raw, missing, out=columns.T)
        notes = "\n".join(str(each.message) for each in caught if issubclass(each.category, DataNote))
        return {"features": columns.T, "notes": np.frombuffer(notes.encode(), dtype=np.uint8)}

    arrays = cached_arrays(stored, encode)
    for note in bytes(arrays["notes"]).decode().splitlines():
        warnings.warn(note, DataNote, stacklevel=5)
    return MappedFeatures([torch.from_numpy(arrays["features"])])
