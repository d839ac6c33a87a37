"""The mean of the weights over the later steps of a training, in the place of the last weights."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.optim import Optimizer

from rankwise.training.optimisers import Parameters

__all__ = ["Averaging"]


class Averaging:
    """Makes the optimiser and watches it.

    Args:
        optimiser: makes the optimiser from the parameters.
        after: steps to let pass first.

    Example:
        >>> weight = torch.nn.Parameter(torch.zeros(()))
        >>> averaging = Averaging(lambda weights: torch.optim.SGD(weights, lr=1.0), after=1)
        >>> sgd = averaging([weight])
        >>> for _ in range(3):
        ...     weight.grad = torch.tensor(-1.0)
        ...     sgd.step()
        >>> averaging.finish()
        >>> weight.item()  # the mean of 2 and 3
        2.5
    """

    def __init__(self, optimiser: Callable[[Parameters], Optimizer], *, after: int) -> None:
        self.optimiser, self.after, self.steps = optimiser, after, 0
        self.weights: list[Tensor] = []
        self.means: list[Tensor] = []

    def __call__(self, parameters: Parameters) -> Optimizer:
        made = self.optimiser(parameters)
        self.weights = [weight for group in made.param_groups for weight in group["params"]]
        made.register_step_post_hook(self._look)
        return made

    @torch.no_grad()
    def _look(self, optimiser: Optimizer, given: object, named: object) -> None:
        self.steps += 1
        counted = self.steps - self.after
        if counted == 1:
            self.means = [weight.detach().clone() for weight in self.weights]
        elif counted > 1:
            for mean, weight in zip(self.means, self.weights, strict=True):
                mean.lerp_(weight, 1 / counted)

    @torch.no_grad()
    def finish(self) -> None:
        """Give the weights their means, if there were enough steps."""
        for mean, weight in zip(self.means, self.weights if self.means else [], strict=True):
            weight.copy_(mean)
