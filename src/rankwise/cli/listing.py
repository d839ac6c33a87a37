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

KINDS: dict[str, Iterable[AnyRecord]] = {"losses": LOSSES, "metrics": METRICS, "samplers": SAMPLERS}


def show_list(kind: str | None) -> None:
    """Print the names of one kind, a key of `KINDS`, or of all."""
    for name, registry in KINDS.items():
        if kind in (None, name):
            rows = [(_name(record.name, record), _line(record)) for record in registry]
            print_table(name.capitalize(), ("name", "what it is"), rows, numbers=False)


def _line(record: AnyRecord) -> str:
    line = record.summary
    if isinstance(record, LossRecord) and record.inputs == "embeddings":
        line += " [embeddings]"
    also = ", ".join(_name(alias, record) for alias in record.aliases)
    return f"{line} (also: {also})" if also else line


def _name(name: str, record: AnyRecord) -> str:
    return f"{name}[@k]" if isinstance(record, MetricRecord) and record.takes_k else name
