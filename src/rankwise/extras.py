"""Optional dependencies: one error that says how to install what is missing."""

from __future__ import annotations

from importlib.util import find_spec

__all__ = ["EXTRAS", "MissingExtra", "require"]

# Modules and the pip extra that installs each.
EXTRAS = {
    "typer": "train",
    "rich": "train",
    "lightning_fabric": "train",
    "pydantic": "train",
    "yaml": "train",
    "safetensors": "train",
    "jinja2": "report",
    "sklearn": "sklearn",
    "polars": "data",
    "pyarrow": "data",
    "fsspec": "remote",
    "bm25s": "text",
    "sentence_transformers": "text",
    "PIL": "vision",
    "torchvision": "vision",
    "optuna": "tune",
    "onnx": "export",
    "onnxscript": "export",
    "onnxruntime": "export",
}


class MissingExtra(ModuleNotFoundError):
    """An optional dependency is not installed; the message says how to get it."""


def require(purpose: str, modules: tuple[str, ...], *, extra: str | None = None) -> None:
    """Raise `MissingExtra` unless all modules can be imported.

    Args:
        purpose: what needs them, the beginning of the message.
        modules: keys of `EXTRAS`.
        extra: the one pip extra that installs all of them, if there is one.

    Example:
        >>> require("reading a table", ("json",))
    """
    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        wanted = extra or ",".join(sorted({EXTRAS[module] for module in missing}))
        raise MissingExtra(f"{purpose} needs {', '.join(missing)}: pip install 'rankwise[{wanted}]'", name=missing[0])
