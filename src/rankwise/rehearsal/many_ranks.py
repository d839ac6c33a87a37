"""Costs of a step of a recipe on many ranks: the work of one rank is measured, the network computed from bytes."""

from __future__ import annotations

import math
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from rankwise.checks import check_count
from rankwise.data import Batch, Split
from rankwise.data.schema import DataNote
from rankwise.distributed import list_owners
from rankwise.losses import ListLoss
from rankwise.problems.load import load_about, load_problem
from rankwise.problems.problem import Problem
from rankwise.rehearsal.layouts import make_data

__all__ = ["Plan", "RankCost", "plan"]

# Batches that are measured, after some that are not.
MEASURED, WARM_UP = 5, 2
# DDP sends gradients in buckets of so many bytes, a collective each.
BUCKET = 25 << 20
# Collectives of a loss over lists that live on one rank, and of one that gathers the batch (benchmarks/scale/lists.py).
LOCAL, GATHERED = 1, 5


@dataclass(frozen=True)
class RankCost:
    """Costs of a step on one of `ranks` ranks.

    Attributes:
        ranks: number of ranks.
        rows: of the share of a rank in the batch, on average.
        compute_seconds: of the model and the loss, measured on this machine on the share of one rank.
        network_bytes: that a rank sends, and receives, in a step.
        collectives: in a step.
        network_seconds: of them, one after the other, nothing overlapped.
        weights_bytes: of parameters, gradients and the optimiser.
        state_bytes: of the state of the loss after one epoch.
    """

    ranks: int
    rows: float
    compute_seconds: float
    network_bytes: float
    collectives: int
    network_seconds: float
    weights_bytes: int
    state_bytes: float

    @property
    def step_seconds(self) -> float:
        """Return the seconds of a step."""
        return self.compute_seconds + self.network_seconds


@dataclass(frozen=True)
class Plan:
    """Costs of a step on one rank and on many.

    Attributes:
        lists_local: whether lists live on one rank, so that nothing is gathered.
        steps: of the whole run.
        alone: the costs on one rank.
        many: the costs on each of many.
        made: whether the data were made at random, in the shape that the recipe states.
    """

    lists_local: bool
    steps: int
    alone: RankCost
    many: RankCost
    made: bool

    @property
    def speed_up(self) -> float:
        """Return how many times faster a step is on many ranks."""
        return self.alone.step_seconds / self.many.step_seconds


def plan(
    recipe: str | Path,
    changes: Sequence[str] = (),
    *,
    ranks: int,
    gigabits: float,
    latency: float = 20e-6,
    tell: Callable[[str], None] | None = None,
) -> Plan:
    """Measure the work of one rank of many on this machine, and compute what the network adds.

    Gradients are averaged over all ranks in a ring: each sends 2 (W - 1) / W times their bytes. Lists that live on one
    rank need one more sum of three numbers; otherwise scores, labels and ids of the batch are gathered, and every rank
    computes the whole loss. Every collective takes `latency` for each of log2(W) rounds.

    Args:
        recipe: a file or a name, see `load_problem`. Without its data, they are made in the shape of `about.shape`.
        changes: to the recipe, `key=value` each.
        ranks: W, the number of ranks.
        gigabits: per second that the network gives each rank.
        latency: seconds of one round of messages.
        tell: called with what is being done.
    """
    check_count("ranks", ranks)
    for name, value in (("gigabits", gigabits), ("latency", latency)):
        if not (value > 0 and math.isfinite(value)):
            raise ValueError(f"{name}: expected a number above 0, got {value!r}")
    tell = tell or (lambda text: None)
    problem, about = load_problem(recipe, changes), load_about(recipe)
    missing = not all(path.exists() for path in problem.files())
    with tempfile.TemporaryDirectory(prefix="rankwise-plan-") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("default", DataNote)
        if missing and about is not None and about.shape is not None:
            tell("making data")
            made = make_data(Path(folder), about.shape)
            problem = load_problem(recipe, [*made.changes, *changes])
            warnings.simplefilter("ignore", DataNote)
        tell("reading")
        schema, split = problem.read({})
        measured = _Measured(problem, schema, problem.cut(split, problem.seeds[0]), tell)
        alone, many = (measured.cost(world, gigabits, latency) for world in (1, ranks))
    return Plan(measured.local, measured.steps, alone, many, missing)


class _Measured:
    """One step of a problem, taken apart."""

    def __init__(self, problem: Problem[Any, Any], schema: Any, cut: Split[Any], tell: Callable[[str], None]) -> None:
        torch.manual_seed(problem.seeds[0])
        self.problem = problem
        self.loader = problem.train_loader(cut.train, problem.seeds[0])
        self.steps = problem.budget.in_steps(len(self.loader) // problem.gradient.accumulate)
        self.model = problem.build_model(schema)
        problem.fit_model(self.model, cut.train)
        self.loss = problem.build_loss(schema, cut.train, steps=self.steps)
        if not isinstance(self.loss, ListLoss):
            raise ValueError(
                f"recipe: expected a problem whose loss ranks lists, got {problem.kind} with {type(self.loss).__name__}"
            )
        other = problem.build_loss(schema, cut.train, steps=self.steps)
        local = getattr(problem, "lists_on_ranks", False) and isinstance(other, ListLoss) and other.keep_lists_local()
        self.local = bool(local)
        tell("measuring")
        self.batches: list[Batch] = list(islice(iter(self.loader), WARM_UP + MEASURED))
        if not self.batches:
            raise ValueError("recipe: expected at least one batch in an epoch, got none")
        self.whole = self._seconds(self.loss, 1)
        self.model_alone = self._seconds(_Sum(), 1)
        self.weights = self._weights_bytes()

    def cost(self, world: int, gigabits: float, latency: float) -> RankCost:
        """Return the costs of a step on one of some ranks."""
        rows = sum(len(batch.labels) for batch in self.batches) / len(self.batches)
        gradients = sum(p.numel() * p.element_size() for p in self.model.parameters() if p.requires_grad)
        if world == 1:
            compute, sent, collectives = self.whole, 0.0, 0
        else:
            sent, collectives = 2 * (world - 1) / world * gradients, math.ceil(gradients / BUCKET)
            if self.local:
                compute, collectives = self._seconds(self.loss, world), collectives + LOCAL
            else:
                # Every rank scores its share and computes the loss of all.
                compute = self._seconds(_Sum(), world) + max(0.0, self.whole - self.model_alone)
                sent, collectives = sent + (world - 1) / world * rows * self._row_bytes(), collectives + GATHERED
        network = sent * 8 / (gigabits * 1e9) + collectives * latency * math.ceil(math.log2(max(2, world)))
        state = self._state_bytes() / (world if self.local else 1)
        if world == 1:
            network = 0.0
        return RankCost(world, rows / world, compute, sent, collectives, network, self.weights, state)

    def _seconds(self, loss: nn.Module, world: int) -> float:
        """Return the CPU seconds of model and loss on the share of one of some ranks, forward and backward."""
        self.model.train()
        loss.train()
        times = []
        for number, batch in enumerate(self.batches):
            share = self._share(batch, world, number)
            begin = time.thread_time()
            value = self.problem.training_step(self.model, loss, share)
            if value.requires_grad:
                value.backward()
            times.append(time.thread_time() - begin)
            self.model.zero_grad(set_to_none=True)
        return median(times[min(WARM_UP, len(times) - 1) :])

    def _share(self, batch: Batch, world: int, number: int) -> Batch:
        """Return the rows of a batch that belong to one rank, another one for every batch."""
        count, rank = len(batch.labels), number % world
        rows = torch.arange(count) % world == rank
        if self.local and batch.query_ids is not None:
            rows = torch.from_numpy(list_owners(batch.query_ids.numpy(), world) == rank)
        if not bool(rows.any()):
            rows[0] = True
        share: Batch = tree_map_only(Tensor, lambda each: each[rows] if len(each) == count else each, batch)
        return share

    def _row_bytes(self) -> int:
        """Return the bytes of a row that are gathered: a score, a label and ids."""
        batch = self.batches[0]
        ids = [each for each in (batch.labels, batch.sample_ids, batch.query_ids) if each is not None]
        return 4 + sum(each[0].numel() * each.element_size() for each in ids)

    def _weights_bytes(self) -> int:
        optimiser = self.problem.optimiser.build([*self.model.parameters(), *self.loss.parameters()])
        for group in optimiser.param_groups:
            for parameter in group["params"]:
                parameter.grad = torch.zeros_like(parameter)
                group["lr"] = 0.0
        optimiser.step()
        tensors = [each for state in optimiser.state.values() for each in state.values() if isinstance(each, Tensor)]
        total = sum(each.numel() * each.element_size() for each in tensors)
        total += 2 * sum(p.numel() * p.element_size() for p in self.model.parameters())
        self.model.zero_grad(set_to_none=True)
        return total

    def _state_bytes(self) -> float:
        """Return the bytes of the state of the loss after an epoch, in proportion to those of the batches seen."""
        values = [value for value in self.loss.state_dict().values() if isinstance(value, Tensor)]
        seen = sum(each.numel() * each.element_size() for each in values)
        return seen * max(1.0, len(self.loader) / len(self.batches))


class _Sum(nn.Module):
    """Sum of the scores, instead of a loss: what is left of a step is the model."""

    def forward(self, scores: Tensor, *_: Any, **__: Any) -> Tensor:
        return scores.sum()
