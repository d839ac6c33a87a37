"""Training for an hour with pauses, restarts and an id space that grows and shrinks: what is lost, and what leaks?

python -m benchmarks.trust.soak --minutes 60 --share 0.25 --out soak.json

Each cycle trains one loss twice: undisturbed, and with restarts at random steps, at each of which everything goes
through a checkpoint on the disk and new objects. The ids of a cycle lie anywhere in int64, and there are between 100
and 20,000 of them; within a cycle their range grows. Weights, loss state, sampler and metrics must be equal bit for bit
at the end, and the memory of the process must stay flat over the cycles.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import logging
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from benchmarks.trust.memory import resident_mib, slope_per_hour
from rankwise import evaluate
from rankwise.data import Part, Split, TableSchema
from rankwise.losses import (
    AUPRCLoss,
    LateMemoryLoss,
    ListStatistics,
    ListwiseCELoss,
    NDCGLoss,
    PApLoss,
    PriorSchedule,
    SemiVarianceLoss,
    StableAPLoss,
    SumLoss,
    SwitchLoss,
    TopKNDCGLoss,
    create_loss,
)
from rankwise.problems import SearchRanking
from rankwise.samplers import QueryBatchSampler
from rankwise.training import Checkpoints, Interrupted, Step, fit

FEATURES, STAGES = 12, 3
PARTS = ("model", "loss", "optimiser", "sampler")
GRADED = ("song", "k-song", "solc, then song")
# Resident memory settles while caches and arenas fill; the slope is that of the time after this share.
WARM_UP = 0.25
LARGEST_SLOPE = 10.0  # MiB an hour

LOSSES: dict[str, Callable[[Data], nn.Module]] = {
    "soprc + semi-variance": lambda _: SumLoss(AUPRCLoss(PriorSchedule(0.5, 0.1, steps=100)), SemiVarianceLoss(3, 15)),
    "stable AP": lambda _: StableAPLoss(update_rate=0.1),
    "soap": lambda _: create_loss("soap"),
    "song": lambda data: NDCGLoss(data.statistics),
    "k-song": lambda data: TopKNDCGLoss(5, data.statistics, selector_gradient="full"),
    "solc, then song": lambda data: SwitchLoss(ListwiseCELoss(data.statistics), NDCGLoss(data.statistics), after=100),
    "pap": lambda _: PApLoss(k=5),
    "late memory": lambda _: LateMemoryLoss(AUPRCLoss(), memory=600, after=50),
}


@dataclass(frozen=True)
class Data:
    """Lists with features, grades and ids of their own, sorted by list."""

    features: Tensor
    grades: Tensor
    query_ids: Tensor
    sample_ids: Tensor
    statistics: ListStatistics

    @classmethod
    def drawn(cls, rows: int, seed: int) -> Data:
        generator = torch.Generator().manual_seed(seed)
        features = torch.randn(rows, FEATURES, generator=generator)
        grades = (features[:, 0] + torch.randn(rows, generator=generator)).round().clamp(0, 3).long()
        lists = torch.arange(rows) // 20
        # Ids anywhere in int64: what is remembered must not depend on their size or sign.
        spread = torch.randint(-(2**62), 2**62, (int(lists.max()) + 1,), generator=generator).unique()
        queries = spread[lists]
        samples = torch.randint(-(2**63), 2**63 - 1, (rows,), generator=generator)
        return cls(features, grades, queries, samples, ListStatistics(grades, queries))


class Training:
    """A training by hand, as users write it. It goes through stages: a third of the lists, two thirds, all of them."""

    def __init__(self, kind: str, data: Data, steps: int) -> None:
        torch.manual_seed(0)
        self.kind, self.data, self.steps = kind, data, steps
        self.model = nn.Linear(FEATURES, 8 if kind == "late memory" else 1)
        self.loss = LOSSES[kind](data)
        self.optimiser = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.step, self.stage = 0, 0
        self.sampler = self._sampler()

    def run(self) -> Iterator[None]:
        """Step by step to the end."""
        while self.stage < STAGES:
            for batch in self.sampler:
                self._train(torch.tensor(batch))
                yield
            self.stage += 1
            self.sampler = self._sampler()

    def save(self) -> dict[str, Any]:
        return {name: getattr(self, name).state_dict() for name in PARTS} | {"step": self.step, "stage": self.stage}

    def load(self, state: dict[str, Any]) -> None:
        self.step, self.stage = state["step"], state["stage"]
        self.sampler = self._sampler()
        for name in PARTS:
            getattr(self, name).load_state_dict(state[name])

    def measure(self) -> dict[str, float]:
        with torch.no_grad():
            scores = self.model(self.data.features)[:, 0]
        return evaluate(scores, self.data.grades > 0, ["ap", "pap@5"], query_ids=self.data.query_ids).means

    def _sampler(self) -> QueryBatchSampler:
        rows = len(self.data.grades) * min(self.stage + 1, STAGES) // STAGES
        return QueryBatchSampler(
            self.data.grades[:rows],
            self.data.query_ids[:rows],
            queries=2,
            relevant=3,
            irrelevant=9,
            batches=self.steps // STAGES,
            seed=self.stage,
        )

    def _train(self, batch: Tensor) -> None:
        outputs, grades = self.model(self.data.features[batch]), self.data.grades[batch]
        ids = {"query_ids": self.data.query_ids[batch], "sample_ids": self.data.sample_ids[batch]}
        if self.kind == "late memory":
            value = self.loss(outputs, grades)
        elif self.kind in GRADED:
            value = self.loss(outputs[:, 0], grades, **ids)
        else:
            value = self.loss(outputs[:, 0], (grades > 0).long(), **ids)
        self.optimiser.zero_grad()
        value.backward()
        self.optimiser.step()
        self.step += 1


class Cycle(NamedTuple):
    """What one cycle gave."""

    seconds: float
    kind: str
    rows: int
    steps: int
    restarts: int
    equal: bool
    mib: float


class Soak:
    """Cycles until the time is over.

    Args:
        minutes: how long.
        share: of one core to use; the rest is pause.
        seed: decides sizes and moments.
    """

    def __init__(self, minutes: float, share: float, seed: int) -> None:
        self.minutes, self.share, self.random = minutes, share, random.Random(seed)
        self.cycles: list[Cycle] = []
        self._began, self._rested = time.monotonic(), time.process_time()

    def run(self, on_cycle: Callable[[Cycle], None]) -> None:
        for kind in itertools.cycle([*LOSSES, "fit"]):
            rows = self.random.choice((200, 1_000, 5_000, 20_000))
            seed, steps = self.random.randrange(2**31), STAGES * self.random.randrange(40, 160)
            stops = sorted(self.random.sample(range(1, steps), self.random.randrange(1, 8)))
            data = Data.drawn(rows, seed)
            equal = (self._fit if kind == "fit" else self._by_hand)(kind, data, steps, stops)
            del data
            gc.collect()
            done = Cycle(time.monotonic() - self._began, kind, rows, steps, len(stops), equal, resident_mib())
            self.cycles.append(done)
            on_cycle(done)
            if done.seconds > 60 * self.minutes:
                return

    def _by_hand(self, kind: str, data: Data, steps: int, stops: list[int]) -> bool:
        straight = Training(kind, data, steps)
        for _ in straight.run():
            self._rest()
        with tempfile.TemporaryDirectory() as folder:
            disturbed = self._disturbed(kind, data, steps, stops, Checkpoints(Path(folder), keep=1))
        return same(straight.save(), disturbed.save()) and straight.measure() == disturbed.measure()

    def _disturbed(self, kind: str, data: Data, steps: int, stops: list[int], store: Checkpoints) -> Training:
        for stop in [*stops, None]:
            training = Training(kind, data, steps)
            state, damaged = store.newest()
            assert not damaged
            if state is not None:
                training.load(state)
            for _ in training.run():
                self._rest()
                if training.step == stop:
                    store.save(training.save(), training.step)
                    self._pause()
                    break
        return training

    def _fit(self, kind: str, data: Data, steps: int, stops: list[int]) -> bool:
        """The library's own loop, stopped by SIGTERM."""
        part = Part(data.features, data.grades, data.query_ids)
        schema, split = TableSchema.of(part), Split(part, part, part)
        problem = SearchRanking(
            model={"hidden": [8], "scaling": "none"},
            batches={"queries": 2, "relevant": 3, "irrelevant": 9},
            optimiser={"learning_rate": 0.01},
            schedule={"name": "constant"},
            budget={"steps": steps},
            evaluation={"every": None, "weights": "last"},
        )

        def trained(folder: str, stops: list[int]) -> tuple[dict[str, Any], dict[str, float]]:
            store, waiting = Checkpoints(Path(folder), keep=1), set(stops)

            def on_step(step: Step) -> None:
                self._rest()
                if step.number in waiting:
                    waiting.remove(step.number)
                    os.kill(os.getpid(), signal.SIGTERM)

            while True:
                try:
                    fitted = fit(problem, schema, split, checkpoints=store, start=store.newest()[0], on_step=on_step)
                except Interrupted:
                    self._pause()
                    continue
                state = store.newest()[0]
                assert state is not None
                del state["history"]["seconds"]
                return state, problem.evaluate(fitted.model, part).means

        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
            straight, found = trained(one, [])
            disturbed, again = trained(other, stops)
        return same(straight, disturbed) and found == again

    def _rest(self) -> None:
        """Every quarter of a second of computing is followed by the pause that keeps to the share."""
        worked = time.process_time() - self._rested
        if worked > 0.25:
            time.sleep(worked * (1 / self.share - 1))
            self._rested = time.process_time()

    def _pause(self) -> None:
        time.sleep(self.random.uniform(0, 2))
        self._rested = time.process_time()


def same(left: Any, right: Any) -> bool:
    """Whether two nested states are equal, bit for bit."""
    if isinstance(left, Tensor):
        return isinstance(right, Tensor) and torch.equal(left, right)
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def summary(cycles: list[Cycle]) -> dict[str, Any]:
    """The figures of a soak."""
    settled = [each for each in cycles if each.seconds > WARM_UP * cycles[-1].seconds]
    slope, error = slope_per_hour([each.seconds for each in settled], [each.mib for each in settled])
    return {
        "minutes": round(cycles[-1].seconds / 60, 1),
        "cycles": len(cycles),
        "steps": sum(2 * each.steps for each in cycles),
        "restarts": sum(each.restarts for each in cycles),
        "unequal": sum(not each.equal for each in cycles),
        "mib_first": round(cycles[0].mib, 1),
        "mib_settled": round(settled[0].mib, 1),
        "mib_last": round(cycles[-1].mib, 1),
        "mib_most": round(max(each.mib for each in cycles), 1),
        "mib_per_hour": round(slope, 2),
        "mib_per_hour_error": round(error, 2),
    }


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--minutes", type=float, default=60)
    options.add_argument("--share", type=float, default=1.0, help="of one core")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--out", type=Path, help="a JSON file for the figures and every cycle")
    given = options.parse_args()
    torch.set_num_threads(1)
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    soak = Soak(given.minutes, given.share, given.seed)

    def on_cycle(done: Cycle) -> None:
        print(f"{done.seconds:7.0f} s  {done.mib:7.1f} MiB  {'equal' if done.equal else 'UNEQUAL':8}", end="")
        print(f"{done.kind}: {done.rows} rows, {done.steps} steps, {done.restarts} restarts", flush=True)

    soak.run(on_cycle)
    found = summary(soak.cycles)
    for name, value in found.items():
        print(f"{name:20} {value}")
    if given.out:
        cycles = [each._asdict() for each in soak.cycles]
        given.out.write_text(json.dumps({"summary": found, "cycles": cycles}, indent=1) + "\n")
    return int(found["unequal"] > 0 or found["mib_per_hour"] > LARGEST_SLOPE)


if __name__ == "__main__":
    sys.exit(main())
