"""Checkpoints: written whole or not at all, checked when read."""

from __future__ import annotations

import io
import re
import shutil
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from rankwise.checks import check_count
from rankwise.files import write_whole
from rankwise.training.shards import check_shards, copy_shards, read_shards, shard_sizes, write_shards

__all__ = ["SHARDS", "Checkpoints", "Damaged", "read_checkpoint", "read_weights"]

SHARDS, FOLDER = "shards", ".shards"
_NAME = re.compile(r"step-(\d+)\.pt")


@dataclass(frozen=True)
class Damaged:
    """A checkpoint that cannot be used, and why."""

    path: Path
    reason: str


class Checkpoints:
    """The checkpoints of one run, in a folder: the last few, and the best.

    Every file is an ordinary `torch.save` file that loads with `weights_only=True`. It is written beside its final
    name, forced to the disk and then renamed: a file with the final name is complete whenever the power goes. State
    that is sharded over processes is in a folder beside the file, see `save_shards`.

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
        shards = state.get(SHARDS)
        self.folder.mkdir(parents=True, exist_ok=True)
        if best:
            name = f"best-{step:08d}{FOLDER}"
            if shards is not None:
                copy_shards(self.folder / shards["folder"], self.folder / name)
            write_whole(self.best, _content({**state, SHARDS: None if shards is None else {**shards, "folder": name}}))
        write_whole(self.folder / f"step-{step:08d}.pt", _content(state))
        for old in self.paths()[self.keep :]:
            old.unlink()
        self._drop_folders(best=step if best else None)

    def save_shards(
        self, tensors: Mapping[str, Tensor], step: int, group: dist.ProcessGroup | None = None
    ) -> dict[str, Any]:
        """Write the share of every process; every process must call it at the same time.

        Args:
            tensors, group: see `write_shards`.
            step: of the checkpoint they belong to.

        Returns:
            What `save` needs as `state["shards"]`: the name of the folder, and its files with size and checksum.
        """
        name = f"step-{step:08d}{FOLDER}"
        return {"folder": name, "files": write_shards(self.folder / name, tensors, group)}

    def _drop_folders(self, best: int | None) -> None:
        """Drop the folders of checkpoints that were dropped, and of the best one when there is a better one."""
        kept = {path.stem for path in self.paths()}
        for folder in self.folder.glob(f"*{FOLDER}"):
            name = folder.name.removesuffix(FOLDER)
            old_best = best is not None and name.startswith("best-") and name != f"best-{best:08d}"
            if old_best or (name.startswith("step-") and name not in kept):
                shutil.rmtree(folder, ignore_errors=True)

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
    if state.get(SHARDS) is not None:
        try:
            folder, files = path.parent / Path(state[SHARDS]["folder"]).name, dict(state[SHARDS]["files"])
            check_shards(folder, files)
        except (KeyError, TypeError, AttributeError):
            raise ValueError(f"{path}: expected the names of the files of all processes, got others") from None
        state[SHARDS] = {"folder": str(folder), "files": files}
    return state


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read the weights of the model from a checkpoint, whole, also where several processes wrote them."""
    state = read_checkpoint(path)
    weights: dict[str, Tensor] = dict(state["model"])
    if state.get(SHARDS) is not None:
        folder, prefix = Path(state[SHARDS]["folder"]), "model/"
        paths = [each for each in shard_sizes(folder) if each.startswith(prefix)]
        shares = read_shards(folder, lambda *_: None, paths)
        weights |= {each.removeprefix(prefix): value for each, value in shares.items()}
    return weights


def _content(state: Mapping[str, Any]) -> memoryview:
    buffer = io.BytesIO()
    torch.save({key: value for key, value in state.items() if key != SHARDS or value is not None}, buffer)
    return buffer.getbuffer()


def _step(path: Path) -> int:
    match = _NAME.fullmatch(path.name)
    assert match is not None
    return int(match[1])


def _first_line(problem: BaseException) -> str:
    return (str(problem).splitlines() or [type(problem).__name__])[0]
