"""Which versions a report was made with."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

__all__ = ["versions"]


def versions(*names: str) -> str:
    """Those of Python, rankwise and the distributions named."""
    from rankwise import __version__

    found = [f"Python {platform.python_version()}", f"rankwise {__version__}"]
    return ", ".join([*found, *(f"{name} {_version(name)}" for name in names)])


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"
