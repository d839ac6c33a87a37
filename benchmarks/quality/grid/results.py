"""Finished runs, in a CSV file that grows as they come; the values of single lists beside it, in a folder."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.quality.grid.plan import Figures, Key

__all__ = ["Results"]


class Results:
    """Figures by key; every new run is written at once.

    Args:
        path: of the CSV file.
        lists: a folder for the values of single lists, which only the tests of differences need.
        metrics: their names.
        fresh: forget what is there.
    """

    def __init__(self, path: Path, lists: Path, metrics: Sequence[str], *, fresh: bool = False) -> None:
        self.path, self.lists = path, lists
        self.names = ("validation", "train", *metrics, "seconds")
        self._figures: dict[Key, Figures] = {}
        if fresh:
            path.unlink(missing_ok=True)
        if path.exists():
            with path.open(newline="") as file:
                for row in csv.DictReader(file):
                    key = Key(
                        row.pop("scorer"),
                        row.pop("method"),
                        float(row.pop("rate")),
                        float(row.pop("decay")),
                        int(row.pop("seed")),
                        row.pop("fitted"),
                    )
                    self._figures[key] = {name: float(value) for name, value in row.items() if value}

    def __contains__(self, key: Key) -> bool:
        return key in self._figures

    def __getitem__(self, key: Key) -> Figures:
        return self._figures[key]

    def tried(self, scorer: str, method: str) -> list[Key]:
        """The runs to choose a setting from, the best on validation first."""
        keys = [key for key in self._figures if (key.scorer, key.method, key.fitted) == (scorer, method, "train")]
        return sorted(keys, key=lambda key: -self._figures[key]["validation"])

    def final(self, chosen: Key, seeds: Sequence[int]) -> list[Key]:
        """The runs with the chosen setting that were judged on the test part."""
        keys = [replace(chosen, seed=seed, fitted="all") for seed in seeds]
        return [key for key in keys if key in self._figures]

    def per_list(self, keys: Sequence[Key]) -> Tensor | None:
        """The mean over runs of each list's value; None if a file is missing."""
        files = [self._file(key) for key in keys]
        if not files or not all(file.exists() for file in files):
            return None
        return torch.stack([torch.load(file, weights_only=True) for file in files]).mean(0)

    def add(self, key: Key, figures: Figures, lists: Tensor | None) -> None:
        self._figures[key] = figures
        if lists is not None:
            self.lists.mkdir(parents=True, exist_ok=True)
            torch.save(lists, self._file(key))
        new = not self.path.exists()
        row = {**asdict(key), **{name: f"{figures[name]:.6g}" for name in self.names if name in figures}}
        with self.path.open("a", newline="") as file:
            writer = csv.DictWriter(file, [*asdict(key), *self.names], lineterminator="\n")
            if new:
                writer.writeheader()
            writer.writerow(row)

    def _file(self, key: Key) -> Path:
        name = f"{key.scorer}-{key.method}-{key.rate:g}-{key.decay:g}-{key.seed}"
        return self.lists / f"{name.replace(' ', '-').replace(',', '')}.pt"
