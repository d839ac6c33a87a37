"""Parts of the program that need more than the core to be installed."""

from __future__ import annotations

from importlib.util import find_spec

__all__ = ["EXTRAS", "MissingExtra", "require"]

# What to import, and the pip extra that brings it.
EXTRAS = {
    "typer": "train",
    "rich": "train",
    "lightning_fabric": "train",
    "pydantic": "train",
    "yaml": "train",
    "jinja2": "report",
    "sklearn": "sklearn",
    "polars": "data",
    "safetensors": "train",
}


class MissingExtra(Exception):
    """Something optional is not installed; the message says how to get it."""


def require(purpose: str, modules: tuple[str, ...], *, extra: str | None = None) -> None:
    """Raise `MissingExtra` unless all modules can be imported.

    Args:
        purpose: what needs them, the beginning of the message.
        modules: keys of `EXTRAS`.
        extra: the one pip extra that brings all of them, if there is one.
    """
    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        wanted = extra or ",".join(sorted({EXTRAS[module] for module in missing}))
        names = ", ".join(missing)
        raise MissingExtra(f"{purpose} needs {names}: pip install 'rankwise[{wanted}]'")
