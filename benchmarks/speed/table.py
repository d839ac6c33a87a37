"""Results as Markdown, one table per group."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks.speed.contest import Group
from benchmarks.speed.results import Result
from benchmarks.speed.verdict import describe, judge

__all__ = ["render", "render_group"]

_INTRODUCTION = """\
# Speed and memory

Made by `make bench` (`python -m benchmarks.speed`). Every row is measured in one process, contenders taking turns; `ms`
is the median over all runs after a warm-up, forward and backward for losses, the call for metrics. Machines are noisy:
ratios inside one row mean more than milliseconds.

- **x ours**: the contender's time divided by ours (the first of ours in the row); above 1 it is slower than ours.
- **ours / limit**: our time divided by that of the row's limit: one step of torch that an exact method could hardly do
  without. Below 1 where ours sorts faster than torch does.
- **peak MiB**: highest resident memory during one call less that before it, in a process of its own that has made the
  inputs and solved a small problem first (`benchmarks/speed/peak.py`).
- **runs**: how many the median is over. A turn is two runs, or as many as begin within 50 ms; the first of it is left
  out, for every contender: it pays for the caches and the memory its neighbour swept. (A run of more than a second is a
  turn by itself.) The process has freed a block of 31 MiB before, as any training process has; glibc then keeps freed
  memory instead of giving it back and fetching it again.

Contenders that should compute the same were checked to do so before they were timed; one that does not is refused and
says so.
"""


def render(groups: Iterable[Group], results: Sequence[Result]) -> str:
    """The whole report; groups without results are left out."""
    parts = [_INTRODUCTION]
    for group in groups:
        own = [result for result in results if result.group == group.key]
        if own:
            parts.append(render_group(group, own))
    return "\n".join(parts)


def render_group(group: Group, results: Sequence[Result]) -> str:
    facts = dict.fromkeys(result.facts for result in results if result.facts)
    heading = [group.problem, "contender", "ms", "x ours", "ours / limit", "peak MiB", "runs", "mark", "result"]
    align = ["---", "---", "--:", "--:", "--:", "--:", "--:", "---", "---"]
    lines = [heading, align]
    for name in dict.fromkeys(result.row for result in results):
        row = [result for result in results if result.row == name]
        mark = next((known.mark for known in group.rows if known.name == name), None)
        for number, result in enumerate(row):
            shown = result.role == "ours" and mark is not None
            # Each of ours is judged by itself.
            judged = [other for other in row if other is result or other.role != "ours"]
            lines.append(
                [
                    name if number == 0 else "",
                    _contender(result),
                    _figure(result.ms),
                    _ratio(result, row),
                    _limit_ratio(result, row),
                    "-" if result.peak_mib is None else f"{result.peak_mib:.0f}",
                    str(result.runs) if result.runs else "-",
                    describe(mark) if shown and mark else "",
                    "; ".join(part for part in (judge(mark, judged) if shown and mark else "", result.note) if part),
                ]
            )
    table = "\n".join("| " + " | ".join(cell.replace("|", "/") for cell in line) + " |" for line in lines)
    measured = "\n".join(f"Measured: {fact}." for fact in facts)
    return f"## {group.title}\n\n{group.about}\n{measured}\n\n{table}\n"


def _contender(result: Result) -> str:
    if result.role == "ours":
        return f"**{result.contender}**"
    return f"limit: {result.contender}" if result.role == "limit" else result.contender


def _ratio(result: Result, row: Sequence[Result]) -> str:
    ours = next((other.ms for other in row if other.role == "ours" and other.ms), None)
    return "-" if result.role == "ours" or not ours or result.ms is None else _figure(result.ms / ours)


def _limit_ratio(result: Result, row: Sequence[Result]) -> str:
    limit = next((other.ms for other in row if other.role == "limit" and other.ms), None)
    return f"{result.ms / limit:.2f}" if result.role == "ours" and limit and result.ms is not None else ""


def _figure(number: float | None) -> str:
    if number is None:
        return "-"
    return f"{number:.0f}" if number >= 100 else f"{number:.3g}"
