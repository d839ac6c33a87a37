"""Options of the training loop. Each class holds its defaults and builds what it describes."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterable
from datetime import timedelta
from typing import Annotated, Any, Literal

import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins import DoublePrecision
from lightning_fabric.strategies.ddp import DDPStrategy
from lightning_fabric.strategies.model_parallel import ModelParallelStrategy
from pydantic import BaseModel, ConfigDict, Field, ValidatorFunctionWrapHandler, field_validator, model_validator
from torch import nn
from torch.optim import SGD, AdamW, Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LRScheduler

from rankwise.training.processes import find_launch, join
from rankwise.training.weights import AverageWeights

__all__ = [
    "AverageOptions",
    "Budget",
    "CheckpointOptions",
    "Count",
    "DeviceOptions",
    "EvaluationOptions",
    "GradientOptions",
    "NotNegative",
    "OptimiserOptions",
    "Options",
    "Positive",
    "ScheduleOptions",
    "Share",
    "make_fabric",
]

Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(gt=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]


class Options(BaseModel):
    """A group of options: unknown keys are refused, and an instance cannot be changed."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="wrap")
    @classmethod
    def _truth_is_no_number(cls, given: object, read: ValidatorFunctionWrapHandler) -> object:
        """Refuse true and false where a number or a name is expected: pydantic would read them as 1 and 0."""
        value: object = read(given)
        pairs = [(given, value)]
        if isinstance(given, list | tuple) and isinstance(value, tuple):
            pairs = list(zip(given, value, strict=True))
        for before, after in pairs:
            if isinstance(before, bool) and not isinstance(after, bool):
                raise ValueError(
                    f"expected a number or a name, got {before}; put yes, no, on, off in quotes if they are names"
                )
        return value


class OptimiserOptions(Options):
    """AdamW, or SGD with momentum.

    Example:
        >>> OptimiserOptions(learning_rate=3e-3).build(nn.Linear(2, 1).parameters()).defaults["lr"]
        0.003
    """

    name: Literal["adamw", "sgd"] = "adamw"
    learning_rate: Positive = 1e-3
    weight_decay: NotNegative = 0.0
    betas: tuple[Share, Share] = (0.9, 0.999)
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    nesterov: bool = False

    def build(self, parameters: Iterable[nn.Parameter]) -> Optimizer:
        """Return a new optimiser of the parameters."""
        rate, decay = self.learning_rate, self.weight_decay
        if self.name == "adamw":
            return AdamW(parameters, lr=rate, weight_decay=decay, betas=self.betas)
        return SGD(parameters, lr=rate, weight_decay=decay, momentum=self.momentum, nesterov=self.nesterov)


class ScheduleOptions(Options):
    """Learning rate over the run: "cosine" down to 0 (after `warmup` steps up from 0), "steps" down by `factor` at the
    shares `at` of the run, or "constant"."""

    name: Literal["cosine", "steps", "constant"] = "cosine"
    warmup: Annotated[int, Field(ge=0)] = 0
    at: tuple[Share, ...] = (0.5,)
    factor: Positive = 0.1

    def build(self, optimiser: Optimizer, steps: int, *, first: tuple[int, float] = (0, 1.0)) -> LRScheduler:
        """Return the schedule of a run of so many steps.

        Args:
            first: number of steps at the start that have a constant learning rate instead, and that rate as a multiple
                of the optimiser's.
        """
        if self.name == "cosine" and not self.warmup and not first[0]:
            return CosineAnnealingLR(optimiser, steps)
        return LambdaLR(optimiser, lambda step: first[1] if step < first[0] else self._share_of_rate(step, steps))

    def _share_of_rate(self, step: int, steps: int) -> float:
        if self.name == "constant":
            return 1.0
        if self.name == "steps":
            return float(self.factor ** sum(step >= share * steps for share in self.at))
        if step < self.warmup:
            return (step + 1) / (self.warmup + 1)
        return (1 + math.cos(math.pi * (step - self.warmup) / max(1, steps - self.warmup))) / 2


class Budget(Options):
    """Length of the training: `steps` of the optimiser or `epochs` over the data, one of the two."""

    steps: Count | None = None
    epochs: Positive | None = None

    @model_validator(mode="after")
    def _one(self) -> Budget:
        if (self.steps is None) == (self.epochs is None):
            told = ""
            if self.steps is not None:
                either = f"'budget={{epochs: {self.epochs:g}}}' or 'budget={{steps: {self.steps}}}'"
                told = f", got both; {either} sets one alone"
            raise ValueError(f"expected steps or epochs, one of the two{told}")
        return self

    def in_steps(self, steps_per_epoch: int) -> int:
        """Return the number of optimiser steps."""
        if self.steps is not None:
            return self.steps
        assert self.epochs is not None
        return max(1, round(self.epochs * steps_per_epoch))


class EvaluationOptions(Options):
    """Evaluate on the validation part before the first step (unless `at_start` is false), after `every` so many steps
    and at the end; None never does. `rows`: evaluate on so many rows of the validation part only (users, images,
    examples), evenly spread; final figures are always of all rows. `patience` evaluations without a better value end
    the run. `weights`: keep the "best" weights by the first metric, or the "last"."""

    every: Count | None = 100
    at_start: bool = True
    rows: Count | None = None
    patience: Count | None = None
    weights: Literal["best", "last"] = "best"

    @model_validator(mode="after")
    def _evaluated(self) -> EvaluationOptions:
        if self.every is None and (self.patience is not None or self.weights == "best"):
            raise ValueError("expected every to be a number of steps with patience or weights: best, got none")
        return self

    def due(self, step: int, last: int) -> bool:
        """Return whether to evaluate after a step of a run of `last` steps."""
        if self.every is None or (step == 0 and not self.at_start):
            return False
        return step % self.every == 0 or step == last


class CheckpointOptions(Options):
    """Steps between checkpoints (by default one at each evaluation), and the number of recent ones to keep besides the
    best. `background`: train on while a checkpoint is written, from a copy in memory."""

    every: Count | None = None
    keep: Count = 3
    background: bool = False


class GradientOptions(Options):
    """`clip`: the largest norm of a gradient. `accumulate`: batches per step, their gradients averaged; for a loss over
    pairs or lists that is not the gradient of one larger batch. `rows_at_once`: rows of a batch that the model takes at
    a time, for batches larger than memory. `previous_weights`: also give the loss the outputs under the weights before
    the last step (stable AP), at the cost of one more forward pass."""

    clip: Positive | None = None
    accumulate: Count = 1
    rows_at_once: Count | None = None
    previous_weights: bool = False


class AverageOptions(Options):
    """Evaluate and keep the average of the weights over the steps after the share `after` of the run: the plain mean,
    or with a `decay` a moving average of about the last 1 / (1 - decay) steps."""

    decay: Share | None = None
    after: Annotated[float, Field(ge=0, lt=1)] = 0.5

    def build(self, model: nn.Module, steps: int) -> AverageWeights:
        """Return the average of a model's weights over a run of so many steps."""
        return AverageWeights(model, decay=self.decay, after=round(self.after * steps))


class DeviceOptions(Options):
    """Device, number of processes and precision.

    `devices` counts the processes on this machine, one device each; this program starts them unless torchrun or srun
    has, which then decides how many. `accelerator`: "auto" is CUDA if there is one, else the CPU. `precision`: "bf16"
    and "fp16" are mixed, half in the model and full in the loss. `tf32`: whether products of float32 matrices may round
    their factors to TF32, on GPUs that have it. `channels_last`: whether the model stores images and filters with their
    channels last, which convolutions in half precision or TF32 want. `compile`: whether torch.compile compiles the
    training step, the loss included. `tables: sharded` shares the rows of the tables of users and items, and their
    state in the optimiser, out to the processes. A process gives up after `timeout` seconds without an answer from
    another.
    """

    accelerator: Literal["cpu", "cuda", "mps", "xpu", "auto"] = "auto"
    devices: Count = 1
    precision: Literal["32", "64", "bf16", "fp16"] = "32"
    tf32: bool = False
    channels_last: bool = False
    compile: bool = False
    tables: Literal["whole", "sharded"] = "whole"
    timeout: Positive = 1800.0

    @model_validator(mode="after")
    def _possible(self) -> DeviceOptions:
        backends = {"cuda": torch.cuda, "mps": torch.backends.mps, "xpu": torch.xpu}
        if self.accelerator in backends and not backends[self.accelerator].is_available():
            raise ValueError(
                f'accelerator: expected {self.accelerator.upper()} for "{self.accelerator}", which this machine lacks '
                '(use "cpu")'
            )
        if self.accelerator == "xpu":
            raise ValueError(
                'accelerator: expected "cpu", "cuda" or "mps" in a recipe, got "xpu", which Lightning Fabric lacks; '
                "losses and models run there in a loop of your own"
            )
        if self.accelerator == "mps" and (self.devices > 1 or self.precision == "64"):
            raise ValueError('devices, precision: expected one device and no float64 with accelerator "mps"')
        if self.tables == "sharded" and (self.compile or self.precision in ("bf16", "fp16")):
            raise ValueError('tables: expected compile: false and precision "32" or "64" with "sharded"')
        if self.precision == "fp16" and not self.on_gpu:
            raise ValueError('precision: expected "32", "64" or "bf16" on the CPU, got "fp16"')
        return self

    @property
    def device_type(self) -> str:
        """Return the device that the run uses: "cpu", "cuda" or "mps"."""
        if self.accelerator == "auto":
            return "cuda" if torch.cuda.is_available() else "cpu"
        return self.accelerator

    @property
    def on_gpu(self) -> bool:
        """Return whether the run uses a GPU."""
        return self.device_type != "cpu"


PRECISIONS = {"32": "32-true", "64": "64-true", "bf16": "bf16-mixed", "fp16": "16-mixed"}


def make_fabric(options: DeviceOptions) -> Fabric:
    """Return a started Fabric; every process of a run must call this before anything costly."""
    launch = find_launch(options.devices)
    processes, limit = launch.devices * launch.nodes, timedelta(seconds=options.timeout)
    several = processes > 1
    strategy: Any = DDPStrategy(timeout=limit) if several else "auto"
    precision: dict[str, Any] = {"precision": PRECISIONS[options.precision]}
    plugins: list[Any] = [launch.environment]
    if several and options.tables == "sharded":
        # Tables shard themselves, see `ShardedTable`; under this strategy Fabric takes float64 as a plugin only.
        strategy = ModelParallelStrategy(
            lambda module, _: module, data_parallel_size=processes, tensor_parallel_size=1, timeout=limit
        )
        if options.precision == "64":
            plugins, precision = [*plugins, DoublePrecision()], {}
    with warnings.catch_warnings():
        # Fabric advises faster settings; the caller has chosen.
        warnings.simplefilter("ignore")
        fabric = Fabric(
            accelerator=options.device_type,
            devices=launch.devices,
            num_nodes=launch.nodes,
            strategy=strategy,
            plugins=plugins,
            **precision,
        )
        if several and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
            join(options.device_type, limit)
        fabric.launch()
    return fabric
