"""The average of a model's weights along the training, which often generalises better than the last ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from rankwise.checks import check_count, check_share

__all__ = ["AverageWeights"]


class AverageWeights:
    """Averages the weights of a model, and its running statistics, over the steps of its training.

        average <- average + (weights - average) / min(n, 1 / (1 - decay)),   n the steps averaged so far,

    so without a decay it is the plain mean of all of them, and with one the moving average of about the last
    1 / (1 - decay) steps, without a bias towards the first. Whole numbers (batches counted) are taken as they are.

    Args:
        model: the model itself, not its wrapper for several processes or devices.
        decay: of the moving average, in (0, 1), such as .99; None takes the plain mean.
        after: steps that are not averaged.

    Example:
        >>> model = nn.Linear(1, 1, bias=False)
        >>> average = AverageWeights(model, after=1)
        >>> for value in (9.0, 1.0, 2.0):
        ...     _ = nn.init.constant_(model.weight, value)
        ...     average.update()
        >>> with average.applied():
        ...     model.weight.item()
        1.5
        >>> model.weight.item()
        2.0
    """

    def __init__(self, model: nn.Module, *, decay: float | None = None, after: int = 0) -> None:
        self.model = model
        self.decay = None if decay is None else check_share("decay", decay)
        self.after = check_count("after", after, least=0)
        self.step = 0
        self._mean: dict[str, Tensor] = {}

    @torch.no_grad()
    def update(self) -> None:
        """Take note of the weights after a step."""
        self.step += 1
        count = self.step - self.after
        if count < 1:
            return
        share = 1 / count if self.decay is None else max(1 / count, 1 - self.decay)
        for name, value in self.model.state_dict().items():
            if name in self._mean and value.is_floating_point():
                self._mean[name].lerp_(value, share)
            else:
                self._mean[name] = value.detach().clone()

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Inside, the model has the averaged weights, if there are any yet; afterwards its own again."""
        own = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
        self.apply()
        try:
            yield
        finally:
            self.model.load_state_dict(own)

    def apply(self) -> None:
        """Give the model the averaged weights for good, if there are any yet."""
        if self._mean:
            self.model.load_state_dict(self._mean)

    def state_dict(self) -> dict[str, Any]:
        """The average and how many steps were taken."""
        return {"step": self.step, "mean": dict(self._mean)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up where a saved training left off."""
        self.step = int(state["step"])
        self._mean = {name: value.detach().clone() for name, value in state["mean"].items()}
