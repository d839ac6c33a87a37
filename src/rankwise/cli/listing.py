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
            facts, rows = zip(*_entries(name), strict=True)
            record(**{name: facts})
            columns = ("name", "role", "what it is") if name == "losses" else ("name", "what it is")
            print_table(name.capitalize(), columns, rows, numbers=False)


def _entries(kind: str) -> list[tuple[dict[str, object], tuple[str, ...]]]:
    """Return for each name of a kind its facts and its row of the table."""
    if kind in REGISTRIES:
        return [(_facts(each), _row(each)) for each in REGISTRIES[kind]]
    from rankwise.problems.kinds import KINDS as PROBLEMS
    from rankwise.problems.kinds import library, problem_class

    if kind == "tasks":
        lines = {name: problem_class(name).summary for name in PROBLEMS}
    else:
        lines = {name: _first_sentence(text) for name, text in library().items()}
    return [({"name": name, "summary": line}, (name, line)) for name, line in lines.items()]


def _first_sentence(recipe: str) -> str:
    """Return the first sentence of the comment at the top of a recipe."""
    comment = takewhile(lambda line: line.startswith("#"), recipe.splitlines())
    return re.split(r"(?<=\.) (?=[A-Z])", " ".join(line.lstrip("# ") for line in comment))[0]


def _facts(named: AnyRecord) -> dict[str, object]:
    role = {"role": named.role} if isinstance(named, LossRecord) else {}
    return {"name": named.name, "aliases": named.aliases, **role, "summary": named.summary}


def _row(named: AnyRecord) -> tuple[str, ...]:
    role = (named.role,) if isinstance(named, LossRecord) else ()
    return (_name(named.name, named), *role, _line(named))


def _line(named: AnyRecord) -> str:
    line = named.summary
    if isinstance(named, LossRecord) and named.inputs == "embeddings":
        line += " [embeddings]"
    also = ", ".join(_name(alias, named) for alias in named.aliases)
    return f"{line} (also: {also})" if also else line


def _name(name: str, named: AnyRecord) -> str:
    return f"{name}[@k]" if isinstance(named, MetricRecord) and named.takes_k else name
