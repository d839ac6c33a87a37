"""Checkpoints: written whole or not at all, checked when read."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from rankwise.checks import check_count
from rankwise.files import write_whole

__all__ = ["Checkpoints", "Damaged", "read_checkpoint"]

_NAME = re.compile(r"step-(\d+)\.pt")


@dataclass(frozen=True)
class Damaged:
    """A checkpoint that cannot be used, and why."""

    path: Path
    reason: str


class Checkpoints:
    """The checkpoints of one run, in a folder: the last few, and the best.

    Every file is an ordinary `torch.save` file that loads with `weights_only=True`. It is written beside its final
    name, forced to the disk and then renamed: a file with the final name is complete whenever the power goes.

    Args:
        folder: made when the first checkpoint is saved.
        keep: how many of the last ones to keep; the best one is kept besides.

    Example:
        >>> import tempfile
        >>> store = Checkpoints(Path(tempfile.mkdtemp()), keep=2)
        >>> for step in (10, 20, 30):
        ...     store.save({"step": step}, step)
        >>> [path.name for path in store.paths()], store.newest()[0]
        (['step-00000030.pt', 'step-00000020.pt'], {'step': 30})
    """

    def __init__(self, folder: Path, *, keep: int = 3) -> None:
        check_count("keep", keep)
        self.folder = Path(folder)
        self.keep = keep

    @property
    def best(self) -> Path:
        """Return the path of the best checkpoint, or None."""
        return self.folder / "best.pt"

    def save(self, state: Mapping[str, Any], step: int, *, best: bool = False) -> None:
        """Write a checkpoint, as the best one too if it is; then drop those that are too many."""
        buffer = io.BytesIO()
        torch.save(dict(state), buffer)
        content = buffer.getbuffer()
        self.folder.mkdir(parents=True, exist_ok=True)
        if best:
            write_whole(self.best, content)
        write_whole(self.folder / f"step-{step:08d}.pt", content)
        for old in self.paths()[self.keep :]:
            old.unlink()

    def paths(self) -> list[Path]:
        """Return the checkpoints kept by number, newest first."""
        if not self.folder.is_dir():
            return []
        return sorted((path for path in self.folder.iterdir() if _NAME.fullmatch(path.name)), key=_step, reverse=True)

    def newest(self) -> tuple[dict[str, Any] | None, list[Damaged]]:
        """Return the newest good checkpoint, or None, and the damaged ones that are newer."""
        damaged: list[Damaged] = []
        for path in self.paths():
            try:
                return read_checkpoint(path), damaged
            except ValueError as problem:
                damaged.append(Damaged(path, str(problem)))
        return None, damaged


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint; a damaged file raises a ValueError that names the damage."""
    try:
        with zipfile.ZipFile(path) as archive:
            if any(part.compress_type != zipfile.ZIP_STORED for part in archive.infolist()):
                raise ValueError(f"{path}: expected parts that are not compressed, as torch.save writes them")
            wrong = archive.testzip()  # compares the checksum of every part
            if wrong is not None:
                raise ValueError(f"{path}: the checksum of {wrong!r} does not match, the file was changed or damaged")
        state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: no such file") from None
    except (zipfile.BadZipFile, UnicodeDecodeError, EOFError, RuntimeError, OSError, MemoryError) as problem:
        raise ValueError(f"{path}: not a complete checkpoint ({_first_line(problem)})") from problem
    except Exception as problem:
        # torch.load raises an error of pickle's for anything but tensors and plain values.
        if type(problem).__name__ != "UnpicklingError":
            raise
        raise ValueError(f"{path}: holds something other than tensors and plain values; refused") from problem
    if not isinstance(state, dict):
        raise ValueError(f"{path}: expected a checkpoint, got a {type(state).__name__}")
    return state


def _step(path: Path) -> int:
    match = _NAME.fullmatch(path.name)
    assert match is not None
    return int(match[1])


def _first_line(problem: BaseException) -> str:
    return (str(problem).splitlines() or [type(problem).__name__])[0]
