"""Output of the commands: tables and progress bars on a terminal or in a file, and JSON for programs."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from rankwise.metrics import Evaluation

__all__ = [
    "facts",
    "for_machines",
    "print_paragraph",
    "print_table",
    "progress_bar",
    "record",
    "record_each",
    "results_as_json",
    "say",
    "share_bar",
    "shows_progress",
    "sparkline",
]

_BARS = "▁▂▃▄▅▆▇█"
_WIDEST = 40  # bars in a sparkline
_results: ContextVar[dict[str, Any] | None] = ContextVar("results", default=None)


@contextmanager
def results_as_json(wanted: bool) -> Iterator[None]:
    """Collect recorded results and print them as JSON at the end; suppress the output for people."""
    if not wanted:
        yield
        return
    before = _results.set({})
    try:
        yield
        print(json.dumps(_plain(_results.get()), indent=2, allow_nan=False))
    finally:
        _results.reset(before)


def for_machines() -> bool:
    """Return whether results are being collected for JSON output."""
    return _results.get() is not None


def record(**results: object) -> None:
    """Add named results to the JSON output, if it is collected."""
    if (collected := _results.get()) is not None:
        collected.update(results)


def record_each(name: str, result: object) -> None:
    """Note one more result in the list called `name`."""
    if (results := _results.get()) is not None:
        results.setdefault(name, []).append(result)


def facts(evaluation: Evaluation) -> dict[str, dict[str, object]]:
    """Return mean, interval, counts and definition of every metric, for JSON output."""
    return {
        name: {
            "mean": mean,
            "interval": evaluation.intervals.get(name),
            "lists": len(evaluation.query_ids),
            "left_out": evaluation.skipped[name],
            "definition": evaluation.definitions[name],
        }
        for name, mean in evaluation.means.items()
    }


def _plain(value: object) -> object:
    """Convert to JSON types: tensors and arrays to lists, records to objects, NaN and infinity to null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, str | bool | int | None):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    raise TypeError(f"expected something JSON can say, got {type(value).__name__}")


def print_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: bool, strong: int | None = None
) -> None:
    """Print a table to stdout, as wide as the terminal; 80 columns and no control codes when there is none.

    Args:
        title: the line above it.
        columns: their heads.
        rows: cells of text, never read as markup.
        numbers: whether all columns but the first hold numbers, set to the right.
        strong: the row to stand out, if any.
    """
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="dim")
    for position, column in enumerate(columns):
        right = numbers and position > 0
        # Where space is short, numbers and names stay whole and their heads are broken; text is broken anywhere.
        whole = right or (position == 0 and not numbers)
        widest = max((len(row[position]) for row in rows), default=0) if whole else None
        table.add_column(Text(column), justify="right" if right else "left", min_width=widest, overflow="fold")
    for position, row in enumerate(rows):
        table.add_row(*map(Text, row), style="bold" if position == strong else "")
    _print(Console(highlight=False), Text(title, style="bold"), table, "")


def print_paragraph(text: str) -> None:
    """Print text to stdout, broken into lines of at most 80 characters."""
    console = Console(highlight=False)
    console.width = min(80, console.width)
    _print(console, Text(text))


def sparkline(values: Sequence[float]) -> str:
    """Return numbers as a row of bars, from the lowest to the highest; what is no number is a blank.

    Example:
        >>> sparkline([0.0, 0.5, 1.0, float("nan"), 0.25])
        '▁▅█ ▃'
    """
    step = max(1, -(-len(values) // _WIDEST))
    shown = list(values)[::step]
    known = [value for value in shown if math.isfinite(value)]
    low, spread = min(known, default=0.0), max(known, default=0.0) - min(known, default=0.0)
    highest = len(_BARS) - 1
    return "".join(
        _BARS[round((value - low) / (spread or 1.0) * highest)] if math.isfinite(value) else " " for value in shown
    )


def say(text: str) -> None:
    """Print one line to stderr: a note on what goes on, not a result."""
    print(f"rankwise: {' '.join(text.split())}", file=sys.stderr, flush=True)


def shows_progress() -> bool:
    """Return whether stderr is a terminal."""
    return Console(stderr=True).is_terminal


def progress_bar(details: str = "") -> Progress:
    """Return a progress bar on stderr; none when that is not a terminal.

    Args:
        details: what to show besides, a format over the `fields` of a task.
    """
    console = Console(stderr=True)
    # Even where it is disabled, rich ends a bar with an empty line before version 14.3.
    console.quiet = not console.is_terminal
    return Progress(
        TextColumn("{task.description}", table_column=None),
        BarColumn(bar_width=None),
        TextColumn("{task.percentage:>3.0f} %"),
        *([TextColumn(details)] if details else []),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


@contextmanager
def share_bar(what: str) -> Iterator[Callable[[float], None]]:
    """Show a bar; give the function that is told the share of the work that is done."""
    with progress_bar() as progress:
        bar = progress.add_task(what, total=1.0)
        yield lambda share: progress.update(bar, completed=share)


def _print(console: Console, *what: RenderableType) -> None:
    if for_machines():
        return
    with console.capture() as captured:
        for each in what:
            console.print(each)
    for line in captured.get().splitlines():
        print(line.rstrip())
