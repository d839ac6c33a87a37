"""The protocol by which the training loop knows a problem."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader

from rankwise.data import Batch
from rankwise.metrics import Evaluation
from rankwise.training.options import (
    AverageOptions,
    Budget,
    CheckpointOptions,
    DeviceOptions,
    EvaluationOptions,
    GradientOptions,
    OptimiserOptions,
)

__all__ = ["Outputs", "Trainable"]

Outputs = Callable[..., Tensor]


class Trainable(Protocol):
    """Methods that `fit` calls on a problem. Every problem of `rankwise.problems` has them; so may a class of your own.

    A problem holds options only: neither data, nor weights, nor random state. The same one can train again with
    another seed, and nothing leaks from one training to the next.
    """

    @property
    def metric(self) -> str:
        """Return the metric by which choices are made; higher is better."""

    @property
    def optimiser(self) -> OptimiserOptions: ...
    @property
    def budget(self) -> Budget: ...
    @property
    def evaluation(self) -> EvaluationOptions: ...
    @property
    def checkpoints(self) -> CheckpointOptions: ...
    @property
    def gradient(self) -> GradientOptions: ...
    @property
    def average(self) -> AverageOptions | None: ...
    @property
    def device(self) -> DeviceOptions: ...

    def build_model(self, schema: Any) -> nn.Module:
        """Return a new model, initialised from torch's random state, from the sizes in the schema alone."""

    def fit_model(self, model: nn.Module, train: Any) -> None:
        """Fill the buffers of the model that are learned from the training part without gradients."""

    def build_loss(self, schema: Any, train: Any, *, steps: int) -> nn.Module:
        """Return a new loss for a training of so many steps."""

    def build_schedule(self, optimiser: Optimizer, steps: int) -> LRScheduler:
        """Return the learning-rate schedule of a training of so many steps."""

    def train_loader(self, train: Any, seed: int) -> DataLoader[Batch]:
        """Return the batches of the training part; `seed` decides their order."""

    def training_step(
        self, model: nn.Module, loss: nn.Module, batch: Batch, *, previous: Outputs | None = None
    ) -> Tensor:
        """Return the loss of one batch, a scalar with a gradient.

        `previous` gives the outputs of features under the weights before the last step, for a loss that takes them.
        """

    def evaluate(self, model: nn.Module, part: Any, *, bootstrap: int = 0) -> Evaluation:
        """Return the metrics on a part, with intervals if `bootstrap` (a number of replicates) is given."""

    def probe_batch(self, train: Any) -> Batch:
        """Return complete lists on which running estimates are compared with exact values."""
