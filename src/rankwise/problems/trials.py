"""Fair comparisons: every contender has the same seeds and learning rates, and chooses on validation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from torch import nn

from rankwise.data import Part, Split, TableSchema
from rankwise.problems.problem import Problem
from rankwise.training import History, fit

__all__ = ["Contender", "Outcome", "Summary", "Trial", "compete", "summarise", "tabulate_seeds"]

# So few values are listed: an interval of their mean would pretend to know more than they say.
_FEW_SEEDS = 3


@dataclass(frozen=True)
class Contender:
    """One way to solve a problem on rows in memory.

    Attributes:
        name: in tables.
        problem: what to train.
        data: the split of a seed; contenders to be compared must cut the data alike for the same seed.
        steps: optimiser steps of a run.
    """

    name: str
    problem: Problem[TableSchema, Part]
    data: Callable[[int], Split[Part]]
    steps: int


@dataclass(frozen=True)
class Trial:
    """The run of a contender with one seed that did best on validation.

    Attributes:
        seed: of the cut of the data, the initial weights and the batches.
        learning_rate: the chosen one; None if nothing was trained.
        test: metrics on the test part, by name.
        problem, split, model, history: of that run.
    """

    seed: int
    learning_rate: float | None
    test: dict[str, float]
    problem: Problem[TableSchema, Part]
    split: Split[Part]
    model: nn.Module
    history: History


@dataclass(frozen=True)
class Outcome:
    """All trials of a contender, one per seed, in the order of the seeds."""

    contender: Contender
    trials: tuple[Trial, ...]

    def values(self, metric: str) -> list[float]:
        """Return a metric on the test part, one value per seed."""
        return [trial.test[metric] for trial in self.trials]

    def summary(self, metric: str) -> Summary:
        """Return the mean and the interval of a metric that lies in [0, 1]; the interval is cut there."""
        return summarise(self.values(metric), within=(0.0, 1.0))

    @property
    def seconds(self) -> float:
        """Return the mean training time of a run."""
        return sum(trial.history.seconds for trial in self.trials) / len(self.trials)


@dataclass(frozen=True)
class Summary:
    """Summary of values over seeds: mean, sample standard deviation, and a 95 % interval of the mean."""

    mean: float
    std: float
    low: float
    high: float


def compete(
    contender: Contender,
    *,
    seeds: Sequence[int],
    rates: Sequence[float],
    on_step: Callable[[], None] | None = None,
) -> Outcome:
    """Run a contender with every seed and every learning rate; keep the rate that did best on validation.

    The test part is looked at once per seed, after the choice. Every run uses AdamW and a cosine schedule.

    Args:
        contender: what to run; with `steps=0` nothing is trained and the model is judged as it is built.
        seeds: one trial each.
        rates: learning rates to choose from; the first of equals is taken.
        on_step: called after every optimiser step.

    Returns:
        An `Outcome`.
    """
    return Outcome(contender, tuple(_trial(contender, seed, rates, on_step) for seed in seeds))


def summarise(values: Sequence[float], *, within: tuple[float, float] = (-math.inf, math.inf)) -> Summary:
    """Compute the mean and the 95 % interval (Student's t) of a few independent values; the interval is cut to the
    range `within`.

    Example:
        >>> summary = summarise([0.8, 0.9, 0.7])
        >>> round(summary.mean, 3), round(summary.low, 3), round(summary.high, 3)
        (0.8, 0.552, 1.048)
    """
    mean = float(np.mean(values))
    if len(values) < 2:
        return Summary(mean, math.nan, math.nan, math.nan)
    from scipy.special import stdtrit  # comes with scikit-learn

    std = float(np.std(values, ddof=1))
    reach = float(stdtrit(len(values) - 1, 0.975)) * std / math.sqrt(len(values))
    return Summary(mean, std, max(mean - reach, within[0]), min(mean + reach, within[1]))


def tabulate_seeds(
    seeds: Sequence[int], values: Mapping[str, Sequence[float]], *, differences: bool = False
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the columns and rows of a table of metrics over seeds.

    Up to three seeds are listed one by one; more get a 95 % interval within the range of a metric.

    Args:
        seeds: of the runs.
        values: by name, one value per seed, in [0, 1].
        differences: whether the values are differences of two such.

    Example:
        >>> tabulate_seeds([0, 1], {"ap": [0.8, 0.9]})
        (('mean', 'seed 0', 'seed 1'), [('ap', '0.8500', '0.8000', '0.9000')])
    """
    sign = "+" if differences else ""
    rows = []
    for name, each in values.items():
        summary = summarise(each, within=(-1.0 if differences else 0.0, 1.0))
        if len(seeds) <= _FEW_SEEDS:
            told = [f"{value:{sign}.4f}" for value in each]
        else:
            told = [f"{summary.low:{sign}.4f} to {summary.high:{sign}.4f}"]
        rows.append((name, f"{summary.mean:{sign}.4f}", *told))
    few = len(seeds) <= _FEW_SEEDS
    return ("mean", *(f"seed {seed}" for seed in seeds)) if few else ("mean", "95 % interval over seeds"), rows


def _trial(contender: Contender, seed: int, rates: Sequence[float], on_step: Callable[[], None] | None) -> Trial:
    problem, split = contender.problem, contender.data(seed)
    schema, test = TableSchema.of(split.train), split.part("test")
    if contender.steps == 0:
        model = problem.build_model(schema)
        return Trial(seed, None, problem.evaluate(model, test).means, problem, split, model, History())
    evaluation = {"every": max(1, contender.steps // 20), "weights": "last"}
    runs = {
        rate: fit(
            problem.changed(
                budget={"steps": contender.steps},
                optimiser={**dict(problem.optimiser), "learning_rate": rate},
                evaluation=evaluation,
            ),
            schema,
            split,
            seed=seed,
            on_step=None if on_step is None else lambda step: on_step(),
        )
        for rate in rates
    }
    best = max(runs, key=lambda rate: runs[rate].history.curve(problem.metric)[-1])
    run = runs[best]
    return Trial(seed, best, problem.evaluate(run.model, test).means, problem, split, run.model, run.history)
