"""The training loop, on Lightning Fabric."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LRScheduler

from rankwise.tasks import Task

__all__ = ["History", "Run", "adamw", "cosine", "fit"]

Parameters = Iterable[nn.Parameter]


@dataclass
class History:
    """What happened in a run.

    Attributes:
        losses: the loss of every step.
        steps: after which steps the model was evaluated; 0 is before the first.
        metrics: what was found then on the validation part, by name.
        seconds: time spent in training, evaluation not counted.
    """

    losses: list[float] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    metrics: list[dict[str, float]] = field(default_factory=list)
    seconds: float = 0.0

    def curve(self, metric: str) -> list[float]:
        """One metric at each of `steps`."""
        return [values[metric] for values in self.metrics]


@dataclass(frozen=True)
class Run:
    """A trained model, the loss with what it remembers, and the history."""

    model: nn.Module
    loss: nn.Module
    history: History


def fit(
    task: Task,
    *,
    steps: int,
    optimiser: Callable[[Parameters], Optimizer],
    schedule: Callable[[Optimizer, int], LRScheduler] | None = None,
    eval_every: int | None = None,
    seed: int = 0,
    on_step: Callable[[int, float], None] | None = None,
) -> Run:
    """Train a task for a fixed number of steps.

    On the CPU the result depends on the arguments only: the same seed gives the same weights, bit for bit. The random
    state of the caller is neither read nor changed.

    Args:
        task: see `Task`.
        steps: optimiser steps; the data are gone over as often as that takes.
        optimiser: makes the optimiser from the parameters, for example `adamw(1e-3)`.
        schedule: makes the learning rate schedule from the optimiser and `steps`, for example `cosine`; None keeps the
            rate.
        eval_every: evaluate on the validation part before the first step, after every so many steps and at the end;
            None never does.
        seed: decides the initial weights, the order of the data and everything else that is random.
        on_step: called after every step with its number and its loss.

    Returns:
        A `Run`.

    Example:
        >>> from rankwise.data import load_eights
        >>> from rankwise.tasks import TabularTask
        >>> task = TabularTask(load_eights(seed=0), loss="soprc", positives=8)
        >>> run = fit(task, steps=20, optimiser=adamw(3e-3), eval_every=10)
        >>> run.history.steps
        [0, 10, 20]
    """
    _check_at_least_one("steps", steps)
    if eval_every is not None:
        _check_at_least_one("eval_every", eval_every)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return _fit(task, steps, optimiser, schedule, eval_every, seed, on_step)


def adamw(learning_rate: float, *, weight_decay: float = 0.0) -> Callable[[Parameters], Optimizer]:
    """AdamW with a learning rate, waiting for the parameters."""
    return lambda parameters: AdamW(parameters, lr=learning_rate, weight_decay=weight_decay)


def cosine(optimiser: Optimizer, steps: int) -> LRScheduler:
    """From the full learning rate down to 0, along half a cosine."""
    return CosineAnnealingLR(optimiser, steps)


def _fit(
    task: Task,
    steps: int,
    optimiser: Callable[[Parameters], Optimizer],
    schedule: Callable[[Optimizer, int], LRScheduler] | None,
    eval_every: int | None,
    seed: int,
    on_step: Callable[[int, float], None] | None,
) -> Run:
    model, loss = task.build_model(), task.build_loss()
    plain_optimiser = optimiser([*model.parameters(), *loss.parameters()])
    plan = schedule(plain_optimiser, steps) if schedule is not None else None
    fabric = _make_fabric()
    wrapped, stepper = fabric.setup(model, plain_optimiser)
    # The samplers split batches over processes by themselves.
    loader = fabric.setup_dataloaders(task.train_loader(seed), use_distributed_sampler=False)
    loss.to(fabric.device)
    model.train()

    history = History()
    values: list[Tensor] = []
    if eval_every is not None:
        _evaluate(task, model, 0, history)
    started = time.perf_counter()
    for step, batch in zip(range(1, steps + 1), _endless(loader), strict=False):
        value = task.training_step(wrapped, loss, batch)
        stepper.zero_grad()
        fabric.backward(value)
        stepper.step()
        if plan is not None:
            plan.step()
        values.append(value.detach())
        if on_step is not None:
            on_step(step, float(values[-1]))
        if eval_every is not None and (step % eval_every == 0 or step == steps):
            history.seconds += time.perf_counter() - started
            _evaluate(task, model, step, history)
            started = time.perf_counter()
    history.seconds += time.perf_counter() - started
    history.losses = torch.stack(values).tolist()
    return Run(model, loss, history)


def _make_fabric() -> Fabric:
    with warnings.catch_warnings():
        # Advice about faster set-ups; a small run on the CPU is what is wanted here.
        warnings.simplefilter("ignore")
        return Fabric(accelerator="cpu", devices=1)


def _evaluate(task: Task, model: nn.Module, step: int, history: History) -> None:
    history.steps.append(step)
    history.metrics.append(task.evaluate(model, "validation"))


def _endless(loader: Any) -> Iterator[Any]:
    while True:
        empty = True
        for batch in loader:
            empty = False
            yield batch
        if empty:
            raise ValueError("train_loader: expected at least one batch, got none (fewer rows than a batch holds?)")


def _check_at_least_one(name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name}: expected a whole number of at least 1, got {value!r}")
