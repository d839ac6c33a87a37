"""From which size on sorting beats all pairs: `python -m benchmarks.speed.crossover [--quick] [--threads N]`.

Times `pair_sums` by both methods, value and gradients, on lists of many shapes, and fits what the choice between them
needs: nanoseconds of a pair, of an item to sort, and how much more the sorted method costs to begin with. The constants
of `rankwise.pairs.sums` come from here. Last it says what choosing by them costs against always choosing right.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from benchmarks.speed.facts import machine_facts, thread_gain
from benchmarks.speed.peak import THREADS
from benchmarks.speed.timing import Effort, interleave
from rankwise.pairs import pair_sums
from rankwise.pairs.sums import _cheaper
from rankwise.surrogates import OneSidedHuber, SquaredHinge, Surrogate

__all__ = ["Shape", "Timed", "fit", "main"]

METHODS = ("dense", "sorted")
SURROGATES: dict[str, Surrogate] = {"Huber": OneSidedHuber(0.1), "squared hinge": SquaredHinge(1.0)}


@dataclass(frozen=True)
class Shape:
    """Lists, anchors of each and others of each."""

    lists: int
    anchors: int
    others: int

    @property
    def pairs(self) -> int:
        return self.lists * self.anchors * self.others

    @property
    def items(self) -> int:
        return self.lists * (self.anchors + self.others)


@dataclass(frozen=True)
class Timed:
    """Milliseconds of both methods on one shape."""

    shape: Shape
    surrogate: str
    dense: float
    sorted: float


SHAPES = (
    *(Shape(1, anchors, 16 * anchors) for anchors in (16, 64, 128, 256, 512, 1024)),
    *(Shape(64, anchors, 100) for anchors in (4, 16, 32, 64, 100)),
    *(Shape(256, anchors, 300) for anchors in (4, 16, 32, 64, 128)),
    *(Shape(256, anchors, 1000) for anchors in (3, 10, 30, 100)),
)


def _step(shape: Shape, surrogate: Surrogate, method: str) -> Callable[[], object]:
    random = torch.Generator().manual_seed(0)
    anchors = torch.randn(shape.lists, shape.anchors, generator=random).mul_(0.1).requires_grad_()
    others = torch.randn(shape.lists, shape.others, generator=random).mul_(0.1).requires_grad_()
    return lambda: torch.autograd.grad(pair_sums(anchors, others, surrogate, method=method).sum(), (anchors, others))


def measure(shapes: Sequence[Shape], effort: Effort) -> list[Timed]:
    """All shapes and both methods take turns. On one thread CPU time counts, so that other programs matter less."""
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    calls = {
        (shape, name, method): _step(shape, surrogate, method)
        for shape in shapes
        for name, surrogate in SURROGATES.items()
        for method in METHODS
    }
    for call in calls.values():
        call()
    times = interleave(calls, effort, clock=clock)
    return [
        Timed(shape, name, *(times[shape, name, method].median_ms for method in METHODS))
        for shape in shapes
        for name in SURROGATES
    ]


def fit(timed: Sequence[Timed]) -> tuple[float, float, float]:
    """Nanoseconds of a pair, of an item to sort, and the difference of the fixed parts, by least relative squares."""
    (dense_start, pair), (sorted_start, item) = (
        _line([size(one.shape) for one in timed], [took(one) for one in timed])
        for size, took in ((lambda s: s.pairs, lambda t: t.dense), (lambda s: s.items, lambda t: t.sorted))
    )
    return 1e6 * pair, 1e6 * item, 1e6 * (sorted_start - dense_start)


def _line(sizes: Sequence[float], times: Sequence[float]) -> tuple[float, float]:
    columns = np.stack([np.ones(len(sizes)), np.asarray(sizes)], 1) / np.asarray(times)[:, None]
    start, slope = np.linalg.lstsq(columns, np.ones(len(sizes)), rcond=None)[0]
    return float(start), float(slope)


def _table(timed: Sequence[Timed]) -> str:
    lines = [
        "| lists x anchors x others | surrogate | dense ms | sorted ms | chosen | costs |",
        "|---|---|--:|--:|---|--:|",
    ]
    for one in timed:
        shape = one.shape
        chosen = _cheaper(SURROGATES[one.surrogate], shape.lists, shape.anchors, shape.others)
        cost = getattr(one, chosen) / min(one.dense, one.sorted)
        size = f"{shape.lists} x {shape.anchors} x {shape.others:,}"
        lines.append(f"| {size} | {one.surrogate} | {one.dense:.3g} | {one.sorted:.3g} | {chosen} | {cost:.2f} x |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.crossover", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few runs of every third shape")
    parser.add_argument("--threads", type=int, default=THREADS, help="of torch")
    options = parser.parse_args(arguments)
    facts = machine_facts(thread_gain(options.threads), options.quick)
    effort = Effort(rounds=3, seconds=0.1, at_least=1, turn=0.01) if options.quick else Effort(rounds=9, seconds=1.0)
    timed = measure(SHAPES[::3] if options.quick else SHAPES, effort)
    pair, item, fixed = fit(timed)
    print(f"Measured: {facts}.\n\n{_table(timed)}\n")
    print(f"fitted: {pair:.2f} ns a pair, {item:.0f} ns an item to sort, sorting begins {fixed / 1000:.0f} us later")
    print(f"one list of 1 anchor to 16 others: sorting wins from {_crossover(pair, item, fixed):,} anchors on")
    return 0


def _crossover(pair: float, item: float, fixed: float) -> int:
    anchors = 1
    while pair * 16 * anchors**2 <= fixed + item * 17 * anchors:
        anchors += 1
    return anchors


if __name__ == "__main__":
    sys.exit(main())
