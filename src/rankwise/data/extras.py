"""Readers that need more than the core to be installed."""

from __future__ import annotations

from importlib.util import find_spec

__all__ = ["need"]


def need(module: str, purpose: str, *, extra: str = "data") -> None:
    """Raise an error that says how to get a module, if it is missing."""
    if find_spec(module) is None:
        raise ModuleNotFoundError(f"{purpose} needs {module}: pip install 'rankwise[{extra}]'", name=module)
