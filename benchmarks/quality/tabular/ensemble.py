"""Many small networks trained at once, each on its own data: a batch of lists is a batch for each of them.

A list loss keeps lists apart (the other lists of a batch change nothing, and what is remembered is kept by list), so a
row of scores per network and the sum over rows trains every network as if it were alone, at a fraction of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader, Dataset

from rankwise.data import Batch, Part, Split
from rankwise.losses import create_loss
from rankwise.metrics import Evaluation, evaluate
from rankwise.models import MLPScorer
from rankwise.samplers import BinaryBatchSampler
from rankwise.training import (
    AverageOptions,
    Budget,
    CheckpointOptions,
    DeviceOptions,
    EvaluationOptions,
    Fitted,
    GradientOptions,
    OptimiserOptions,
    Outputs,
    ScheduleOptions,
    Step,
    fit,
)

__all__ = ["Ensemble", "Member", "draw_batches", "train_ensemble"]


@dataclass(frozen=True)
class Member:
    """One network: the seed of its weights and batches, its data, and which rows its batches hold, (steps, B)."""

    seed: int
    split: Split[Part]
    batches: Tensor


@dataclass(frozen=True)
class Ensemble:
    """A `Trainable` of several networks 64-64 and one loss; "ap" is the mean, "0", "1", ... are those of the members.

    Its parts are the names of the parts of its members' splits.

    Attributes:
        members: what each network learns from.
        loss: a registered name; loss_options: its options.
        budget, optimiser, schedule, evaluation: of the training.
    """

    members: Sequence[Member]
    loss: str
    loss_options: Mapping[str, Any] = field(default_factory=dict)
    metric: str = "ap"
    budget: Budget = field(default_factory=lambda: Budget(steps=500))
    optimiser: OptimiserOptions = field(default_factory=OptimiserOptions)
    schedule: ScheduleOptions = field(default_factory=ScheduleOptions)
    evaluation: EvaluationOptions = field(default_factory=lambda: EvaluationOptions(every=None, weights="last"))
    checkpoints: CheckpointOptions = field(default_factory=CheckpointOptions)
    gradient: GradientOptions = field(default_factory=GradientOptions)
    average: AverageOptions | None = None
    device: DeviceOptions = field(default_factory=lambda: DeviceOptions(accelerator="cpu"))

    def build_model(self, schema: None) -> nn.Module:
        inputs = self.members[0].split.train.features.shape[1]
        return _Stacked([_network(inputs, member.seed) for member in self.members])

    def fit_model(self, model: nn.Module, train: str) -> None:
        """Learn nothing besides the weights."""

    def build_loss(self, schema: None, train: str, *, steps: int) -> nn.Module:
        loss: nn.Module = create_loss(self.loss, reduction="sum", **self.loss_options)
        return loss

    def build_schedule(self, optimiser: Optimizer, steps: int) -> LRScheduler:
        return self.schedule.build(optimiser, steps)

    def train_loader(self, train: str, seed: int) -> DataLoader[Batch]:
        return DataLoader(_Stack(self.members), batch_size=None)

    def training_step(
        self, model: nn.Module, loss: nn.Module, batch: Batch, *, previous: Outputs | None = None
    ) -> Tensor:
        value: Tensor = loss(
            model(batch.features), batch.labels, sample_ids=batch.sample_ids, query_ids=torch.arange(len(self.members))
        )
        return value

    def probe_batch(self, train: str) -> Batch:
        """Return the first batch."""
        return _Stack(self.members)[0]

    def evaluate(self, model: nn.Module, part: str, *, bootstrap: int = 0) -> Evaluation:
        parts = [member.split.part(part) for member in self.members]
        # Folds differ by a row or two.
        longest = max(map(len, parts))
        rows = torch.stack([nn.functional.pad(p.features, (0, 0, 0, longest - len(p))) for p in parts])
        with torch.no_grad():
            scores = model(rows)
        results = [evaluate(row[: len(p)], p.labels, ["ap"], bootstrap=0) for row, p in zip(scores, parts, strict=True)]
        values = [result.means["ap"] for result in results]
        means = {"ap": sum(values) / len(values)} | {str(index): value for index, value in enumerate(values)}
        return replace(results[0], means=means)


def train_ensemble(ensemble: Ensemble, on_step: Callable[[Step], None] | None = None) -> Fitted:
    """Train all members."""
    return fit(ensemble, None, Split("train", "validation", "test"), on_step=on_step)


def draw_batches(labels: Tensor, *, size: int, positives: int | None, steps: int, seed: int) -> Tensor:
    """Which rows each batch holds, (steps, size): so many positives, or drawn like the data, each row once per pass."""
    if positives is not None:
        negatives = size - positives
        sampler = BinaryBatchSampler(labels, positives=positives, negatives=negatives, batches=steps, seed=seed)
        return torch.tensor(list(sampler))
    generator = torch.Generator().manual_seed(seed)
    full = len(labels) // size
    passes = [torch.randperm(len(labels), generator=generator)[: full * size] for _ in range(-(-steps // full))]
    return torch.cat(passes).view(-1, size)[:steps]


def _network(inputs: int, seed: int) -> MLPScorer:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return MLPScorer(inputs, hidden=(64, 64))


class _Stacked(nn.Module):
    """Networks of one shape as one: rows (Q, N, D) to scores (Q, N)."""

    def __init__(self, networks: Sequence[MLPScorer]) -> None:
        super().__init__()
        layers = [[layer for layer in network.layers if isinstance(layer, nn.Linear)] for network in networks]
        weights = [torch.stack([layer.weight.detach().T for layer in same]) for same in zip(*layers, strict=True)]
        biases = [torch.stack([layer.bias.detach()[None] for layer in same]) for same in zip(*layers, strict=True)]
        self.weights = nn.ParameterList(map(nn.Parameter, weights))
        self.biases = nn.ParameterList(map(nn.Parameter, biases))

    def forward(self, features: Tensor) -> Tensor:
        for place, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            features = torch.baddbmm(bias, features.relu() if place else features, weight)
        return features[..., 0]


class _Stack(Dataset[Batch]):
    """The s-th batch of every member, side by side."""

    def __init__(self, members: Sequence[Member]) -> None:
        self.members = members
        self.features = torch.cat([member.split.train.features for member in members])
        self.labels = torch.cat([member.split.train.labels for member in members])
        lengths = torch.tensor([len(member.split.train) for member in members])
        self.starts = lengths.cumsum(0) - lengths

    @cached_property
    def rows(self) -> Tensor:
        return torch.stack([member.batches for member in self.members], 1)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Batch]:
        return (self[step] for step in range(len(self)))

    def __getitem__(self, step: int) -> Batch:
        rows = self.rows[step]
        places = rows + self.starts[:, None]
        return Batch(self.features[places], self.labels[places], rows, None)
