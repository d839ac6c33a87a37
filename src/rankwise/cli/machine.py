"""Results for programs: with `--json` a command prints one JSON object and nothing else."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

__all__ = ["for_machines", "record", "record_each", "results_as_json"]

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
