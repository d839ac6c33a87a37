"""What the losses remember: tables of one row per id, in memory and on disk."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.speed.contest import Contender, Group, Mark, Row
from rankwise.estimators import IdTable

__all__ = ["STATE"]

_MILLION = 1_000_000
_BATCH = 50_000
# What a loss keeps: numbers per id, columns of the id, and what a million of them may take in MiB.
_KEPT = (
    ("SOPRC, 100 quantiles per group", 100, 1, 1200.0),
    ("stable AP, one mean per group", 1, 1, 200.0),
    ("SONG, one average per (query, item) pair", 1, 2, 200.0),
)


@dataclass(frozen=True)
class _Ids:
    ids: Tensor
    width: int

    @property
    def columns(self) -> int:
        return 1 if self.ids.ndim == 1 else self.ids.shape[1]

    def table(self) -> IdTable:
        table = IdTable(self.width, self.columns)
        for some in self.ids.split(_BATCH):
            table.update(some, torch.zeros(len(some), self.width), update_rate=0.1)
        return table


def _make(size: int, width: int, columns: int) -> _Ids:
    ids = torch.randperm(size, generator=torch.Generator().manual_seed(0))
    return _Ids(ids if columns == 1 else torch.stack([ids % 1000, ids], 1), width)


def _bare(ids: _Ids) -> dict[str, Tensor]:
    """The numbers themselves, nothing else."""
    return {"ids": ids.ids, "rows": torch.zeros(len(ids.ids), ids.width)}


def _file() -> Path:
    folder = tempfile.TemporaryDirectory()
    path = Path(folder.name) / "state.pt"
    _FOLDERS.append(folder)
    return path


# Kept until the process ends, then removed by themselves.
_FOLDERS: list[tempfile.TemporaryDirectory[str]] = []


def _filling(name: str, width: int, columns: int, mib: float) -> Row:
    return Row(
        name=f"fill, {_MILLION:,} ids: {name}",
        make=lambda: _make(_MILLION, width, columns),
        small=lambda: _make(1000, width, columns),
        contenders=(
            Contender("rankwise IdTable", lambda ids: ids.table, role="ours"),
            Contender("copying the bare numbers", lambda ids: lambda: _copied(_bare(ids)), role="limit"),
        ),
        mark=Mark(peak_mib=mib),
    )


def _copied(bare: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: values.clone() for name, values in bare.items()}


def _save(ids: _Ids) -> Callable[[], object]:
    table, path = ids.table(), _file()
    return lambda: torch.save(table.state_dict(), path)


def _save_bare(ids: _Ids) -> Callable[[], object]:
    bare, path = _bare(ids), _file()
    return lambda: torch.save(bare, path)


def _load(first_batch: bool) -> Callable[[_Ids], Callable[[], object]]:
    def prepare(ids: _Ids) -> Callable[[], object]:
        path = _file()
        torch.save(ids.table().state_dict(), path)

        def call() -> object:
            table = IdTable(ids.width, ids.columns)
            table.load_state_dict(torch.load(path))
            return table.read(ids.ids[:_BATCH]) if first_batch else table

        return call

    return prepare


def _load_bare(ids: _Ids) -> Callable[[], object]:
    path = _file()
    torch.save(_bare(ids), path)
    return lambda: torch.load(path)


def _on_disk(name: str, ours: Callable[[_Ids], Callable[[], object]], limit: Contender, mark: Mark) -> Row:
    return Row(
        name=f"{name}, {10 * _MILLION:,} ids: stable AP",
        make=lambda: _make(10 * _MILLION, 1, 1),
        small=lambda: _make(1000, 1, 1),
        contenders=(Contender("rankwise IdTable", ours, role="ours", slow=True), limit),
        mark=mark,
    )


STATE = Group(
    key="state",
    title="What losses remember",
    problem="what",
    about=(
        "Tables of one row per id, filled by batches of 50,000 new ids. The limit is the same numbers without a table: "
        "copied, saved by torch.save, loaded by torch.load. The index over the ids is built when it is first asked."
    ),
    rows=(
        *(_filling(*kept) for kept in _KEPT),
        _on_disk("save", _save, Contender("torch.save", _save_bare, role="limit", slow=True), Mark(times_limit=2)),
        _on_disk(
            "load", _load(False), Contender("torch.load", _load_bare, role="limit", slow=True), Mark(times_limit=3)
        ),
        _on_disk(
            "load and read a batch",
            _load(True),
            Contender("torch.load", _load_bare, role="limit", slow=True),
            Mark(ms=10_000),
        ),
    ),
)
