"""Measure some steps and one evaluation of a recipe on made data, and extrapolate to the whole run."""

from __future__ import annotations

import math
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.nn.functional import normalize

from rankwise.checks import check_choice
from rankwise.data import ImagePart, Part, Split
from rankwise.data.schema import DataNote
from rankwise.metrics import evaluate_retrieval
from rankwise.problems.load import BadRecipe, load_about, load_problem
from rankwise.problems.problem import Problem
from rankwise.rehearsal.layouts import make_data
from rankwise.training import Step, fit
from rankwise.training.estimates import check_estimates

__all__ = ["Rehearsal", "rehearse"]

STEPS = 20
# Steps of the whole batch are extrapolated from smaller batches if they would take longer than this, or more than this
# share of the free memory.
LONGEST, MOST_MEMORY = 120.0, 0.6
# Steps before the times count, if there are some to spare; steps of smaller batches.
WARM_UP, FEW_STEPS = 2, 3
# The smaller batches: parts of the whole one, and at most so many images.
SMALLER = ((8, 12), (4, 28))
# Rows on which an evaluation is measured: as many as take so many seconds.
FIRST_ROWS, ENOUGH_SECONDS = 32, 3.0
# Vectors among which neighbours are looked for, to measure it.
NEIGHBOURS = 3000
GIB = 2.0**30

Told = Callable[[str], None]
Clock = Callable[[], float]
CLOCKS: dict[str, Clock] = {"wall": time.perf_counter, "cpu": time.process_time}


@dataclass(frozen=True)
class Rehearsal:
    """Costs of a recipe on this machine; all but `made` are those of the whole run.

    Attributes:
        made: what was made and run, in words.
        read_seconds: to read the data.
        memory_gib: at most, data included.
        free_gib: memory that is free here; None if the system does not say.
        step_seconds: of one step.
        steps: of the run.
        evaluation_seconds: of one evaluation on the validation part.
        evaluations: in the run.
        between_seconds: of the training between two evaluations; None without evaluations.
        test_seconds: of the evaluation on the test part.
        hours: of the run.
        problems: reasons why the recipe cannot be run as it is, with the key to change.
    """

    made: str
    read_seconds: float
    memory_gib: float
    free_gib: float | None
    step_seconds: float
    steps: int
    evaluation_seconds: float
    evaluations: int
    between_seconds: float | None
    test_seconds: float
    hours: float
    problems: tuple[str, ...]


def rehearse(
    name: str | Path,
    changes: Sequence[str] = (),
    *,
    steps: int = STEPS,
    clock: str = "wall",
    tell: Told | None = None,
) -> Rehearsal:
    """Make data of the shape that a recipe states, read them, take some steps, evaluate once, and extrapolate.

    The data are random, in their native layout, in a temporary folder that is deleted at the end; nothing else is
    written and nothing is downloaded. Images are decoded in this process (`data.workers: 0`). If the batches of an
    image problem would not fit into memory or take minutes, time and memory are extrapolated from two smaller batches,
    as straight lines.

    Args:
        name: a recipe with `about.shape`, see `load_problem`.
        changes: to the recipe, `key=value` each.
        steps: to take.
        clock: "wall", or "cpu" for the CPU time of this process: on a machine that is busy with other work, and with
            one thread, the time that the run would take alone.
        tell: called with what is being done.
    """
    tell, now = tell or (lambda text: None), CLOCKS[check_choice("clock", clock, CLOCKS)]
    about = load_about(name)
    if about is None or about.shape is None:
        raise BadRecipe(f"about.shape: missing; expected a recipe that states the shape of its data, got {name}")
    load_problem(name, changes)  # refuse bad changes before anything is made
    with tempfile.TemporaryDirectory(prefix="rankwise-rehearsal-") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", DataNote)
        tell("making data")
        made = make_data(Path(folder), about.shape)
        problem = _ready(load_problem(name, [*made.changes, *changes]), Path(folder))
        tell("reading")
        before, start = _resident(), now()
        schema, split = problem.read({})
        cut = problem.cut(split, problem.seeds[0])
        read_seconds = now() - start
        held = max(0.0, _resident() - before)
        cost = _step_cost(problem, schema, cut, steps, tell, now)
        tell("evaluating")
        of_validation = _EvaluationCost.measure(problem, schema, cut, now)
        cost = replace(cost, memory=max(cost.memory, _peak(problem)))
    return _extrapolate(problem, cut, made.rows, made.content, held, read_seconds, cost, of_validation)


@dataclass(frozen=True)
class _StepCost:
    """Seconds of a step, peak memory in bytes, and how they were measured."""

    seconds: float
    memory: float
    how: str


@dataclass(frozen=True)
class _EvaluationCost:
    """Seconds of an evaluation: for each row, for each pair of rows (neighbours), and for all together."""

    row: float
    pair: float
    once: float

    def of(self, rows: float) -> float:
        """Return the seconds of an evaluation of so many rows."""
        return self.row * rows + self.pair * rows * rows + self.once

    @classmethod
    def measure(cls, problem: Problem[Any, Any], schema: Any, cut: Split[Any], now: Clock) -> _EvaluationCost:
        """Measure on some rows of the validation part; the model is new, which costs as much as a trained one."""
        model = problem.build_model(schema)
        problem.fit_model(model, cut.train)
        part, pair = cut.part("validation"), 0.0
        vectors = problem.outputs == "vectors"
        rate = 0.0
        for rows, some in _growing(part):
            start = now()
            _ = problem.predict(model, some) if vectors else problem.evaluate(model, some)
            seconds = now() - start
            rate = seconds / rows
            if seconds >= ENOUGH_SECONDS:
                break
        if vectors:
            pair = _seconds_of_neighbours(problem, part, now)
        loss = problem.build_loss(schema, cut.train, steps=1)
        start = now()
        check_estimates(problem, model, loss, problem.probe_batch(cut.train))
        return cls(rate, pair, now() - start)


def _ready(problem: Problem[Any, Any], folder: Path) -> Problem[Any, Any]:
    """Return the problem as it is measured: the loss of its last phase from the start, no downloads, no processes."""
    groups: dict[str, Any] = {}
    if getattr(problem, "warm_up", None) is not None:
        groups["warm_up"] = None
    if (memory := getattr(problem, "memory", None)) is not None:
        groups["memory"] = {**dict(memory), "after": 0.0}
    data, model = problem.data, getattr(problem, "model", None)  # type: ignore[attr-defined]
    if getattr(data, "workers", 0):
        groups["data"] = {**dict(data), "workers": 0}
    if model is not None and getattr(model, "weights", None) == "imagenet":
        groups["model"] = {**dict(model), "weights": _random_weights(model, folder)}
    return problem.changed(**groups)  # type: ignore[no-any-return]


def _random_weights(model: Any, folder: Path) -> Path:
    """Write weights in the form of the published ones, drawn at random."""
    from rankwise.models.resnet import torchvision_for

    network = getattr(model, "backbone", None) or model.name
    path = folder / f"{network}.pt"
    torch.save(getattr(torchvision_for("ResNet").models, network)().state_dict(), path)
    return path


class _Enough(Exception):
    """Enough steps were taken."""


def _step_cost(
    problem: Problem[Any, Any], schema: Any, cut: Split[Any], steps: int, tell: Told, now: Clock
) -> _StepCost:
    """Return the cost of a step, measured, or extrapolated from smaller batches."""
    smaller = [_shrunk(problem, *each) for each in SMALLER]
    if isinstance(cut.train, Part) or not all(smaller):
        return _measured(problem, schema, cut, steps, tell, now)
    points = []
    for each in smaller:
        assert each is not None
        other, rows = each
        points.append((rows, _measured(other, schema, cut, min(FEW_STEPS, steps), tell, now)))
    (few, low), (more, high) = points
    whole = _shrunk(problem, 1, None)
    assert whole is not None
    distance = (whole[1] - more) / (more - few)
    seconds = high.seconds + max(0.0, high.seconds - low.seconds) * distance
    memory = high.memory + max(0.0, high.memory - low.memory) * distance
    free = _free()
    fits = free is None or memory - _resident() < MOST_MEMORY * free
    if fits and seconds * steps < LONGEST:
        return _measured(problem, schema, cut, steps, tell, now)
    return _StepCost(seconds, memory, f"steps of batches of {few} and {more} images, extrapolated to {whole[1]}")


def _shrunk(problem: Problem[Any, Any], divisor: int, most: int | None) -> tuple[Problem[Any, Any], int] | None:
    """Return an image problem with a part of its batch, at most so many images, and their number.

    None for other problems, and for small batches.
    """
    batches = dict(problem.batches)  # type: ignore[attr-defined]
    if problem.kind not in ("image-retrieval", "longtail", "detection"):
        return None
    key = "classes" if batches.get("classes") else "size"
    if not batches.get(key) or batches[key] < 16:
        return None
    each = batches["samples_per_class"] if key == "classes" else 1
    batches[key] = batches[key] // divisor if most is None else min(batches[key] // divisor, most // each)
    return problem.changed(batches=batches), batches[key] * each


def _measured(
    problem: Problem[Any, Any], schema: Any, cut: Split[Any], steps: int, tell: Told, now: Clock
) -> _StepCost:
    """Return the median seconds of a step and the peak memory, of the real training loop."""
    whole = _steps_of(problem, cut)
    steps = min(steps, whole)
    problem = problem.changed(evaluation={"every": None, "weights": "last"})
    times = [now()]
    stop = times[0] + LONGEST

    def on_step(step: Step) -> None:
        times.append(now())
        tell(f"step {step.number} of {steps}")
        if step.number >= steps or (times[-1] > stop and step.number > WARM_UP):
            raise _Enough

    def on_start(last: int, done: int) -> None:
        times[0] = now()

    with suppress(_Enough):
        fit(problem, schema, cut, seed=problem.seeds[0], on_start=on_start, on_step=on_step)
    spans = [later - earlier for earlier, later in pairwise(times)]
    counted = spans[WARM_UP:] or spans[-1:]
    return _StepCost(median(counted), _peak(problem), f"{len(spans)} steps")


def _steps_of(problem: Problem[Any, Any], cut: Split[Any], rows: float = 1.0) -> int:
    """Return the steps of the run if the data have 1 / `rows` times as many rows."""
    batches = len(problem.train_loader(cut.train, problem.seeds[0])) / rows
    lists, size = getattr(cut.train, "query_ids", None), getattr(problem.batches, "queries", None)  # type: ignore[attr-defined]
    if rows < 1 and lists is not None and size is not None:  # the last batch of few is not full
        batches = len(lists.unique()) / size / rows
    return problem.budget.in_steps(max(1, round(batches / problem.gradient.accumulate)))


def _growing(part: Any) -> Any:
    """Yield more and more rows of a part, and their number; lists of several rows are not torn apart."""
    if getattr(part, "query_ids", None) is not None:
        yield len(part), part
        return
    rows = min(FIRST_ROWS, len(part))
    while True:
        yield rows, part.take(torch.arange(rows) * len(part) // rows)
        if rows == len(part):
            return
        rows = min(4 * rows, len(part))


def _seconds_of_neighbours(problem: Problem[Any, Any], part: Any, now: Clock) -> float:
    """Return the seconds for each pair of rows that it takes to rank neighbours."""
    count = min(NEIGHBOURS, len(part))
    dimensions = problem.model.dimensions  # type: ignore[attr-defined]
    vectors = normalize(torch.randn(count, dimensions, generator=torch.Generator().manual_seed(0)), dim=1)
    labels = part.labels[torch.arange(count) * len(part) // count]
    if isinstance(part, ImagePart):
        labels = torch.arange(count) // 2
    start = now()
    evaluate_retrieval(vectors, labels, problem.measured)
    return (now() - start) / count**2


def _extrapolate(
    problem: Problem[Any, Any],
    cut: Split[Any],
    rows: float,
    content: float,
    held: float,
    read_seconds: float,
    cost: _StepCost,
    evaluation: _EvaluationCost,
) -> Rehearsal:
    """Return the costs of the whole run.

    Args:
        problem, cut: what was measured.
        rows, content: shares of the real data that were made, see `Made`.
        held: bytes of the made data.
        read_seconds: for the made data.
        cost: of a step.
        evaluation: its cost.
    """
    steps, plan = _steps_of(problem, cut, rows), problem.evaluation
    judged = len(cut.part("validation")) / rows
    judged = judged if plan.rows is None else min(judged, plan.rows)
    evaluation_seconds = evaluation.of(judged)
    evaluations = 0 if plan.every is None else 1 + math.ceil(steps / plan.every)
    between = None if plan.every is None else min(plan.every, steps) * cost.seconds
    test_seconds = evaluation.of(len(cut.part("test")) / rows)
    memory, free = cost.memory + held * (1 / content - 1), _free()
    training = steps * cost.seconds + evaluations * evaluation_seconds
    # A refit trains once more, up to the step that was chosen: at most all of them, without evaluations.
    training += steps * cost.seconds if problem.refit and not cut.cross_validated else 0
    problems = []
    if between is not None and evaluation_seconds > between:
        every = math.ceil(evaluation_seconds / cost.seconds)
        problems.append(
            f"evaluations take longer than the training between them, {evaluation_seconds:,.0f} s after every "
            f"{between:,.0f} s: set evaluation.every to at least {every:,}"
            + ("" if getattr(cut.train, "query_ids", None) is not None else ", or evaluation.rows to fewer rows")
        )
    if free is not None and memory > free + _resident():
        problems.append(
            f"memory: {memory / GIB:.1f} GiB are needed, {(free + _resident()) / GIB:.1f} GiB are there: lower batches."
            f"{next(iter(dict(problem.batches)))}"  # type: ignore[attr-defined]
        )
    return Rehearsal(
        made=cost.how,
        read_seconds=read_seconds / content,
        memory_gib=memory / GIB,
        free_gib=None if free is None else (free + _resident()) / GIB,
        step_seconds=cost.seconds,
        steps=steps,
        evaluation_seconds=evaluation_seconds,
        evaluations=evaluations,
        between_seconds=between,
        test_seconds=test_seconds,
        hours=(read_seconds / content + training + test_seconds) / 3600,
        problems=tuple(problems),
    )


def _resident() -> float:
    """Return the bytes that this process holds; the peak where the system says no more."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return _peak_of_process()
    return float(pages * os.sysconf("SC_PAGE_SIZE"))


def _peak(problem: Problem[Any, Any]) -> float:
    """Return the most bytes that were held, on the device of the training."""
    if problem.device.device_type == "cuda":
        return float(torch.cuda.max_memory_allocated())
    return _peak_of_process()


def _peak_of_process() -> float:
    try:
        import resource
    except ModuleNotFoundError:  # Windows
        return 0.0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(peak if sys.platform == "darwin" else peak * 1024)


def _free() -> float | None:
    """Return the bytes that are free, as Linux states it; None elsewhere."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        known: Mapping[str, str] = dict(line.split(":", 1) for line in lines if ":" in line)
        return float(known["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError, IndexError):
        return None
