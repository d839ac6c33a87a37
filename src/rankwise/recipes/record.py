"""What a run was made from: recipe, versions, fingerprints of the data."""

from __future__ import annotations

import hashlib
import json
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rankwise import __version__
from rankwise.files import write_whole
from rankwise.recipes.schema import Recipe

__all__ = ["changed_files", "fingerprints", "read_record", "write_record"]

PACKAGES = ("torch", "numpy", "lightning-fabric", "scikit-learn", "polars")


def fingerprints(recipe: Recipe) -> dict[str, str]:
    """The SHA-256 of every file the recipe reads."""
    return {str(path): _hash(path) for path in recipe.files()}


def write_record(path: Path, recipe: Recipe, seed: int, data: dict[str, str]) -> None:
    """Write down what a run is made from."""
    record = {
        "recipe": recipe.model_dump(mode="json"),
        "seed": seed,
        "data": data,
        "versions": {
            "python": platform.python_version(),
            "rankwise": __version__,
            **{name: _version(name) for name in PACKAGES},
        },
        "machine": platform.platform(),
    }
    write_whole(path, json.dumps(record, indent=2).encode())


def read_record(path: Path) -> dict[str, Any]:
    """What `write_record` wrote."""
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as problem:
        raise ValueError(f"{path}: expected the record of a run ({problem})") from None
    kinds = {"recipe": dict, "seed": int, "data": dict}
    if not isinstance(record, dict) or any(not isinstance(record.get(key), kind) for key, kind in kinds.items()):
        raise ValueError(f"{path}: expected the record of a run, with {', '.join(kinds)}, got something else")
    return record


def changed_files(recorded: dict[str, str], now: dict[str, str]) -> list[str]:
    """The files whose content is not what it was."""
    return [path for path, value in now.items() if recorded.get(path) != value]


def _hash(path: Path) -> str:
    whole = hashlib.sha256()
    if path.is_dir():
        for file in sorted(entry for entry in path.rglob("*") if entry.is_file()):
            whole.update(f"{file.relative_to(path)} {_hash(file)}\n".encode())
        return whole.hexdigest()
    if path.exists() and not path.is_file():  # a device or a pipe may never end
        raise ValueError(f"{path}: expected a file, got something else")
    try:
        with open(path, "rb") as content:
            while block := content.read(1 << 20):
                whole.update(block)
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: no such file") from None
    except OSError as problem:
        raise ValueError(f"{path}: cannot be read ({problem.strerror})") from None
    return whole.hexdigest()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
