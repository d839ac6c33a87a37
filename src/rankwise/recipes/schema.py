"""What every recipe says: how to train, how long, on what device, what to measure. The rest is the task's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator
from torch.optim import Optimizer

from rankwise.losses import LOSSES
from rankwise.metrics import create_metric
from rankwise.tasks import Task
from rankwise.training import Place, adamw, averaged, constant, cosine, sgd, steps_down, warmed_up
from rankwise.training.optimisers import Parameters, Schedule
from rankwise.training.weights import Averaging

__all__ = [
    "Batches",
    "Count",
    "FileOrShare",
    "LossChoice",
    "Names",
    "NotNegative",
    "Recipe",
    "Share",
    "Strict",
    "usual",
]

Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(gt=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Names = Annotated[tuple[str, ...], Field(min_length=1)]


def _file_or_share(value: object) -> object:
    if isinstance(value, str | Path) and str(value):
        return Path(value)
    if isinstance(value, float | int) and not isinstance(value, bool) and 0 < value < 1:
        return float(value)
    raise ValueError(f"expected a file, or a share of the rows between 0 and 1, got {value!r}")


FileOrShare = Annotated[Path | float, BeforeValidator(_file_or_share)]


class Strict(BaseModel):
    """A part of a recipe: unknown keys are refused, nothing changes after reading."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class LossChoice(BaseModel):
    """A loss by name, with its options beside the name.

    `prior: data` is the true share of positives of the training part; a mapping with `start`, `end` and `steps` is a
    schedule. `add` is a list of further losses, such as semi-variance.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str
    add: tuple[LossChoice, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _name_alone(cls, given: object) -> object:
        return {"name": given} if isinstance(given, str) else given

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        LOSSES.get(name)
        return name

    @model_validator(mode="after")
    def _options_fit(self) -> LossChoice:
        self.check_options()
        return self

    def check_options(self) -> None:
        """Refuse options that the loss does not take."""
        options = {**self.options, "prior": 0.1} if self.options.get("prior") == "data" else self.options
        try:
            LOSSES.get(self.name).create(**options)
        except TypeError as problem:
            raise ValueError(str(problem)) from None

    @classmethod
    def of(cls, name: str, **options: Any) -> LossChoice:
        return cls.model_validate({"name": name, **options})

    @property
    def options(self) -> dict[str, Any]:
        """Without the name and the additions."""
        return dict(self.model_extra or {})

    @property
    def all_options(self) -> dict[str, Any]:
        """As `create_loss` takes them."""
        add = [{"name": each.name, **each.all_options} for each in self.add]
        return {**self.options, "add": add} if add else self.options


class Batches(Strict):
    """How many rows stand in a batch; a usual number, or all if there are fewer, if left out."""

    size: Count | None = None


def usual(key: str, given: int | None, default: int, available: int, what: str) -> int:
    """A size of batches: what the recipe says, or the default, or all there is if that is less."""
    if given is None:
        return min(default, available)
    if given > available:
        raise ValueError(f"{key}: expected at most the {available} {what}, got {given}")
    return given


class OptimiserChoice(Strict):
    """AdamW, or SGD with momentum."""

    name: Literal["adamw", "sgd"] = "adamw"
    learning_rate: Positive = 1e-3
    weight_decay: NotNegative = 0.0
    betas: tuple[Share, Share] = (0.9, 0.999)
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    nesterov: bool = False

    def make(self) -> Callable[[Parameters], Optimizer]:
        if self.name == "adamw":
            return adamw(self.learning_rate, weight_decay=self.weight_decay, betas=self.betas)
        return sgd(self.learning_rate, momentum=self.momentum, nesterov=self.nesterov, weight_decay=self.weight_decay)


class ScheduleChoice(Strict):
    """How the learning rate changes: "cosine" down to 0 (after `warmup` steps up from 0), "steps" down by `factor` at
    the shares `at` of the run, or "constant"."""

    name: Literal["cosine", "steps", "constant"] = "cosine"
    warmup: Annotated[int, Field(ge=0)] = 0
    at: tuple[Share, ...] = (0.5,)
    factor: Positive = 0.1

    def make(self) -> Schedule:
        if self.name == "steps":
            return steps_down(self.at, self.factor)
        if self.name == "constant":
            return constant
        return warmed_up(self.warmup) if self.warmup else cosine


class Budget(Strict):
    """How long to train: `steps` of the optimiser or `epochs` over the data, one of the two."""

    steps: Count | None = None
    epochs: Positive | None = None

    @model_validator(mode="after")
    def _one(self) -> Budget:
        if (self.steps is None) == (self.epochs is None):
            raise ValueError("expected steps or epochs, one of the two")
        return self

    def in_steps(self, batches_per_epoch: int) -> int:
        if self.steps is not None:
            return self.steps
        assert self.epochs is not None
        return max(1, round(self.epochs * batches_per_epoch))


class EvaluationPlan(Strict):
    """When to evaluate on the validation part; `patience` evaluations without a better value end the run."""

    every: Count = 100
    patience: Count | None = None


class CheckpointPlan(Strict):
    """When to save (by default at every evaluation) and how many of the last ones to keep besides the best."""

    every: Count | None = None
    keep: Count = 3


class GradientPlan(Strict):
    """`clip`: the largest norm of a gradient. `accumulate`: batches per step. `rows_at_once`: how many rows of a batch
    the model takes at a time, for batches larger than memory. `previous_weights`: give the loss the outputs under the
    weights before the last step, too (stable AP), for one more forward pass."""

    clip: Positive | None = None
    accumulate: Count = 1
    rows_at_once: Count | None = None
    previous_weights: bool = False


class AverageChoice(Strict):
    """The average of the weights over the steps after the share `after` of the run is judged and kept instead of the
    last weights: the plain mean, or with a `decay` a moving average of about the last 1 / (1 - decay) steps."""

    decay: Share | None = None
    after: Annotated[float, Field(ge=0, lt=1)] = 0.5

    def make(self) -> Averaging:
        return averaged(decay=self.decay, after=self.after)


class PlaceChoice(Strict):
    """Where to train: device, number of processes, precision; `timeout` is how many seconds processes wait for each
    other before they give up."""

    accelerator: Literal["cpu", "cuda", "auto"] = "auto"
    devices: Count = 1
    precision: Literal["32", "64", "bf16", "fp16"] = "32"
    timeout: Positive = 1800.0

    @model_validator(mode="after")
    def _possible(self) -> PlaceChoice:
        self.make()
        return self

    def make(self) -> Place:
        return Place(self.accelerator, self.devices, self.precision, self.timeout)


class Recipe(Strict, ABC):
    """A whole run, as a YAML file describes it. Each kind of task has its own data, model and batches."""

    summary: ClassVar[str]

    task: str
    metrics: Names
    loss: LossChoice
    optimiser: OptimiserChoice = OptimiserChoice()
    schedule: ScheduleChoice = ScheduleChoice()
    budget: Budget = Budget(steps=1000)
    evaluation: EvaluationPlan = EvaluationPlan()
    checkpoints: CheckpointPlan = CheckpointPlan()
    gradient: GradientPlan = GradientPlan()
    average: AverageChoice | None = None
    place: PlaceChoice = PlaceChoice()
    logs: tuple[Literal["csv", "tensorboard"], ...] = ("csv",)
    seeds: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)] = (0,)

    @field_validator("metrics")
    @classmethod
    def _known_metrics(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            create_metric(name)
        return names

    @field_validator("seeds")
    @classmethod
    def _different_seeds(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(seeds)) < len(seeds):
            raise ValueError(f"expected different numbers, got {list(seeds)}")
        return seeds

    @property
    def measured(self) -> tuple[str, ...]:
        """The metrics by name; choices are made by the first."""
        return self.metrics

    def settled(self) -> Recipe:
        """The same recipe with what the data decide written down, so that other data are read alike."""
        return self

    @abstractmethod
    def build_task(self, seed: int) -> Task:
        """Read the data and tie everything together; `seed` cuts data that are not cut yet."""

    @abstractmethod
    def for_scoring(self, path: Path, features: int) -> Recipe:
        """The same recipe with another file in place of all its data, to judge a trained model on it.

        `features` is how many numbers the model takes per row.
        """

    def with_usual_batches(self) -> Recipe:
        """The same recipe without sizes of batches, for data that may be fewer than a batch."""
        batches = getattr(self, "batches", None)
        return self if batches is None else self.model_copy(update={"batches": type(batches)()})

    def files(self) -> Iterator[Path]:
        """The files the run reads; a cache only holds what they say."""
        data = getattr(self, "data", None)
        for name, value in vars(data).items() if data is not None else ():
            if isinstance(value, Path) and name != "cache":
                yield value
