"""Fair times on a noisy machine: contenders take turns, and every run is kept."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import torch

__all__ = ["Effort", "Times", "interleave"]

Name = TypeVar("Name")

# Seconds of a run that is a turn by itself.
_LONG = 1.0


@dataclass(frozen=True)
class Effort:
    """How long to measure.

    Attributes:
        rounds: in each round every contender has one turn.
        seconds: a contender whose runs add up to this sits out further rounds, once it has had `at_least` runs.
        at_least: fewest runs; one is enough for a contender whose warm-up takes longer than `patience` seconds.
        turn: a turn is two runs, or as many as begin within this many seconds; the first is not counted. So calls are
            measured as in a training loop, not in the wake of a neighbour that swept caches and memory. One run of
            more than a second is a turn.
    """

    rounds: int = 15
    seconds: float = 3.0
    at_least: int = 3
    patience: float = 10.0
    turn: float = 0.05


@dataclass(frozen=True)
class Times:
    """All runs of one contender, in seconds."""

    runs: tuple[float, ...]

    @property
    def median_ms(self) -> float:
        return 1000 * statistics.median(self.runs)

    @property
    def best_ms(self) -> float:
        return 1000 * min(self.runs)

    @property
    def quartiles_ms(self) -> tuple[float, float]:
        if len(self.runs) == 1:
            return self.median_ms, self.median_ms
        low, _, high = statistics.quantiles(self.runs, n=4, method="inclusive")
        return 1000 * low, 1000 * high


def interleave(
    calls: Mapping[Name, Callable[[], object]],
    effort: Effort,
    first: Mapping[Name, float] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[Name, Times]:
    """Time the calls in turns, starting each round with another of them.

    Args:
        calls: by name, already warmed up.
        effort: how long.
        first: seconds of the warm-up runs, which are not counted.
        clock: seconds.
    """
    first = first or {}
    runs: dict[Name, list[float]] = {name: [] for name in calls}
    at_least = {name: 1 if first.get(name, 0.0) > effort.patience else effort.at_least for name in calls}
    names = list(calls)
    _settle_allocator()
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        for number in range(effort.rounds):
            shift = number % max(1, len(names))
            for name in names[shift:] + names[:shift]:
                if len(runs[name]) < at_least[name] or sum(runs[name]) < effort.seconds:
                    runs[name] += _turn(calls[name], effort.turn, clock)
            gc.collect()
    finally:
        if collecting:
            gc.enable()
    return {name: Times(tuple(done)) for name, done in runs.items()}


def _settle_allocator() -> None:
    """Free a block of 31 MiB, as any training process has done: glibc then keeps up to 62 MiB that were freed.

    Until then it gives memory back to the system beyond twice the largest block freed so far, and fresh pages cost
    every contender that holds two large matrices at once up to a fifth of its time.
    """
    torch.zeros(31 * 2**18)


def _turn(call: Callable[[], object], seconds: float, clock: Callable[[], float]) -> list[float]:
    runs: list[float] = []
    begin = clock()
    while not runs or clock() - begin < seconds or (len(runs) == 1 and runs[0] < _LONG):
        start = clock()
        call()
        runs.append(clock() - start)
    return runs[1:] or runs
