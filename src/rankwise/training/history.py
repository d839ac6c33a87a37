"""What a run leaves behind."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import nn

__all__ = ["History", "Run", "Step"]


@dataclass(frozen=True)
class Step:
    """One step, for whoever watches: its number, loss, learning rate, and how many rows of data it used."""

    number: int
    loss: float
    learning_rate: float
    rows: int


@dataclass
class History:
    """What happened in a run.

    Attributes:
        losses: the loss of every step.
        steps: after which steps the model was evaluated; 0 is before the first.
        metrics: what was found then on the validation part, by name.
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

    def curve(self, metric: str) -> list[float]:
        """One metric at each of `steps`."""
        return [values[metric] for values in self.metrics]


@dataclass(frozen=True)
class Run:
    """A trained model, the loss with what it remembers, and the history."""

    model: nn.Module
    loss: nn.Module
    history: History
