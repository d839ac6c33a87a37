"""What was found, one line per contender; kept as CSV, so that groups can be measured one at a time."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

__all__ = ["Result", "merge", "read_results", "with_memory_of", "write_results"]


@dataclass(frozen=True)
class Result:
    """One contender in one row.

    Attributes:
        ms: median, best_ms: least, low_ms, high_ms: quartiles; None where it did not run, and `note` says why.
        runs: how many.
        peak_mib, process_mib: see `peak`.
        facts: of the machine, when this was measured.
    """

    group: str
    row: str
    contender: str
    role: str
    ms: float | None = None
    best_ms: float | None = None
    low_ms: float | None = None
    high_ms: float | None = None
    runs: int = 0
    peak_mib: float | None = None
    process_mib: float | None = None
    note: str = ""
    facts: str = ""


def merge(old: Iterable[Result], new: Sequence[Result]) -> list[Result]:
    """The new results, and of the old ones the groups that were not measured again."""
    measured = {result.group for result in new}
    return [result for result in old if result.group not in measured] + list(new)


def with_memory_of(old: Iterable[Result], new: Iterable[Result]) -> list[Result]:
    """The new results, with the memory that the same contenders were found to take before."""
    known = {(result.group, result.row, result.contender): result for result in old}
    found = []
    for result in new:
        before = known.get((result.group, result.row, result.contender), result)
        found.append(replace(result, peak_mib=before.peak_mib, process_mib=before.process_mib))
    return found


def write_results(path: Path, results: Iterable[Result]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([field.name for field in fields(Result)])
        for result in results:
            row = [getattr(result, field.name) for field in fields(Result)]
            writer.writerow([f"{value:.5g}" if isinstance(value, float) else value for value in row])


def read_results(path: Path) -> list[Result]:
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return [_result(line) for line in csv.DictReader(file)]


def _result(line: dict[str, str]) -> Result:
    def number(name: str) -> float | None:
        return float(line[name]) if line.get(name) else None

    return Result(
        group=line["group"],
        row=line["row"],
        contender=line["contender"],
        role=line["role"],
        ms=number("ms"),
        best_ms=number("best_ms"),
        low_ms=number("low_ms"),
        high_ms=number("high_ms"),
        runs=int(line["runs"]),
        peak_mib=number("peak_mib"),
        process_mib=number("process_mib"),
        note=line["note"],
        facts=line["facts"],
    )
