"""What is measured: groups of rows, in each row several contenders at one problem."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from torch import Tensor

__all__ = ["Contender", "Group", "Mark", "Row", "Values"]

# What a contender computed, by name, where several should compute the same.
Values = Mapping[str, "float | Tensor"]


@dataclass(frozen=True)
class Contender:
    """One way of doing the work of a row.

    Attributes:
        name: as in the table.
        prepare: takes the inputs of the row and gives the call that is timed. Building the loss or metric object
            belongs to `prepare`, as it happens once in a program.
        role: "ours", "peer", or "limit" (a step that an exact method could hardly do without).
        checked: whether the call returns `Values` that must agree with those of the other checked contenders.
        needs: the module it comes from, if that may be missing.
        skip: why it is not run in this row, or "".
        slow: left out by `--quick`.
    """

    name: str
    prepare: Callable[[Any], Callable[[], object]]
    role: str = "peer"
    checked: bool = False
    needs: str = ""
    skip: str = ""
    slow: bool = False

    def absent(self, quick: bool) -> str:
        """Why this contender does not run, or ""."""
        if self.skip:
            return f"not run: {self.skip}"
        if self.needs and find_spec(self.needs) is None:
            return "not installed"
        return "not run: --quick" if quick and self.slow else ""


@dataclass(frozen=True)
class Mark:
    """What ours should reach in a row; every condition that is given has to hold.

    Attributes:
        ms: at most so many milliseconds.
        anchor: a contender and its milliseconds when `ms` was set: tells how fast this machine is by comparison.
        times_limit: at most so many times the limit.
        over_limit_ms: at most so many milliseconds more than the limit.
        times_faster: contenders and how many times faster than each.
        at_most: contenders and at most how many times the time of each.
        peak_mib: at most so many MiB beyond the inputs; process_mib: at most so many of the whole process.
        why_missed: the reason, written down after measuring.
    """

    ms: float | None = None
    anchor: tuple[str, float] | None = None
    times_limit: float | None = None
    over_limit_ms: float | None = None
    times_faster: tuple[tuple[str, float], ...] = ()
    at_most: tuple[tuple[str, float], ...] = ()
    peak_mib: float | None = None
    process_mib: float | None = None
    why_missed: str = ""


@dataclass(frozen=True)
class Row:
    """One problem and who solves it.

    Attributes:
        name: as in the table: the size.
        make: makes the inputs; small: makes small ones of the same kind, for warming up where memory is measured.
        mark: what ours should reach.
        tolerance: by how much checked values may differ, relative to the largest.
        seconds: total time of a contender's runs after which it has had enough of them; None is the usual.
            `--quick` keeps to the usual.
        memory: whether peak memory means anything here.
    """

    name: str
    make: Callable[[], Any]
    small: Callable[[], Any]
    contenders: tuple[Contender, ...]
    mark: Mark | None = None
    tolerance: float = 1e-5
    seconds: float | None = None
    memory: bool = True

    def contender(self, name: str) -> Contender:
        return next(contender for contender in self.contenders if contender.name == name)


@dataclass(frozen=True)
class Group:
    """Rows of one kind: one table.

    Attributes:
        key: its name on the command line; title: of the table; problem: heading of the column of rows.
        about: what is timed, in a sentence or two.
    """

    key: str
    title: str
    problem: str
    about: str
    rows: tuple[Row, ...]

    def row(self, name: str) -> Row:
        return next(row for row in self.rows if row.name == name)
