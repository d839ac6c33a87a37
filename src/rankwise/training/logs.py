"""Logs of a run: a CSV file, and TensorBoard if wanted. Both can be cut back to a step, to go on from a checkpoint."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from rankwise.files import write_whole
from rankwise.training.history import Step

__all__ = ["CSVLog", "Log", "TensorBoardLog"]


class Log(Protocol):
    """Takes what happens in a run."""

    def step(self, step: Step) -> None:
        """After every step."""

    def evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        """After every evaluation."""


class CSVLog:
    """A table with one row per `every` steps (the mean loss since the row before) and one per evaluation.

    Args:
        path: of the file.
        metrics: the columns after step, loss and learning_rate.
        losses: of the steps done before, if the run goes on: rows of later steps are dropped. None begins a new file.
        every: steps per row.
    """

    def __init__(
        self, path: Path, metrics: Sequence[str], *, losses: Sequence[float] | None = None, every: int = 10
    ) -> None:
        self._path, self._every = path, every
        self._columns = ["step", "loss", "learning_rate", *metrics]
        kept: list[dict[str, str]] = []
        self._losses: list[float] = []
        if losses is not None:
            kept = [row for row in _read(path) if int(row["step"]) <= len(losses)]
            self._losses = list(losses[len(losses) - len(losses) % every :])
        text = io.StringIO()
        writer = csv.DictWriter(text, self._columns, lineterminator="\n", extrasaction="ignore")
        writer.writeheader()
        writer.writerows(kept)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text.getvalue().encode())

    def step(self, step: Step) -> None:
        self._losses.append(step.loss)
        if step.number % self._every == 0:
            mean = sum(self._losses) / len(self._losses)
            self._add({"step": step.number, "loss": f"{mean:.6g}", "learning_rate": f"{step.learning_rate:.6g}"})
            self._losses = []

    def evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        self._add({"step": step, **{name: f"{value:.6f}" for name, value in metrics.items()}})

    def _add(self, row: dict[str, Any]) -> None:
        with open(self._path, "a", newline="", encoding="utf-8") as file:
            csv.DictWriter(file, self._columns, lineterminator="\n").writerow(row)


class TensorBoardLog:
    """Loss, learning rate and metrics as TensorBoard curves. Needs `pip install "rankwise[tensorboard]"`.

    Args:
        folder: of the event files.
        start: the step from which the run goes on.
    """

    def __init__(self, folder: Path, *, start: int = 0) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(str(folder), purge_step=start + 1 if start else None)

    def step(self, step: Step) -> None:
        self._writer.add_scalar("loss", step.loss, step.number)
        self._writer.add_scalar("learning_rate", step.learning_rate, step.number)

    def evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(f"validation/{name}", value, step)
        self._writer.flush()


def _read(path: Path) -> list[dict[str, str]]:
    if not path.is_file():
        return []
    with open(path, newline="", encoding="utf-8", errors="replace") as file:
        return [row for row in csv.DictReader(file) if (row.get("step") or "").isdigit()]
