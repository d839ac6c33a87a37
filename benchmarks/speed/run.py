"""Measure one row: who can run, who agrees, how long each takes, how much memory."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

from benchmarks.speed.agreement import disagreements
from benchmarks.speed.contest import Contender, Group, Row, Values
from benchmarks.speed.peak import peak_in_new_process
from benchmarks.speed.results import Result
from benchmarks.speed.timing import Effort, Times, interleave

__all__ = ["FULL", "QUICK", "Plan", "measure_memory", "run_row"]


@dataclass(frozen=True)
class Plan:
    """How thoroughly to measure; `quick` leaves out slow contenders and the memory of all but ours."""

    effort: Effort
    quick: bool = False
    memory: bool = True


FULL = Plan(Effort())
QUICK = Plan(Effort(rounds=5, seconds=0.3, at_least=2, patience=2.0), quick=True)


def run_row(
    group: Group, row: Row, plan: Plan, facts: str = "", tell: Callable[[str], None] = lambda _: None
) -> list[Result]:
    """One result per contender, in the order of the row; whoever does not run says why in its note."""
    inputs = row.make()
    notes: dict[str, str] = {}
    calls: dict[str, Callable[[], object]] = {}
    first: dict[str, float] = {}
    values: dict[str, Values] = {}
    for contender in row.contenders:
        notes[contender.name] = contender.absent(plan.quick)
        if notes[contender.name]:
            continue
        tell(f"{contender.name}: first run")
        try:
            calls[contender.name], first[contender.name], value = _first_run(contender, inputs)
        except Exception as error:
            # A peer that fails is a finding, not a reason to lose the rest of the table.
            notes[contender.name] = f"failed: {type(error).__name__}: {error}".splitlines()[0]
            continue
        if contender.checked:
            values[contender.name] = value  # type: ignore[assignment]
    for name, difference in disagreements(_ours_last(row, values), row.tolerance).items():
        notes[name] = difference
        del calls[name]
    tell(f"timing {len(calls)} contenders in turns")
    effort = plan.effort if row.seconds is None or plan.quick else replace(plan.effort, seconds=row.seconds)
    times = interleave(calls, effort, first)
    results = []
    for contender in row.contenders:
        result = Result(group.key, row.name, contender.name, contender.role, note=notes[contender.name], facts=facts)
        if contender.name in times:
            result = _with_times(result, times[contender.name])
            if plan.memory and row.memory and (contender.role == "ours" or not plan.quick):
                tell(f"{contender.name}: memory")
                result = _with_memory(result)
        results.append(result)
    return results


def measure_memory(group: Group, known: list[Result], tell: Callable[[str], None]) -> list[Result]:
    """The known results of a group with their memory measured anew; times are as they were."""
    found = []
    for result in known:
        if result.group != group.key:
            continue
        row = next((row for row in group.rows if row.name == result.row), None)
        if row is not None and row.memory and result.ms is not None:
            tell(f"{group.key}, {result.row}, {result.contender}: memory")
            result = _with_memory(result)
        found.append(result)
    return found


def _with_memory(result: Result) -> Result:
    peak = peak_in_new_process(result.group, result.row, result.contender)
    return replace(result, peak_mib=peak.call, process_mib=peak.process, note=peak.note)


def _first_run(contender: Contender, inputs: object) -> tuple[Callable[[], object], float, object]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        call = contender.prepare(inputs)
        start = time.perf_counter()
        value = call()
        return call, time.perf_counter() - start, value


def _with_times(result: Result, found: Times) -> Result:
    low, high = found.quartiles_ms
    return replace(result, ms=found.median_ms, best_ms=found.best_ms, low_ms=low, high_ms=high, runs=len(found.runs))


def _ours_last(row: Row, values: dict[str, Values]) -> dict[str, Values]:
    """The first in the table that is not ours is what the others are held to."""
    return dict(sorted(values.items(), key=lambda item: row.contender(item[0]).role == "ours"))
