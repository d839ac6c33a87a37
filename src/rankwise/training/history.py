"""Results of a training: progress, history, logs, trained modules."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from rankwise.files import write_whole

__all__ = ["CSVLog", "Fitted", "History", "Log", "Step", "TensorBoardLog", "Watcher", "open_logs"]


@dataclass(frozen=True)
class Step:
    """Progress of one optimiser step, passed to callbacks: its number, loss, learning rate and rows of data used."""

    number: int
    loss: float
    learning_rate: float
    rows: int


@dataclass
class History:
    """Record of a training: losses, metrics and estimates by step.

    Attributes:
        losses: the loss of every step.
        steps: after which steps the model was evaluated; 0 is before the first.
        metrics: values on the validation part, by name.
        seconds: time spent in training, evaluation not counted.
        best_step: the evaluation that was best by the task's metric, the first of equals; None if there was none.
        stopped_early: whether the run ended because nothing improved any more.
        estimates: what the loss remembers against the truth, if that was checked: a `step` and the fields of an
            `EstimateCheck` for each check of each memory, single numbers for the last one only.
    """

    losses: list[float] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    metrics: list[dict[str, float]] = field(default_factory=list)
    seconds: float = 0.0
    best_step: int | None = None
    stopped_early: bool = False
    estimates: list[dict[str, Any]] = field(default_factory=list)

    def to_state(self) -> dict[str, Any]:
        """Return the history as a checkpoint holds it: tensors and plain values."""
        return {
            "losses": torch.tensor(self.losses),
            "steps": list(self.steps),
            "metrics": [dict(means) for means in self.metrics],
            "seconds": self.seconds,
            "best_step": self.best_step,
            "stopped_early": self.stopped_early,
            "estimates": [dict(check) for check in self.estimates],
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> History:
        """Return the history that a checkpoint holds."""
        return cls(**{**state, "losses": state["losses"].tolist()})

    def curve(self, metric: str) -> list[float]:
        """Return one metric at each of `steps`."""
        return [values[metric] for values in self.metrics]


@dataclass(frozen=True)
class Fitted:
    """A trained model, its loss with its state, and the history."""

    model: nn.Module
    loss: nn.Module
    history: History


class Log(Protocol):
    """Takes what happens in a run."""

    def step(self, step: Step) -> None:
        """Log a step; called after every step."""

    def evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        """Log metrics; called after every evaluation."""


class Watcher(Protocol):
    """Receives the progress of a training."""

    def reads(self, path: Path, share: float) -> None:
        """Show the share of a file that has been read."""

    def begins(self, seed: int, steps: int, done: int) -> None:
        """Start showing a training, with `done` of `steps` steps done before."""

    def step(self, step: Step) -> None:
        """Show a step of the training."""

    def evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        """Return the validation part was evaluated."""

    def says(self, text: str) -> None:
        """Show a message to the user."""


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


def open_logs(
    names: Sequence[str], folder: Path, metrics: Sequence[str], losses: Sequence[float] | None, *, prefix: str = ""
) -> list[Log]:
    """Return the logs with these names, "csv" and "tensorboard".

    Args:
        names: of the logs.
        folder: to write to.
        metrics: that will be logged.
        losses: of the steps done before, if the training goes on.
        prefix: of the names of the files.
    """
    logs: list[Log] = []
    if "csv" in names:
        logs.append(CSVLog(folder / f"{prefix}log.csv", metrics, losses=losses))
    if "tensorboard" in names:
        logs.append(TensorBoardLog(folder / f"{prefix}tensorboard", start=len(losses or ())))
    return logs


def _read(path: Path) -> list[dict[str, str]]:
    if not path.is_file():
        return []
    with open(path, newline="", encoding="utf-8", errors="replace") as file:
        return [row for row in csv.DictReader(file) if (row.get("step") or "").isdigit()]
