"""What a training loop needs to know about a problem."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from torch import Tensor, nn
from torch.utils.data import DataLoader

from rankwise.data import Batch, Split
from rankwise.metrics import Evaluation

__all__ = ["Outputs", "ScoringTask", "Task"]

Outputs = Callable[..., Tensor]


class Task(Protocol):
    """A problem: data, model, loss, batches and metrics.

    It holds no weights and no random state: a loop asks it for a fresh model and loss, so the same task can be trained
    again, with another seed or another learning rate, and nothing leaks from one run to the next.
    """

    @property
    def features(self) -> int:
        """How many numbers a row has."""

    @property
    def metric(self) -> str:
        """The metric by which choices are made; higher is better."""

    def build_model(self) -> nn.Module:
        """A new model, initialised from torch's random state."""

    def build_loss(self) -> nn.Module:
        """A new loss; what it remembers, and weights of its own if it has any, start afresh."""

    def train_loader(self, seed: int) -> DataLoader[Batch]:
        """Batches; `seed` decides their order."""

    def training_step(
        self, model: nn.Module, loss: nn.Module, batch: Batch, *, previous: Outputs | None = None
    ) -> Tensor:
        """The loss of one batch, a scalar with a gradient.

        `previous` gives the outputs of features under the weights before the last step, for a loss that takes them.
        """

    def evaluate(self, model: nn.Module, part: str) -> dict[str, float]:
        """Metrics by name on the part "train", "validation" or "test"."""

    def judge(self, model: nn.Module, part: str, *, bootstrap: int = 0) -> Evaluation:
        """The same with per-query values, and intervals if `bootstrap` (a number of replicates) is given."""


@runtime_checkable
class ScoringTask(Protocol):
    """A task whose model gives every item a score."""

    @property
    def data(self) -> Split:
        """The three parts."""

    def predict(self, model: nn.Module, part: str) -> Tensor:
        """Scores (N,) of the rows of a part."""
