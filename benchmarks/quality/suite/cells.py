"""Results of single fits, kept in a CSV file as they come."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields
from pathlib import Path

__all__ = ["Cell", "Cells", "default_cache"]


@dataclass(frozen=True)
class Cell:
    """One contender on one cut of one data set."""

    data: str
    contender: str
    cut: int
    value: float
    cpu_seconds: float

    @property
    def key(self) -> tuple[str, str, int]:
        return self.data, self.contender, self.cut


class Cells:
    """The cells of a CSV file. A cell is on disk as soon as it is added, so an interrupted run resumes where it was.

    Args:
        path: the CSV file; need not exist.
        redo: contenders whose cells are dropped.
    """

    def __init__(self, path: Path, *, redo: frozenset[str] = frozenset()) -> None:
        self._path = path
        kept = [cell for cell in _read(path) if cell.contender not in redo]
        self._cells = {cell.key: cell for cell in kept}
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(field.name for field in fields(Cell))
            writer.writerows(astuple(cell) for cell in kept)

    def __contains__(self, key: tuple[str, str, int]) -> bool:
        return key in self._cells

    def __getitem__(self, key: tuple[str, str, int]) -> Cell:
        return self._cells[key]

    def add(self, cell: Cell) -> None:
        """Keep a cell, in memory and on disk."""
        self._cells[cell.key] = cell
        with self._path.open("a", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerow(astuple(cell))


def default_cache() -> Path:
    """Return the user's cache folder of this suite."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "rankwise" / "suite"


def _read(path: Path) -> Iterator[Cell]:
    if not path.exists():
        return
    with path.open(newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            yield Cell(
                line["data"], line["contender"], int(line["cut"]), float(line["value"]), float(line["cpu_seconds"])
            )
