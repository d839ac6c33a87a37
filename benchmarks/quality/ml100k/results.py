"""Finished cells, in a CSV file that grows as they come."""

from __future__ import annotations

import csv
from dataclasses import asdict, fields
from pathlib import Path

from benchmarks.quality.ml100k.plan import Cell

__all__ = ["Results"]

_KEYS = ("seed", "k", "method")


class Results:
    """Cells by seed, k and method; every new one is written at once."""

    def __init__(self, path: Path, *, fresh: bool = False) -> None:
        self.path = path
        self._cells: dict[tuple[int, int, str], Cell] = {}
        if fresh:
            path.unlink(missing_ok=True)
        if path.exists():
            kinds = {f.name: {"int": int, "float": float}[str(f.type)] for f in fields(Cell)}
            with path.open(newline="") as file:
                for row in csv.DictReader(file):
                    cell = Cell(**{name: kind(row[name]) for name, kind in kinds.items()})
                    self._cells[int(row["seed"]), int(row["k"]), row["method"]] = cell

    def has(self, seed: int, k: int, method: str) -> bool:
        return (seed, k, method) in self._cells

    def get(self, seed: int, k: int, method: str) -> Cell:
        return self._cells[seed, k, method]

    def add(self, seed: int, k: int, method: str, cell: Cell) -> None:
        self._cells[seed, k, method] = cell
        new = not self.path.exists()
        with self.path.open("a", newline="") as file:
            writer = csv.DictWriter(file, [*_KEYS, *(f.name for f in fields(Cell))], lineterminator="\n")
            if new:
                writer.writeheader()
            numbers = {name: f"{x:.6g}" if isinstance(x, float) else x for name, x in asdict(cell).items()}
            writer.writerow({"seed": seed, "k": k, "method": method, **numbers})
