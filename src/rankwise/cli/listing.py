"""`rankwise list`: what is registered."""

from __future__ import annotations

from collections.abc import Iterable

from rankwise.cli.console import print_table, record
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
    from rankwise.problems.load import KINDS as PROBLEMS
    from rankwise.problems.load import library, problem_class

    if kind == "recipes":
        return [_recipe(name) for name in library()]
    lines = {name: problem_class(name).summary for name in PROBLEMS}
    return [({"name": name, "summary": line}, (name, line)) for name, line in lines.items()]


def _recipe(name: str) -> tuple[dict[str, object], tuple[str, ...]]:
    """Return the facts of a recipe of the library and its row of the table."""
    from rankwise.problems.load import load_about

    about = load_about(name)
    assert about is not None
    facts = about.model_dump(exclude={"shape"})
    lines = [about.data]
    if about.paper is not None:
        lines.append(f"{about.paper}: {about.expected}")
    lines.append(f"needs {about.hardware}" + ("" if about.time is None else f"; {about.time}"))
    if about.differs is not None:
        lines.append(f"differs: {about.differs}")
    return {"name": name, **facts}, (name, "\n".join(lines))


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
