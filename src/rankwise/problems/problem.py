"""The base class of all problems: what a user specifies, with every default of the application layer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader
from typing_extensions import Self

from rankwise.data import Batch, Schema, Split
from rankwise.data.expectations import HELD_OUT_SHARE
from rankwise.data.files import address_of
from rankwise.data.remote import local_copy
from rankwise.losses import LOSSES, ListLoss, Prior, SwitchLoss, create_loss
from rankwise.metrics import BoxTable, Evaluation, create_metric
from rankwise.models import reset_last_layer
from rankwise.problems.inspection import Inspection
from rankwise.training import (
    AverageOptions,
    Budget,
    CheckpointOptions,
    DeviceOptions,
    EvaluationOptions,
    GradientOptions,
    OptimiserOptions,
    Outputs,
    ScheduleOptions,
)
from rankwise.training.options import Count, Options, Positive

__all__ = [
    "Batches",
    "DataOptions",
    "FileOrShare",
    "LossChoice",
    "Names",
    "Problem",
    "Settings",
    "SourceOptions",
    "Sources",
    "WarmUp",
    "batch_size",
]

Names = Annotated[tuple[str, ...], Field(min_length=1)]
Sources = Mapping[str, Any]
Settings = dict[str, Any]
# Computes the prior that `prior: data` means.
DataPrior = Callable[[], float | Prior]
S = TypeVar("S", bound=Schema)
P = TypeVar("P")


def _file_or_share(value: object) -> object:
    if isinstance(value, str | Path) and str(value):
        return Path(value)
    if isinstance(value, float | int) and not isinstance(value, bool) and 0 < value < 1:
        return float(value)
    raise ValueError(f"expected a file, or a share of the rows between 0 and 1, got {value!r}")


# The number first: before pydantic 2.11 a path takes it, and writes it as text.
FileOrShare = Annotated[float | Path, BeforeValidator(_file_or_share)]


class SourceOptions(Options):
    """Training data; a subclass says where validation and test data come from. All may be at remote addresses such as
    `s3://bucket/clicks/`, which are copied to `cache` once."""

    train: Path | None = None

    def sources(self, given: Sources) -> dict[str, Any]:
        """Return the sources by the name of their part: the given ones, else the files of the options."""
        own = {name: getattr(self, name, None) for name in ("train", "validation", "test")}
        files = {name: path for name, path in own.items() if isinstance(path, Path)}
        sources = {**files, **{name: source for name, source in given.items() if source is not None}}
        if "train" not in sources:
            raise ValueError(
                "data.train: missing; give it in the recipe or on the command line as data.train=..., or pass train="
            )
        return {name: self.local(source) for name, source in sources.items()}

    def local(self, source: Any) -> Any:
        """Return a source, or the local copy of one at a remote address."""
        return source if address_of(source) is None else local_copy(source, getattr(self, "cache", None))

    @model_serializer(mode="wrap")
    def _with_addresses(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: address_of(value) or value for name, value in plain(self).items()}


class DataOptions(SourceOptions):
    """Training data, and files for validation and test or the shares of `train` to cut for them."""

    validation: FileOrShare = HELD_OUT_SHARE
    test: FileOrShare = HELD_OUT_SHARE

    def shares(self, split: Split[Any]) -> dict[str, float]:
        """Return the shares to cut from the training source, by the name of the part that is still missing."""
        wanted = {name: getattr(self, name) for name in ("validation", "test") if getattr(split, name) is None}
        shares = {name: share for name, share in wanted.items() if isinstance(share, float)}
        if sum(shares.values()) >= 1:
            raise ValueError(
                f"data: expected shares for validation and test of less than 1 in all, got {sum(shares.values()):g}"
            )
        return shares


class LossChoice(BaseModel):
    """A loss by name, with its options beside the name.

    `prior: data` is the true share of positives in the training part, of each list or class where there are several; a
    mapping with `start`, `end` and `steps` is a schedule, whose `end` may be `data` too. `add` is a list of further
    losses, such as semi-variance.
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
        try:
            create_loss(self.name, **self._with_prior(lambda: 0.1))
        except TypeError as problem:
            raise ValueError(str(problem)) from None

    @classmethod
    def of(cls, name: str, **options: Any) -> Self:
        """Return the choice of a loss with options."""
        return cls.model_validate({"name": name, **options})

    @property
    def options(self) -> dict[str, Any]:
        """Return the options without the name and the additions."""
        return dict(self.model_extra or {})

    def create(self, *, data_prior: DataPrior | None = None, **defaults: Any) -> Any:
        """Return a new loss.

        Args:
            data_prior: computes the value of `prior: data`; None refuses it.
            defaults: options that the choice may override.
        """
        options = {**defaults, **self._with_prior(data_prior)}
        return create_loss(self.name, add=[{"name": each.name, **each.options} for each in self.add], **options)

    def _with_prior(self, data_prior: DataPrior | None) -> dict[str, Any]:
        """Return the options with the prior of the data instead of the word `data`."""
        options = self.options
        prior = options.get("prior")
        schedule = prior if isinstance(prior, Mapping) and prior.get("end") == "data" else None
        if prior != "data" and schedule is None:
            return options
        if data_prior is None:
            raise ValueError("loss.prior: expected a number or a schedule for this kind of problem, got data")
        return {**options, "prior": data_prior() if schedule is None else {**schedule, "end": data_prior()}}

    def takes(self, option: str) -> bool:
        """Return whether the loss has an option."""
        return LOSSES.get(self.name).takes(option)


class Batches(Options):
    """Rows in a batch; by default a usual number, or all rows if there are fewer."""

    size: Count | None = None


def batch_size(key: str, given: int | None, default: int, available: int, what: str) -> int:
    """Return the given size, or min(default, available); refuse one that is larger than what is available."""
    if given is None:
        return min(default, available)
    if given > available:
        raise ValueError(f"{key}: expected at most the {available} {what}, got {given}")
    return given


class Problem(Options, ABC, Generic[S, P]):
    """A ranking problem as its user specifies it: data, model, loss, batches, metrics, and how to train.

    `refit`: when the validation part has chosen the step, train again from the same seed on training and validation
    data together, up to that step.

    A problem holds options only. What is learned about the form of the data is a `Schema`; both with trained weights
    are a `Run`. Each kind of problem is one subclass in a file of its own.
    """

    kind: ClassVar[str]
    summary: ClassVar[str]
    outputs: ClassVar[Literal["scores", "vectors", "boxes"]]
    schema_type: ClassVar[type[Any]]

    @property
    def whole_lists(self) -> bool:
        """Return whether the model scores the rows of a list together, so that none may be left out."""
        return False

    @property
    def lists_on_ranks(self) -> bool:
        """Return whether all items of a list in a batch are on one rank, always the same for a loss with state."""
        return False

    @property
    def tables_shard(self) -> bool:
        """Return whether the model has tables whose rows may be spread over processes."""
        return False

    metrics: tuple[str, ...]
    loss: LossChoice
    optimiser: OptimiserOptions = OptimiserOptions()
    schedule: ScheduleOptions = ScheduleOptions()
    budget: Budget = Budget(steps=1000)
    evaluation: EvaluationOptions = EvaluationOptions()
    checkpoints: CheckpointOptions = CheckpointOptions()
    gradient: GradientOptions = GradientOptions()
    average: AverageOptions | None = None
    refit: bool = False
    device: DeviceOptions = DeviceOptions()
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

    @model_validator(mode="after")
    def _tables_that_shard(self) -> Self:
        if self.device.tables == "sharded":
            if not self.tables_shard:
                raise ValueError(
                    'device.tables: expected "whole" for a model without tables of users and items that can be sharded '
                    '(only recsys with model.name=matrix-factorisation has them), got "sharded"'
                )
            if self.gradient.rows_at_once is not None or self.gradient.previous_weights:
                raise ValueError(
                    "gradient: expected no rows_at_once and no previous_weights with device.tables=sharded"
                )
        return self

    @property
    def measured(self) -> tuple[str, ...]:
        """Return the metrics by name; choices are made by the first."""
        return self.metrics

    @property
    def metric(self) -> str:
        """Return the metric by which choices are made."""
        return self.measured[0]

    def changed(self, **groups: Any) -> Any:
        """Return the problem with other options, checked: `problem.changed(loss="focal", budget={"steps": 50})`."""
        return type(self).model_validate({**dict(self), **groups})

    def with_whole_tables(self) -> Self:
        """Return the problem with tables that every process holds whole."""
        if self.device.tables == "whole":
            return self
        whole: Self = self.changed(device=self.device.model_copy(update={"tables": "whole"}))
        return whole

    def files(self) -> Iterator[Path]:
        """Yield the files that a run reads; a cache only repeats them."""
        data = getattr(self, "data", None)
        for name, value in vars(data).items() if data is not None else ():
            if isinstance(value, Path) and name != "cache":
                yield value

    @abstractmethod
    def read(self, sources: Sources) -> tuple[S, Split[Any]]:
        """Learn the schema from the training source and read all sources with it, once.

        The split may hold another type than the parts that `cut` makes of it.

        Args:
            sources: by the name of their part; by default the files of `data`.
        """

    def read_with(self, schema: S, sources: Sources) -> Split[Any]:
        """Read all sources with a schema that was learned before; see `read`."""
        given = self.data.sources(sources)  # type: ignore[attr-defined]
        return Split(**{name: schema.read(given[name]) for name in ("train", "validation", "test") if name in given})

    @abstractmethod
    def cut(self, split: Split[Any], seed: int) -> Split[P]:
        """Return the parts of a split that was read; cut those that were given as shares from the training part."""

    @abstractmethod
    def build_model(self, schema: S) -> nn.Module:
        """Return a new model, initialised from torch's random state, from the sizes in the schema alone."""

    def fit_model(self, model: nn.Module, train: P) -> None:
        """Fill the buffers of the model that are learned from the training part without gradients."""

    def complete_model(self, model: nn.Module, split: Split[P], settings: Mapping[str, Any] | None = None) -> Settings:
        """Fit what a trained model has besides its trained weights, in place.

        Args:
            model: trained.
            split: with the part to fit to and, to choose settings, the validation part.
            settings: what an earlier call chose; nothing is chosen then, and no validation part is needed.

        Returns:
            The settings that were chosen, as plain values that JSON can hold.
        """
        return {}

    @abstractmethod
    def build_loss(self, schema: S, train: P, *, steps: int) -> nn.Module:
        """Return a new loss for a training of so many steps."""

    def build_schedule(self, optimiser: Optimizer, steps: int) -> LRScheduler:
        """Return the learning-rate schedule of a training of so many steps."""
        return self.schedule.build(optimiser, steps)

    @abstractmethod
    def train_loader(self, train: P, seed: int) -> DataLoader[Batch]:
        """Return the batches of the training part; `seed` decides their order."""

    @abstractmethod
    def training_step(
        self, model: nn.Module, loss: nn.Module, batch: Batch, *, previous: Outputs | None = None
    ) -> Tensor:
        """Return the loss of one batch, a scalar with a gradient.

        `previous` gives the outputs of features under the weights before the last step, for a loss that takes them.
        """

    @abstractmethod
    def predict(self, model: nn.Module, part: P) -> Tensor | BoxTable:
        """Return the outputs for all rows of a part, in batches, without loss or training loader."""

    @abstractmethod
    def inspect(
        self, model: nn.Module, part: P, *, bootstrap: int = 0, calibration: Mapping[str, Any] | None = None
    ) -> Inspection:
        """Return the metrics on a part, and access to the lists behind them.

        Args:
            model: the trained model.
            part: with labels.
            bootstrap: number of replicates for intervals; 0 gives none.
            calibration: what `calibrate` returned, for drawings that need it.
        """

    @abstractmethod
    def probe_batch(self, train: P) -> Batch:
        """Return complete lists on which running estimates are compared with exact values."""

    def evaluate(self, model: nn.Module, part: P, *, bootstrap: int = 0) -> Evaluation:
        """Return the metrics on a part."""
        return self.inspect(model, part, bootstrap=bootstrap).evaluation

    def baselines(self, model: nn.Module, part: P, settings: Mapping[str, Any]) -> dict[str, Evaluation]:
        """Return the metrics of simpler models on a part by name, to compare a run with.

        Args:
            model: trained and completed.
            part: with labels.
            settings: what `complete_model` returned.
        """
        return {}

    def calibrate(self, model: nn.Module, validation: P) -> dict[str, Any]:
        """Return plain values that turn outputs into decisions, learned on the validation part and saved in the run."""
        return {}


class WarmUp(Options):
    """Start with another `loss` for so many `steps`, at a `learning_rate` of its own if given; `reset_last_layer` draws
    the last layer anew after them."""

    loss: str = "listwise-cross-entropy"
    steps: Count
    learning_rate: Positive | None = None
    reset_last_layer: bool = False

    @field_validator("loss")
    @classmethod
    def _known(cls, name: str) -> str:
        return LossChoice.of(name).name

    def check_budget(self, budget: Budget) -> None:
        """Refuse a warm-up that leaves no step to the loss itself."""
        if budget.steps is not None and self.steps >= budget.steps:
            raise ValueError(f"expected a warm_up shorter than the {budget.steps} steps of the budget")

    def wrap_loss(self, loss: ListLoss, create: Callable[[LossChoice], ListLoss]) -> SwitchLoss:
        """Return the loss with the loss of the warm-up before it; `create` makes that one."""
        return SwitchLoss(create(LossChoice.of(self.loss)), loss, after=self.steps)

    def finish(self, model: nn.Module, loss: nn.Module) -> None:
        """Draw the last layer anew if this is the first step after the warm-up; called before the forward pass."""
        if self.reset_last_layer and loss.training and isinstance(loss, SwitchLoss) and loss.steps == loss.after:
            reset_last_layer(model)

    def build_schedule(
        self, schedule: ScheduleOptions, options: OptimiserOptions, optimiser: Optimizer, steps: int
    ) -> LRScheduler:
        """Return the schedule of a run, with the learning rate of the warm-up in its first steps."""
        if self.learning_rate is None:
            return schedule.build(optimiser, steps)
        return schedule.build(optimiser, steps, first=(self.steps, self.learning_rate / options.learning_rate))
