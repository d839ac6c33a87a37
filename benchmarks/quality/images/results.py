"""Finished runs, in a CSV file that grows as they come; the values of single lists beside it, in a folder."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.quality.images.plan import Outcome, Row, Trial

__all__ = ["Results"]


class Results:
    """Outcomes by trial; every new one is written at once.

    Args:
        path: of the CSV file.
        lists: a folder for the values of single lists, which only the differences need.
        metrics: names of the figures besides "validation" and "seconds".
    """

    def __init__(self, path: Path, lists: Path, metrics: Iterable[str]) -> None:
        self.path, self.lists = path, lists
        self.names = ("validation", *metrics, "seconds")
        self._found: dict[Trial, Outcome] = {}
        if path.exists():
            with path.open(newline="") as file:
                for row in csv.DictReader(file):
                    trial = Trial(
                        row["name"], row["variant"], row["setting"], int(row["seed"]), int(row["steps"]), row["part"]
                    )
                    points = (point.split(":") for point in row["curve"].split())
                    self._found[trial] = Outcome(
                        {name: float(row[name]) for name in self.names if row[name]},
                        curve=tuple((int(step), float(value)) for step, value in points),
                    )

    def __contains__(self, trial: Trial) -> bool:
        return trial in self._found

    def __getitem__(self, trial: Trial) -> Outcome:
        return self._found[trial]

    def tried(self, name: str, variant: str) -> list[Trial]:
        """The runs to choose a setting from, the best on validation first."""
        trials = [t for t in self._found if (t.name, t.variant, t.part) == (name, variant, "validation")]
        return sorted(trials, key=lambda trial: -self._found[trial].figures["validation"])

    def final(self, row: Row, setting: str, steps: int) -> list[Trial]:
        """The runs of a row that were judged on the test part, by seed."""
        wanted = (row.name, row.variant, setting, steps, "test")
        trials = [t for t in self._found if (t.name, t.variant, t.setting, t.steps, t.part) == wanted]
        return sorted(trials, key=lambda trial: trial.seed)

    def per_list(self, trials: Iterable[Trial]) -> Tensor | None:
        """The mean over runs of the value of each list; None if a file is missing."""
        files = [self._file(trial) for trial in trials]
        if not files or not all(file.exists() for file in files):
            return None
        return torch.stack([torch.load(file, weights_only=True) for file in files]).mean(0)

    def add(self, trial: Trial, outcome: Outcome) -> None:
        self._found[trial] = outcome
        if outcome.lists is not None:
            self.lists.mkdir(parents=True, exist_ok=True)
            torch.save(outcome.lists, self._file(trial))
        figures = {name: f"{outcome.figures[name]:.6g}" for name in self.names if name in outcome.figures}
        curve = " ".join(f"{step}:{value:.4f}" for step, value in outcome.curve)
        new = not self.path.exists()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", newline="") as file:
            writer = csv.DictWriter(file, [*asdict(trial), *self.names, "curve"], lineterminator="\n")
            if new:
                writer.writeheader()
            writer.writerow({**asdict(trial), **figures, "curve": curve})

    def _file(self, trial: Trial) -> Path:
        words = (trial.name, trial.variant, trial.setting, str(trial.seed), str(trial.steps))
        return self.lists / ("-".join("".join(c for c in word if c.isalnum() or c == ".") for word in words) + ".pt")
