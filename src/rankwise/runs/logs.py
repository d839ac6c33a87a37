"""Who receives the progress of a training: a watcher, and the logs of the run's folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from rankwise.problems.problem import Problem
from rankwise.training import Step
from rankwise.training.history import CSVLog, Log, TensorBoardLog

__all__ = ["Watcher", "open_logs"]


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


def open_logs(problem: Problem[Any, Any], folder: Path, losses: list[float] | None, *, prefix: str = "") -> list[Log]:
    """Return the logs that a problem asks for.

    Args:
        problem: with `logs`.
        folder: of the run.
        losses: of the steps done before, if the training goes on.
        prefix: of the names of the files.
    """
    logs: list[Log] = []
    if "csv" in problem.logs:
        logs.append(CSVLog(folder / f"{prefix}log.csv", problem.measured, losses=losses))
    if "tensorboard" in problem.logs:
        logs.append(TensorBoardLog(folder / f"{prefix}tensorboard", start=len(losses or ())))
    return logs
