"""A process that trains in a folder."""

from __future__ import annotations

from pathlib import Path

from rankwise.runs import RunFolder


def lock_folder(path: Path) -> int:
    """Lock the folder of a run, as a training does."""
    with RunFolder(path).locked():
        return 0
