"""The training loop, on Lightning Fabric."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from rankwise.data import Batch, Split
from rankwise.losses import ListLoss
from rankwise.losses.local_lists import join_list_state, join_rows, own_list_state, own_tables
from rankwise.models.chunks import InChunks
from rankwise.models.tables import has_sharded_tables
from rankwise.samplers import SeededBatchSampler
from rankwise.training.checkpoints import SHARDS, Checkpoints, read_checkpoint
from rankwise.training.estimates import check_estimates
from rankwise.training.history import Fitted, History, Step
from rankwise.training.options import make_fabric
from rankwise.training.processes import Interrupted, Interrupts, RandomState
from rankwise.training.profiling import Profile, part
from rankwise.training.saving import Saver
from rankwise.training.sharding import (
    check_sharded,
    check_strategy,
    count_nonfinite,
    is_sharded,
    shard_like,
    shard_optimiser,
    whole,
)
from rankwise.training.shards import read_shards, shard_sizes, split_shards
from rankwise.training.trainable import Trainable
from rankwise.training.weights import PreviousWeights

__all__ = ["fit"]

TABLES = "tables"  # where a checkpoint has the tables of a loss, by process


def fit(
    problem: Trainable,
    schema: Any,
    split: Split[Any],
    *,
    seed: int = 0,
    fabric: Fabric | None = None,
    checkpoints: Checkpoints | None = None,
    start: Mapping[str, Any] | None = None,
    weights: Mapping[str, Tensor] | None = None,
    stop_after: float = 1.0,
    check_memory: bool = False,
    on_start: Callable[[int, int], None] | None = None,
    on_step: Callable[[Step], None] | None = None,
    on_evaluation: Callable[[int, dict[str, float]], None] | None = None,
    profile: Profile | None = None,
) -> Fitted:
    """Train a problem on a split, as its options say.

    On one machine, with the same versions and the same number of threads, the result depends on the arguments only: the
    same seed gives the same weights, bit for bit, also when the training was stopped and resumed from a checkpoint.
    Another CPU rounds differently, and training amplifies that. The random state of the caller is neither read nor
    changed.

    Args:
        problem: see `Trainable`; its options decide the length, the optimiser, evaluation and all else.
        schema: what was learned about the form of the data.
        split: the parts to train and to validate on.
        seed: decides the initial weights, the order of the data and everything else that is random.
        fabric: a started Fabric (`make_fabric`); by default one is made from `problem.device`.
        checkpoints: where to save; Ctrl-C then saves, too, before it ends the training with `Interrupted`.
        start: a checkpoint to resume from, made by the same call with the same arguments.
        weights: a state dict of the model to begin with; by default the model is initialised from the seed.
        stop_after: share of the steps that are taken; schedules are those of all of them.
        check_memory: at every evaluation, also compare the running estimates of the loss with exact values on some
            training data (see `check_estimates`); this changes nothing in the training.
        on_start: called with the number of steps to take in all and of those done before.
        on_step: called after every step.
        on_evaluation: called after every evaluation with the step and the metrics.
        profile: records some of the steps; this changes nothing in the training.

    Example:
        >>> from rankwise.data import TableSchema, load_eights
        >>> from rankwise.problems import Tabular
        >>> problem = Tabular(batches={"size": 64, "positives": 8}, budget={"steps": 20}, evaluation={"every": 10})
        >>> split = load_eights(seed=0)
        >>> fit(problem, TableSchema.of(split.train), split).history.steps
        [0, 10, 20]
    """
    plan = problem.evaluation
    take_best = plan.weights == "best"
    if start is not None and take_best and checkpoints is None:
        raise ValueError("checkpoints: expected where the best weights of before `start` are, got None")
    fabric = fabric or make_fabric(problem.device)
    with RandomState.kept(fabric.device), _product_precision(problem.device.tf32):
        training = _Training(problem, schema, split, seed, fabric, stop_after, weights)
        if checkpoints is not None or start is not None:
            training.check_resumable()
        if start is not None:
            training.load(start)
        if on_start is not None:
            on_start(training.last, training.step)
        if profile is not None:
            profile.watch(training.loss)
        save_every = problem.checkpoints.every
        with training.saver(checkpoints) as saver, Interrupts(watch=checkpoints is not None) as interrupts:
            for _ in training.run(on_step, profile):
                evaluated = improved = False
                if plan.due(training.step, training.last):
                    evaluated = True
                    if check_memory:
                        training.check_memory()
                    improved = training.evaluate(on_evaluation, keep=take_best and checkpoints is None)
                    training.check_patience(plan.patience)
                stopped = interrupts.seen(fabric)
                due = training.done or stopped or (training.due(save_every) if save_every else evaluated)
                if saver is not None and (due or improved):
                    saver.save(*training.save(), training.step, best=improved)
                if stopped and not training.done:
                    raise Interrupted(training.step)
        if profile is not None:
            profile.close()
        training.finish(checkpoints.best if checkpoints is not None else None, take_best=take_best)
        return Fitted(training.whole_model(), training.whole_loss(), training.history)


@contextmanager
def _product_precision(tf32: bool) -> Iterator[None]:
    """Set whether products of float32 matrices may round to TF32 while a run trains."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if tf32 else before)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


class _Training:
    """A run in progress: everything that changes from step to step, and how to save and load it."""

    def __init__(
        self,
        problem: Trainable,
        schema: Any,
        split: Split[Any],
        seed: int,
        fabric: Fabric,
        stop_after: float,
        weights: Mapping[str, Tensor] | None,
    ) -> None:
        check_strategy(fabric)
        self.problem, self.schema, self.split, self.fabric = problem, schema, split, fabric
        loader = problem.train_loader(split.train, seed)
        self.accumulate = problem.gradient.accumulate
        steps = problem.budget.in_steps(len(loader) // self.accumulate)
        self.steps = steps
        self.last = round(stop_after * steps)
        torch.manual_seed(seed)
        self.model = problem.build_model(schema)
        if weights is None:
            problem.fit_model(self.model, split.train)
        else:
            self.model.load_state_dict(shard_like(weights, self.model.state_dict()))
        if problem.device.channels_last:
            self.model.to(memory_format=torch.channels_last)
        self.loss = problem.build_loss(schema, split.train, steps=steps)
        if self.accumulate > 1 and not getattr(self.loss, "itemwise", False):
            warnings.warn(
                f"accumulate: {self.accumulate} batches of {type(self.loss).__name__} are not one batch "
                f"{self.accumulate} times as large, because items are compared within a batch only; rows_at_once gives "
                "a larger batch in the same memory",
                stacklevel=3,
            )
        on_ranks = fabric.world_size > 1 and getattr(problem, "lists_on_ranks", False)
        self.local = on_ranks and isinstance(self.loss, ListLoss) and self.loss.keep_lists_local()
        rows = problem.gradient.rows_at_once
        joint = _Joint(problem, self.model if rows is None else InChunks(self.model, rows), self.loss)
        # Every process computes the state of the loss itself. Of the model's buffers only running statistics change.
        names = [name for name, _ in joint.named_buffers() if name.startswith("loss.") or not _is_statistic(name)]
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(joint, names)
        if problem.device.compile:
            joint.compile()
        self.wrapped = fabric.setup_module(joint)
        check_sharded(fabric, joint)
        self.sharded = is_sharded(joint)
        # Only now: sharding replaces the parameters.
        self.optimiser = problem.optimiser.build([*self.model.parameters(), *self.loss.parameters()])
        self.stepper: Any = fabric.setup_optimizers(self.optimiser)
        self.schedule = problem.build_schedule(self.optimiser, steps)
        if problem.gradient.previous_weights:
            if self.sharded:
                raise ValueError("gradient.previous_weights: expected false with sharded parameters (FSDP2), got true")
            joint.previous = PreviousWeights(self.model, self.optimiser)
        self.previous = joint.previous
        self.average = None if problem.average is None else problem.average.build(self.model, steps)
        self.sampler = loader.batch_sampler if isinstance(loader.batch_sampler, SeededBatchSampler) else None
        # A copy from pinned memory does not block; Fabric's loader copies like that.
        loader.pin_memory = loader.pin_memory or fabric.device.type == "cuda"
        # The samplers split batches over processes by themselves.
        self.loader: Any = fabric.setup_dataloaders(loader, use_distributed_sampler=False)
        self.random = RandomState(fabric, seed)
        self.step, self.epoch, self.used = 0, 0, 0
        self.losses: list[Tensor] = []
        self.history = History()
        self.validation = self._validation() if problem.evaluation.every else None
        self._best: dict[str, Tensor] | None = None
        self._fresh = True
        self._started = time.perf_counter()

    @property
    def apart(self) -> bool:
        """Return whether processes have state of their own, which each writes itself."""
        return self.sharded or self.local

    @property
    def done(self) -> bool:
        return self.step >= self.last or self.history.stopped_early

    def due(self, every: int) -> bool:
        return self.step % every == 0 or self.step == self.last

    def run(self, on_step: Callable[[Step], None] | None, profile: Profile | None) -> Iterator[None]:
        """Train, and yield before the first step of a fresh run and after every step."""
        self.wrapped.train()
        if self._fresh:
            yield
        batches = self._batches()
        while not self.done:
            self._started = time.perf_counter()
            with nullcontext() if profile is None else profile.step():
                value, rows = self._step(batches)
            self.losses.append(value)
            self.step += 1
            self.history.seconds += time.perf_counter() - self._started
            if on_step is not None:
                rate = self.optimiser.param_groups[0]["lr"]
                on_step(Step(self.step, _check_finite(value.item(), self.step), rate, rows))
            self.schedule.step()
            yield

    def evaluate(self, on_evaluation: Callable[[int, dict[str, float]], None] | None, *, keep: bool) -> bool:
        """Evaluate on the validation part; return whether it is the best so far."""
        metric = self.problem.metric
        with self._judged():
            means = self.problem.evaluate(self.whole_model(), self.validation).means
        means = self.fabric.broadcast(means)
        chooses = self.problem.evaluation.weights == "best" or self.problem.evaluation.patience is not None
        if math.isnan(means[metric]) and chooses:
            raise ValueError(
                f"data: expected a validation part to choose the weights by, got one in which no list has a {metric} "
                "(none has both relevant and other items); give other validation data, or take the last weights: "
                "'evaluation={every: null, weights: last}'"
            )
        curve = self.history.curve(metric)
        self.history.steps.append(self.step)
        self.history.metrics.append(means)
        improved = not curve or means[metric] > max(curve)
        if improved:
            self.history.best_step = self.step
            if keep:
                self._best = self._judged_weights()
        if on_evaluation is not None:
            on_evaluation(self.step, means)
        return improved

    def _validation(self) -> Any:
        """Return the rows of the validation part that are evaluated."""
        part, rows = self.split.part("validation"), self.problem.evaluation.rows
        if rows is None or rows >= len(part):
            return part
        if getattr(part, "query_ids", None) is not None:
            raise ValueError("evaluation.rows: expected none where a list has several rows, which belong together")
        return part.take(torch.arange(rows) * len(part) // rows)

    def check_memory(self) -> None:
        """Record the errors of the running estimates of the loss; single numbers are kept of the last check only.

        With several processes nothing is compared, see `check_estimates`.
        """
        if self.fabric.world_size > 1:
            return
        batch = self.problem.probe_batch(self.split.train)
        estimates = check_estimates(self.problem, self.whole_model(), self.whole_loss(), batch)
        checks = [{"step": self.step, **check.plain()} for check in estimates]
        before = [{**check, "remembered": [], "true": []} for check in self.history.estimates]
        self.history.estimates = [*before, *checks]

    def check_patience(self, patience: int | None) -> None:
        if patience is not None and self.history.best_step is not None:
            since = sum(step > self.history.best_step for step in self.history.steps)
            self.history.stopped_early = since >= patience and self.step < self.last

    def finish(self, best: Any, *, take_best: bool) -> None:
        self.history.losses = torch.stack(self.losses).tolist() if self.losses else []
        if self.average is not None:
            self.average.apply()
        if take_best:
            weights = self._best if best is None else self._with_shards(read_checkpoint(best), ("model",))["model"]
            if weights is not None:
                self._load_weights(weights)

    def whole_model(self) -> nn.Module:
        """Return the model itself, or a copy with whole parameters if FSDP2 shards them; in every process at once."""
        if not self.sharded or has_sharded_tables(self.model):
            return self.model
        with RandomState.kept(self.fabric.device):
            model = self.problem.build_model(self.schema)
        self.fabric.strategy.precision.convert_module(model).to(self.fabric.device)
        model.load_state_dict(whole(self._state_of(self.model)))
        return model.train(self.model.training)

    def whole_loss(self) -> nn.Module:
        """Return the loss itself, or a copy with whole parameters and all state; in every process at once."""
        if not is_sharded(self.loss) and not self.local:
            return self.loss
        loss = self.problem.build_loss(self.schema, self.split.train, steps=self.steps)
        loss.load_state_dict(join_list_state(self.loss) if self.local else whole(self._state_of(self.loss)))
        return loss.to(self.fabric.device).train(self.loss.training)

    def saver(self, checkpoints: Checkpoints | None) -> AbstractContextManager[Saver | None]:
        """Return what saves this training; None without checkpoints."""
        if checkpoints is None:
            return nullcontext()
        background, timeout = self.problem.checkpoints.background, self.problem.device.timeout
        return Saver(checkpoints, self.fabric, apart=self.apart, background=background, timeout=timeout)

    def check_resumable(self) -> None:
        if self.sampler is None:
            raise TypeError(
                "train_loader: expected a loader with a batch sampler of rankwise.samplers, which knows where it "
                "stands, to save checkpoints, got another"
            )

    def save(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return everything needed to go on, as tensors and plain values, and apart from it what only this process has.

        Every process must call it at the same time.
        """
        assert self.sampler is not None
        over = self.used == len(self.sampler)
        epoch, used = (self.epoch + 1, 0) if over else (self.epoch, self.used)
        tables = own_tables(self.loss) if self.local else {}
        loss = self._state_of(self.loss)
        self.stepper.zero_grad()  # as the next step does: no gradient is held while the state is written
        state = {
            "step": self.step,
            "model": dict(self._state_of(self.model)) if self.average is None else self._judged_weights(),
            "in_training": None if self.average is None else self._state_of(self.model),
            "average": None if self.average is None else self.average.state_dict(),
            "loss": {name: value for name, value in loss.items() if name not in tables},
            "optimiser": self.optimiser.state_dict(),
            "schedule": self.schedule.state_dict(),
            "previous": None if self.previous is None else self.previous.state_dict(),
            "precision": self.fabric.strategy.precision.state_dict(),
            "sampler": {**self.sampler.state_dict(batch=used), "epoch": epoch},
            "random": self.random.save(),
            "history": {
                **self.history.to_state(),
                "losses": torch.stack(self.losses).cpu() if self.losses else torch.zeros(0),
            },
        }
        if not self.apart:
            return state, {}
        plain, shards = split_shards(state)
        rank = self.fabric.global_rank
        return plain, {**shards, **{f"{TABLES}/{rank}/{name}": value for name, value in tables.items()}}

    def _with_shards(self, state: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
        """Return these entries of a checkpoint with what its processes wrote apart; sharded as it is needed here."""
        joined = {key: _copy(state[key]) for key in keys}
        if state.get(SHARDS) is None:
            return joined
        folder = Path(state[SHARDS]["folder"])
        paths = list(shard_sizes(folder))
        weights = self.model.state_dict()
        parameters = [p for group in self.optimiser.param_groups for p in group["params"]]

        def like(path: str, shape: torch.Size) -> Any:
            part, *_, name = path.split("/")
            return parameters[int(path.split("/")[2])] if part == "optimiser" else weights.get(name)

        for path, value in read_shards(folder, like, [path for path in paths if path.split("/")[0] in keys]).items():
            entry: dict[Any, Any] = joined
            *above, name = path.split("/")
            for key in above:
                entry = entry[int(key) if key not in entry else key]
            entry[name] = value
        if "loss" in keys and (ranks := sorted({path.split("/")[1] for path in paths if path.startswith(TABLES)})):
            joined["loss"] |= self._read_tables(folder, ranks, paths)
        return joined

    def _read_tables(self, folder: Path, ranks: Sequence[str], paths: Sequence[str]) -> dict[str, Tensor]:
        """Return the tables of the loss with the lists of this process, read from one process's share at a time."""
        empty = {name: value[:0] for name, value in own_tables(self.loss).items()}
        kept: list[dict[str, Any]] = []
        for rank in ranks:
            prefix = f"{TABLES}/{rank}/"
            tensors = read_shards(folder, lambda *_: None, [path for path in paths if path.startswith(prefix)])
            share = {**empty, **{path.removeprefix(prefix): value for path, value in tensors.items()}}
            kept.append(own_list_state(self.loss, share) if self.local else share)
        return join_rows(self.loss, kept)

    def load(self, state: Mapping[str, Any]) -> None:
        assert self.sampler is not None
        try:
            state = {**state, **self._with_shards(state, ("model", "in_training", "average", "loss", "optimiser"))}
            self._load_weights(state["model"] if self.average is None else state["in_training"])
            if self.average is not None:
                mean = shard_like(state["average"]["mean"], self.model.state_dict())
                self.average.load_state_dict({**state["average"], "mean": mean})
            with warnings.catch_warnings():
                if state["step"] == 0:  # a loss that has seen nothing is as it should be
                    warnings.simplefilter("ignore")
                apart = state.get(SHARDS) is not None
                remembered = own_list_state(self.loss, state["loss"]) if self.local and not apart else state["loss"]
                self.loss.load_state_dict(shard_like(remembered, self.loss.state_dict()))
            self.optimiser.load_state_dict(shard_optimiser(state["optimiser"], self.optimiser))
            self.schedule.load_state_dict(state["schedule"])
            if self.previous is not None:
                self.previous.load_state_dict(state["previous"])
            self.fabric.strategy.precision.load_state_dict(state["precision"])
            self.sampler.load_state_dict(state["sampler"])
        except (KeyError, RuntimeError, TypeError, AttributeError) as problem:
            said = " ".join(str(problem).split())
            raise ValueError(
                f"start: expected a checkpoint of this problem, model and loss, got another ({said})"
            ) from None
        self.step, self.epoch, self.used = state["step"], state["sampler"]["epoch"], state["sampler"]["batch"]
        past = dict(state["history"])
        self.losses = list(past.pop("losses").to(self.fabric.device))
        self.history = History(**past)
        self.random.load(state["random"], self.step)
        self._fresh = False

    def _step(self, batches: Iterator[Batch]) -> tuple[Tensor, int]:
        self.stepper.zero_grad()
        total, rows = torch.zeros((), device=self.fabric.device), 0
        for number in range(1, self.accumulate + 1):
            with part("loader"):
                batch = next(batches)
            rows += len(batch.labels)
            with self.fabric.no_backward_sync(self.wrapped, enabled=number < self.accumulate):
                with part("forward"):
                    value = self.wrapped(batch) / self.accumulate
                with part("backward"):
                    self.fabric.backward(value)
            total = total + value.detach()
        self._check_gradient()
        clip = self.problem.gradient.clip
        if clip is not None:
            self.fabric.clip_gradients(self.wrapped, self.stepper, max_norm=clip, error_if_nonfinite=False)
        with part("optimiser"):
            self.stepper.step()
        if self.average is not None:
            self.average.update()
        return total, rows * self.fabric.world_size

    def _check_gradient(self) -> None:
        """Refuse a gradient that would spoil the weights, before it does, and before a checkpoint could hold them."""
        if getattr(self.fabric.strategy.precision, "scaler", None) is not None:
            return  # a scaler leaves such steps out by itself
        gradients = [p.grad for group in self.optimiser.param_groups for p in group["params"] if p.grad is not None]
        wrong, numbers = count_nonfinite(gradients), sum(map(Tensor.numel, gradients))
        if wrong:
            raise ValueError(
                f"gradient: expected finite numbers, got {wrong} NaN or infinite of {numbers} in step {self.step + 1}; "
                "the weights are as before it; try a lower learning rate"
            )

    def _judged(self) -> AbstractContextManager[None]:
        """Return a context in which the model has the weights to evaluate: the averaged ones, if there are any."""
        return nullcontext() if self.average is None else self.average.applied()

    def _judged_weights(self) -> dict[str, Tensor]:
        with self._judged():
            return {name: value.detach().clone() for name, value in self._state_of(self.model).items()}

    def _load_weights(self, weights: Mapping[str, Tensor]) -> None:
        self.model.load_state_dict(shard_like(weights, self.model.state_dict()))

    def _state_of(self, module: nn.Module) -> dict[str, Any]:
        """Return the state dict of a module; buffers, which FSDP2 leaves alone, are rank 0's."""
        state: dict[str, Any] = module.state_dict()
        if self.sharded:
            for name, buffer in module.named_buffers():
                if name in state and module is self.model:
                    dist.broadcast(buffer, src=0)
        return state

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


def _is_statistic(buffer: str) -> bool:
    return buffer.rpartition(".")[2] in ("running_mean", "running_var", "num_batches_tracked")


class _Joint(nn.Module):
    """Model and loss as one module, so that the weights of both are kept equal over processes."""

    previous: PreviousWeights | None = None

    def __init__(self, problem: Trainable, model: nn.Module, loss: nn.Module) -> None:
        super().__init__()
        self.problem, self.model, self.loss = problem, model, loss

    def forward(self, batch: Batch) -> Tensor:
        if self.previous is None:
            return self.problem.training_step(self.model, self.loss, batch)
        return self.problem.training_step(self.model, self.loss, batch, previous=self.previous)


def _copy(state: Any) -> Any:
    """Return a state with mappings of its own and the same values."""
    return {key: _copy(value) for key, value in state.items()} if isinstance(state, Mapping) else state


def _check_finite(loss: float, step: int) -> float:
    if loss != loss or abs(loss) == float("inf"):
        raise ValueError(f"loss: expected a finite number, got {loss} in step {step}; try a lower learning rate")
    return loss
