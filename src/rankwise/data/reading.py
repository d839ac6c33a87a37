"""A file of any form that gives rows with labels: which it is, is seen from its content."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from rankwise.data.files import Progress, check_file, read_line_blocks
from rankwise.data.letor import read_letor
from rankwise.data.splits import same_width
from rankwise.data.tables import Table, read_table

__all__ = ["is_letor", "read_labelled"]

_LETOR = re.compile(rb"\s*[^\s,;:]+\s+(?:qid:\S+\s+)?\d+:\S+")


def is_letor(path: str | Path) -> bool:
    """Whether the first line of a text file that is no comment is one of a LETOR file."""
    path = check_file(path)
    if path.suffix in (".parquet", ".npz"):
        return False
    block = next(read_line_blocks(path, block_bytes=1 << 16), None)
    lines = (line for _, line in block.lines()) if block else iter(())
    first = next((line for line in lines if line.strip() and not line.lstrip().startswith(b"#")), b"")
    return _LETOR.match(first) is not None


def read_labelled(
    path: str | Path,
    *,
    label: str | int = -1,
    query: str | None = None,
    drop: Sequence[str] = (),
    positive: str | None = None,
    missing: str = "error",
    cache: str | Path | None = None,
    on_progress: Progress | None = None,
    like: Table | None = None,
) -> Table:
    """Read a table (`read_table`) or a LETOR file (`read_letor`), whichever it is; the arguments are theirs.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "train.txt")
        ...     _ = path.write_text("2 qid:7 1:0.5 2:1.5\\n")
        ...     read_labelled(path).feature_names
        ('1', '2')
    """
    if not is_letor(path):
        return read_table(path, label=label, query=query, drop=drop, positive=positive, missing=missing, like=like)
    given = {"label": label != -1, "query": query is not None, "drop": bool(drop), "positive": positive is not None}
    if wrong := [name for name, is_given in given.items() if is_given]:
        raise ValueError(f"{wrong[0]}: expected nothing, as {path} is a LETOR file and has no named columns")
    # Files of one collection may never name its last features: those are 0 then.
    part = read_letor(path, cache=cache, on_progress=on_progress)
    if like is not None:
        part = same_width([part, like.part])[0]
    return Table(part, tuple(str(place + 1) for place in range(part.features.shape[1])), "grade")
