"""Optimisers and learning rate schedules, waiting for the parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from torch import nn
from torch.optim import SGD, AdamW, Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LRScheduler

__all__ = ["Parameters", "Schedule", "adamw", "constant", "cosine", "sgd", "steps_down", "warmed_up"]

Parameters = Iterable[nn.Parameter]
Schedule = Callable[[Optimizer, int], LRScheduler]


def adamw(
    learning_rate: float, *, weight_decay: float = 0.0, betas: tuple[float, float] = (0.9, 0.999)
) -> Callable[[Parameters], Optimizer]:
    """AdamW with a learning rate."""
    return lambda parameters: AdamW(parameters, lr=learning_rate, weight_decay=weight_decay, betas=betas)


def sgd(
    learning_rate: float, *, momentum: float = 0.9, nesterov: bool = False, weight_decay: float = 0.0
) -> Callable[[Parameters], Optimizer]:
    """Stochastic gradient descent with momentum."""
    return lambda parameters: SGD(
        parameters, lr=learning_rate, momentum=momentum, nesterov=nesterov, weight_decay=weight_decay
    )


def cosine(optimiser: Optimizer, steps: int) -> LRScheduler:
    """From the full learning rate down to 0, along half a cosine."""
    return CosineAnnealingLR(optimiser, steps)


def constant(optimiser: Optimizer, steps: int) -> LRScheduler:
    """The same learning rate throughout."""
    return LambdaLR(optimiser, lambda step: 1.0)


def steps_down(at: Sequence[float], factor: float) -> Schedule:
    """The rate times `factor` at each of these shares of the run, for example `steps_down([0.5, 0.75], 0.1)`."""

    def schedule(optimiser: Optimizer, steps: int) -> LRScheduler:
        return LambdaLR(optimiser, lambda step: factor ** sum(step >= share * steps for share in at))

    return schedule


def warmed_up(warmup: int) -> Schedule:
    """Up from 0 in a straight line over `warmup` steps, then down to 0 along half a cosine."""

    def rate(step: int, steps: int) -> float:
        if step < warmup:
            return (step + 1) / (warmup + 1)
        return (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup))) / 2

    return lambda optimiser, steps: LambdaLR(optimiser, lambda step: rate(step, steps))
