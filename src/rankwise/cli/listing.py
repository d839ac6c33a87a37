"""`rankwise list`: what is registered."""

from __future__ import annotations

from collections.abc import Iterable

from rankwise.cli.console import print_table
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
            print_table(name.capitalize(), ("name", "what it is"), _rows(name), numbers=False)


def _rows(kind: str) -> list[tuple[str, str]]:
    if kind in REGISTRIES:
        return [(_name(record.name, record), _line(record)) for record in REGISTRIES[kind]]
    from rankwise.recipes import KINDS as TASKS
    from rankwise.recipes import library

    if kind == "tasks":
        return [(name, recipe.summary) for name, recipe in TASKS.items()]
    # A recipe begins with a comment that says what it is.
    return [(name, text.splitlines()[0].lstrip("# ")) for name, text in library().items()]


def _line(record: AnyRecord) -> str:
    line = record.summary
    if isinstance(record, LossRecord) and record.inputs == "embeddings":
        line += " [embeddings]"
    also = ", ".join(_name(alias, record) for alias in record.aliases)
    return f"{line} (also: {also})" if also else line


def _name(name: str, record: AnyRecord) -> str:
    return f"{name}[@k]" if isinstance(record, MetricRecord) and record.takes_k else name
