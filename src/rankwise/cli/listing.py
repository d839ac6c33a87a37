"""`rankwise list`: what is registered."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import takewhile

from rankwise.cli.console import print_table
from rankwise.cli.machine import record
from rankwise.losses import LOSSES
from rankwise.metrics import METRICS
from rankwise.registry import LossRecord, MetricRecord, SamplerRecord
from rankwise.samplers import SAMPLERS

__all__ = ["KINDS", "show_list"]

AnyRecord = LossRecord | MetricRecord | SamplerRecord

REGISTRIES: dict[str, Iterable[AnyRecord]] = {"losses": LOSSES, "metrics": METRICS, "samplers": SAMPLERS}
KINDS = (*REGISTRIES, "tasks", "recipes")


def show_list(kind: str | None) -> None:
    """Print the names of one kind, a key of `KINDS`, or of all."""
    for name in KINDS:
        if kind in (None, name):
            record(**{name: [_facts(name, *row) for row in _rows(name)]})
            print_table(name.capitalize(), ("name", "what it is"), _rows(name), numbers=False)


def _rows(kind: str) -> list[tuple[str, str]]:
    if kind in REGISTRIES:
        return [(_name(each.name, each), _line(each)) for each in REGISTRIES[kind]]
    from rankwise.problems.kinds import KINDS as PROBLEMS
    from rankwise.problems.kinds import library, problem_class

    if kind == "tasks":
        return [(name, problem_class(name).summary) for name in PROBLEMS]
    return [(name, _first_sentence(text)) for name, text in library().items()]


def _first_sentence(recipe: str) -> str:
    """A recipe begins with a comment that says what it is."""
    comment = takewhile(lambda line: line.startswith("#"), recipe.splitlines())
    return re.split(r"(?<=\.) (?=[A-Z])", " ".join(line.lstrip("# ") for line in comment))[0]


def _facts(kind: str, shown: str, line: str) -> dict[str, object]:
    if kind not in REGISTRIES:
        return {"name": shown, "summary": line}
    found = next(each for each in REGISTRIES[kind] if _name(each.name, each) == shown)
    return {"name": found.name, "aliases": found.aliases, "summary": found.summary}


def _line(named: AnyRecord) -> str:
    line = named.summary
    if isinstance(named, LossRecord) and named.inputs == "embeddings":
        line += " [embeddings]"
    also = ", ".join(_name(alias, named) for alias in named.aliases)
    return f"{line} (also: {also})" if also else line


def _name(name: str, named: AnyRecord) -> str:
    return f"{name}[@k]" if isinstance(named, MetricRecord) and named.takes_k else name
