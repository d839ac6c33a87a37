"""What a reader has to know about the machine; nothing that tells which machine it is."""

from __future__ import annotations

import datetime
import os
import platform
from importlib import metadata

import torch

__all__ = ["machine_facts"]

_PACKAGES = ("torch", "numpy", "libauc", "pytorch-metric-learning", "torchmetrics", "scikit-learn")


def machine_facts(quick: bool = False) -> str:
    """One line: date, cores, threads, load when starting, versions."""
    load = f"load {os.getloadavg()[0]:.1f} at the start" if hasattr(os, "getloadavg") else ""
    facts = [
        datetime.date.today().isoformat(),
        f"{os.cpu_count()} cores, {torch.get_num_threads()} threads, no GPU used",
        load,
        f"Python {platform.python_version()}",
        ", ".join(f"{name} {version}" for name in _PACKAGES if (version := _version(name))),
        "--quick: few runs" if quick else "",
    ]
    return "; ".join(fact for fact in facts if fact)


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""
