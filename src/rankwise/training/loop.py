"""The training loop, on Lightning Fabric."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from rankwise.checks import check_count
from rankwise.data import Batch
from rankwise.models.chunks import InChunks
from rankwise.samplers import SeededBatchSampler
from rankwise.tasks import Task
from rankwise.training.averaging import Averaging
from rankwise.training.checkpoints import Checkpoints, read_checkpoint
from rankwise.training.devices import Place, make_fabric
from rankwise.training.estimates import check_estimates
from rankwise.training.history import History, Run, Step
from rankwise.training.interrupts import Interrupted, Interrupts
from rankwise.training.optimisers import Parameters, Schedule
from rankwise.training.previous import PreviousWeights
from rankwise.training.random_state import RandomState

__all__ = ["fit"]


def fit(
    task: Task,
    *,
    steps: int,
    optimiser: Callable[[Parameters], Optimizer],
    schedule: Schedule | None = None,
    eval_every: int | None = None,
    patience: int | None = None,
    take_best: bool = False,
    clip_norm: float | None = None,
    accumulate: int = 1,
    rows_at_once: int | None = None,
    previous_weights: bool = False,
    average: Averaging | None = None,
    seed: int = 0,
    place: Place | None = None,
    fabric: Fabric | None = None,
    checkpoints: Checkpoints | None = None,
    save_every: int | None = None,
    start: Mapping[str, Any] | None = None,
    notes: Mapping[str, Any] | None = None,
    check_memory: bool = False,
    on_step: Callable[[Step], None] | None = None,
    on_evaluation: Callable[[int, dict[str, float]], None] | None = None,
) -> Run:
    """Train a task for a number of steps.

    On one machine, with the same versions and as many threads, the result depends on the arguments only: the same seed
    gives the same weights, bit for bit, also when the run was stopped and taken up again from a checkpoint. Another
    CPU rounds otherwise, and training makes more of that. The random state of the caller is neither read nor changed.

    Args:
        task: see `Task`.
        steps: optimiser steps; the data are gone over as often as that takes.
        optimiser: makes the optimiser from the parameters, for example `adamw(1e-3)`.
        schedule: makes the learning rate schedule from the optimiser and `steps`, for example `cosine`; None keeps the
            rate.
        eval_every: evaluate on the validation part before the first step, after every so many steps and at the end;
            None never does.
        patience: stop after so many evaluations without a better value of the task's metric.
        take_best: give back the weights of the best evaluation instead of the last weights.
        clip_norm: the largest norm of the gradient; longer ones are shortened to it.
        accumulate: batches per step, their gradients averaged. For a loss over pairs or lists that is not the gradient
            of one larger batch (a warning says so); `rows_at_once` gives that.
        rows_at_once: how many rows of a batch the model takes at a time, for batches larger than memory.
        previous_weights: give the loss the outputs of each batch under the weights before the last step, too, at the
            cost of one more forward pass; for losses with a variance-reduced memory (stable AP).
        average: makes the average of the weights along the training from the model and the steps, for example
            `averaged(after=0.5)`; evaluations and the model given back then have the averaged weights.
        seed: decides the initial weights, the order of the data and everything else that is random.
        place: device, number of processes and precision; one process on the CPU by default.
        fabric: a started Fabric (`make_fabric`) to be used instead of making one from `place`.
        checkpoints: where to save; Ctrl-C then saves, too, before it ends the run with `Interrupted`.
        save_every: save after every so many steps; None saves at evaluations. The end is always saved.
        start: a checkpoint to go on from, made by the same call with the same arguments.
        notes: plain values to be kept in every checkpoint under "notes".
        check_memory: at every evaluation, also compare what the loss remembers with the truth on some training data
            (see `check_estimates`); nothing changes by it.
        on_step: called after every step.
        on_evaluation: called after every evaluation with the step and the metrics.

    Returns:
        A `Run`.

    Example:
        >>> from rankwise.data import load_eights
        >>> from rankwise.tasks import TabularTask
        >>> from rankwise.training import adamw
        >>> task = TabularTask(load_eights(seed=0), loss="soprc", positives=8)
        >>> run = fit(task, steps=20, optimiser=adamw(3e-3), eval_every=10)
        >>> run.history.steps
        [0, 10, 20]
    """
    for name, value in (
        ("steps", steps),
        ("eval_every", eval_every),
        ("patience", patience),
        ("accumulate", accumulate),
        ("save_every", save_every),
    ):
        if value is not None:
            check_count(name, value)
    if eval_every is None and (patience is not None or take_best):
        raise ValueError("eval_every: expected a number of steps with patience or take_best, got None")
    if start is not None and take_best and checkpoints is None:
        raise ValueError("checkpoints: expected where the best weights of before `start` are, with take_best, got None")
    fabric = fabric or make_fabric(place or Place())
    with RandomState.kept(fabric.device):
        training = _Training(
            task, steps, optimiser, schedule, accumulate, rows_at_once, previous_weights, average, seed, fabric
        )
        if checkpoints is not None or start is not None:
            training.check_resumable()
        if start is not None:
            training.load(start)
        with Interrupts(watch=checkpoints is not None) as interrupts:
            for _ in training.run(clip_norm, on_step):
                evaluated = improved = False
                if eval_every is not None and training.due(eval_every):
                    evaluated = True
                    if check_memory:
                        training.check_memory()
                    improved = training.evaluate(on_evaluation, keep=take_best and checkpoints is None)
                    training.check_patience(patience)
                stopped = interrupts.seen(fabric)
                due = training.done or stopped or (training.due(save_every) if save_every else evaluated)
                if checkpoints is not None and (due or improved):
                    _save(training, checkpoints, fabric, best=improved, notes=notes)
                if stopped and not training.done:
                    raise Interrupted(training.step)
        training.finish(checkpoints.best if checkpoints is not None else None, take_best=take_best)
        return Run(training.model, training.loss, training.history)


class _Training:
    """A run in progress: everything that changes from step to step, and how to save and load it."""

    def __init__(
        self,
        task: Task,
        steps: int,
        optimiser: Callable[[Parameters], Optimizer],
        schedule: Schedule | None,
        accumulate: int,
        rows_at_once: int | None,
        previous_weights: bool,
        average: Averaging | None,
        seed: int,
        fabric: Fabric,
    ) -> None:
        self.task, self.steps, self.accumulate, self.fabric = task, steps, accumulate, fabric
        torch.manual_seed(seed)
        self.model, self.loss = task.build_model(), task.build_loss()
        if accumulate > 1 and not getattr(self.loss, "itemwise", False):
            warnings.warn(
                f"accumulate: {accumulate} batches of {type(self.loss).__name__} are not one batch {accumulate} times "
                "as large, because items are compared within a batch only; rows_at_once gives a larger batch in the "
                "same memory",
                stacklevel=3,
            )
        self.optimiser = optimiser([*self.model.parameters(), *self.loss.parameters()])
        self.schedule = None if schedule is None else schedule(self.optimiser, steps)
        chunked = self.model if rows_at_once is None else InChunks(self.model, rows_at_once)
        self.previous = PreviousWeights(self.model, self.optimiser) if previous_weights else None
        self.average = None if average is None else average(self.model, steps)
        joint = _Joint(task, chunked, self.loss, self.previous)
        # Every process computes the state of the loss from the joined batch: nothing to send around.
        names = [name for name, _ in joint.named_buffers() if name.startswith("loss.")]
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(joint, names)
        self.wrapped, self.stepper = fabric.setup(joint, self.optimiser)
        loader = task.train_loader(seed)
        self.sampler = loader.batch_sampler if isinstance(loader.batch_sampler, SeededBatchSampler) else None
        # The samplers split batches over processes by themselves.
        self.loader: Any = fabric.setup_dataloaders(loader, use_distributed_sampler=False)
        self.random = RandomState(fabric, seed)
        self.step, self.epoch, self.used = 0, 0, 0
        self.losses: list[Tensor] = []
        self.history = History()
        self._best: dict[str, Tensor] | None = None
        self._fresh = True
        self._started = time.perf_counter()

    @property
    def done(self) -> bool:
        return self.step >= self.steps or self.history.stopped_early

    def due(self, every: int) -> bool:
        return self.step % every == 0 or self.step == self.steps

    def run(self, clip_norm: float | None, on_step: Callable[[Step], None] | None) -> Iterator[None]:
        """Step by step; yields before the first step of a fresh run and after every step."""
        self.wrapped.train()
        if self._fresh:
            yield
        batches = self._batches()
        while not self.done:
            self._started = time.perf_counter()
            value, rows = self._step(batches, clip_norm)
            self.losses.append(value)
            self.step += 1
            self.history.seconds += time.perf_counter() - self._started
            if on_step is not None:
                rate = self.optimiser.param_groups[0]["lr"]
                on_step(Step(self.step, _check_finite(value.item(), self.step), rate, rows))
            if self.schedule is not None:
                self.schedule.step()
            yield

    def evaluate(self, on_evaluation: Callable[[int, dict[str, float]], None] | None, *, keep: bool) -> bool:
        """Evaluate on the validation part; whether it is the best so far."""
        with self._judged():
            found = self.fabric.broadcast(self.task.evaluate(self.model, "validation"))
        curve = self.history.curve(self.task.metric)
        self.history.steps.append(self.step)
        self.history.metrics.append(found)
        improved = not curve or found[self.task.metric] > max(curve)
        if improved:
            self.history.best_step = self.step
            if keep:
                self._best = self._judged_weights()
        if on_evaluation is not None:
            on_evaluation(self.step, found)
        return improved

    def check_memory(self) -> None:
        """Note how far what the loss remembers is from the truth; single numbers are kept of the last check only."""
        checks = [{"step": self.step, **check.plain()} for check in check_estimates(self.task, self.model, self.loss)]
        before = [{**check, "remembered": [], "true": []} for check in self.history.estimates]
        self.history.estimates = [*before, *checks]

    def check_patience(self, patience: int | None) -> None:
        if patience is not None and self.history.best_step is not None:
            since = sum(step > self.history.best_step for step in self.history.steps)
            self.history.stopped_early = since >= patience and self.step < self.steps

    def finish(self, best: Any, *, take_best: bool) -> None:
        self.history.losses = torch.stack(self.losses).tolist()
        if self.average is not None:
            self.average.apply()
        if take_best:
            weights = self._best if best is None else read_checkpoint(best)["model"]
            if weights is not None:
                self.model.load_state_dict(weights)

    def check_resumable(self) -> None:
        if self.sampler is None:
            raise TypeError(
                "train_loader: expected a loader with a batch sampler of rankwise.samplers, which knows where it "
                "stands, to save checkpoints, got another"
            )

    def save(self) -> dict[str, Any]:
        """Everything needed to go on, as tensors and plain values; in every process at the same time."""
        assert self.sampler is not None
        over = self.used == len(self.sampler)
        epoch, used = (self.epoch + 1, 0) if over else (self.epoch, self.used)
        history = self.history
        return {
            "step": self.step,
            "model": self._judged_weights(),
            "in_training": None if self.average is None else self.model.state_dict(),
            "average": None if self.average is None else self.average.state_dict(),
            "loss": self.loss.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "schedule": None if self.schedule is None else self.schedule.state_dict(),
            "previous": None if self.previous is None else self.previous.state_dict(),
            "precision": self.fabric.strategy.precision.state_dict(),
            "sampler": {**self.sampler.state_dict(batch=used), "epoch": epoch},
            "random": self.random.save(),
            "history": {
                "losses": torch.stack(self.losses).cpu() if self.losses else torch.zeros(0),
                "steps": list(history.steps),
                "metrics": [dict(found) for found in history.metrics],
                "seconds": history.seconds,
                "best_step": history.best_step,
                "stopped_early": history.stopped_early,
                "estimates": [dict(check) for check in history.estimates],
            },
        }

    def load(self, state: Mapping[str, Any]) -> None:
        assert self.sampler is not None
        try:
            self.model.load_state_dict(state["model"] if self.average is None else state["in_training"])
            if self.average is not None:
                self.average.load_state_dict(state["average"])
            with warnings.catch_warnings():
                if state["step"] == 0:  # a loss that has seen nothing is as it should be
                    warnings.simplefilter("ignore")
                self.loss.load_state_dict(state["loss"])
            self.optimiser.load_state_dict(state["optimiser"])
            if self.schedule is not None:
                self.schedule.load_state_dict(state["schedule"])
            if self.previous is not None:
                self.previous.load_state_dict(state["previous"])
            self.fabric.strategy.precision.load_state_dict(state["precision"])
            self.sampler.load_state_dict(state["sampler"])
        except (KeyError, RuntimeError, TypeError, AttributeError) as problem:
            said = " ".join(str(problem).split())
            raise ValueError(
                f"start: expected a checkpoint of this task, model and loss, got another ({said})"
            ) from None
        self.step, self.epoch, self.used = state["step"], state["sampler"]["epoch"], state["sampler"]["batch"]
        past = dict(state["history"])
        self.losses = list(past.pop("losses").to(self.fabric.device))
        self.history = History(**past)
        self.random.load(state["random"], self.step)
        self._fresh = False

    def _step(self, batches: Iterator[Batch], clip_norm: float | None) -> tuple[Tensor, int]:
        self.stepper.zero_grad()
        total, rows = torch.zeros((), device=self.fabric.device), 0
        for number in range(1, self.accumulate + 1):
            batch = next(batches)
            rows += len(batch.labels)
            with self.fabric.no_backward_sync(self.wrapped, enabled=number < self.accumulate):
                value = self.wrapped(batch) / self.accumulate
                self.fabric.backward(value)
            total = total + value.detach()
        self._check_gradient()
        if clip_norm is not None:
            self.fabric.clip_gradients(self.wrapped, self.stepper, max_norm=clip_norm, error_if_nonfinite=False)
        self.stepper.step()
        if self.average is not None:
            self.average.update()
        return total, rows * self.fabric.world_size

    def _check_gradient(self) -> None:
        """Refuse a gradient that would spoil the weights, before it does, and before a checkpoint could hold them."""
        if getattr(self.fabric.strategy.precision, "scaler", None) is not None:
            return  # a scaler leaves such steps out by itself
        gradients = [p.grad for group in self.optimiser.param_groups for p in group["params"] if p.grad is not None]
        if not gradients or bool(torch.stack(torch._foreach_norm(gradients)).isfinite().all()):
            return
        wrong, numbers = sum(int((~each.isfinite()).sum()) for each in gradients), sum(map(Tensor.numel, gradients))
        if wrong:  # finite numbers may have a norm beyond the largest number
            raise ValueError(
                f"gradient: expected finite numbers, got {wrong} NaN or infinite of {numbers} in step {self.step + 1}; "
                "the weights are as before it; try a lower learning rate"
            )

    def _judged(self) -> AbstractContextManager[None]:
        """Inside, the model has the weights that are judged and given back."""
        return nullcontext() if self.average is None else self.average.applied()

    def _judged_weights(self) -> dict[str, Tensor]:
        with self._judged():
            return {name: value.detach().clone() for name, value in self.model.state_dict().items()}

    def _batches(self) -> Iterator[Batch]:
        while True:
            if self.sampler is not None:
                self.sampler.set_epoch(self.epoch)
            before = self.used
            for batch in self.loader:
                self.used += 1
                yield batch
            if self.used == before:
                raise ValueError("train_loader: expected at least one batch, got none (fewer rows than a batch holds?)")
            self.epoch, self.used = self.epoch + 1, 0


class _Joint(nn.Module):
    """Model and loss as one module, so that the weights of both are kept equal over processes."""

    def __init__(self, task: Task, model: nn.Module, loss: nn.Module, previous: PreviousWeights | None) -> None:
        super().__init__()
        self.task, self.model, self.loss, self.previous = task, model, loss, previous

    def forward(self, batch: Batch) -> Tensor:
        if self.previous is None:
            return self.task.training_step(self.model, self.loss, batch)
        return self.task.training_step(self.model, self.loss, batch, previous=self.previous)


def _save(
    training: _Training, checkpoints: Checkpoints, fabric: Fabric, *, best: bool, notes: Mapping[str, Any] | None
) -> None:
    state = {**training.save(), "notes": dict(notes or {})}
    if fabric.is_global_zero:
        checkpoints.save(state, training.step, best=best)
    fabric.barrier()


def _check_finite(loss: float, step: int) -> float:
    if loss != loss or abs(loss) == float("inf"):
        raise ValueError(f"loss: expected a finite number, got {loss} in step {step}; try a lower learning rate")
    return loss
