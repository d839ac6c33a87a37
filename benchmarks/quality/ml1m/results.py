"""Finished cells, in a CSV file that grows as they come; the values of single users beside it, in a folder."""

from __future__ import annotations

import csv
from dataclasses import asdict, fields
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.quality.ml1m.plan import Cell, Key

__all__ = ["Results"]


class Results:
    """Cells by key; every new one is written at once.

    Args:
        path: of the CSV file.
        users: a folder for the values of single users, which only the tests of differences need.
        fresh: forget what is there.
    """

    def __init__(self, path: Path, users: Path, *, fresh: bool = False) -> None:
        self.path, self.users = path, users
        self._cells: dict[Key, Cell] = {}
        if fresh:
            path.unlink(missing_ok=True)
        if path.exists():
            with path.open(newline="") as file:
                for row in csv.DictReader(file):
                    key = Key(row["scorer"], row["method"], float(row["setting"]), int(row["seed"]))
                    self._cells[key] = Cell(**{f.name: float(row[f.name]) for f in fields(Cell)})

    def __contains__(self, key: Key) -> bool:
        return key in self._cells

    def __getitem__(self, key: Key) -> Cell:
        return self._cells[key]

    def chosen(self, scorer: str, method: str, seed: int) -> Key | None:
        """The setting that did best on validation, among those that are there."""
        keys = [k for k in self._cells if (k.scorer, k.method, k.seed) == (scorer, method, seed)]
        return max(keys, key=lambda k: self._cells[k].validation, default=None)

    def per_user(self, keys: list[Key]) -> Tensor | None:
        """The mean over cells of each user's value; None if a file is missing."""
        files = [self._file(key) for key in keys]
        if not files or not all(file.exists() for file in files):
            return None
        return torch.stack([torch.load(file, weights_only=True) for file in files]).mean(0)

    def add(self, key: Key, cell: Cell, users: Tensor) -> None:
        self._cells[key] = cell
        self.users.mkdir(parents=True, exist_ok=True)
        torch.save(users, self._file(key))
        new = not self.path.exists()
        row = {**asdict(key), **{name: f"{value:.6g}" for name, value in asdict(cell).items()}}
        with self.path.open("a", newline="") as file:
            writer = csv.DictWriter(file, list(row), lineterminator="\n")
            if new:
                writer.writeheader()
            writer.writerow(row)

    def _file(self, key: Key) -> Path:
        name = f"{key.scorer}-{key.method}-{key.setting:g}-{key.seed}".replace(" ", "-").replace(",", "")
        return self.users / f"{name}.pt"
