"""Results of a training: history, progress, trained modules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

__all__ = ["Fitted", "History", "Step"]


@dataclass(frozen=True)
class Step:
    """Progress of one optimiser step, passed to callbacks: its number, loss, learning rate and rows of data used."""

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
        """One metric at each of `steps`."""
        return [values[metric] for values in self.metrics]


@dataclass(frozen=True)
class Fitted:
    """A trained model, its loss with its state, and the history."""

    model: nn.Module
    loss: nn.Module
    history: History
