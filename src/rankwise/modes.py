"""Adapt calls to the modes of torch: autocast, compile, inference."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

__all__ = ["full_precision", "outside_graphs", "outside_inference_mode"]

P = ParamSpec("P")
R = TypeVar("R")


def full_precision(device_type: str) -> AbstractContextManager[object]:
    """Autocast switched off, at no cost where it is not on."""
    if torch.is_autocast_enabled(device_type):
        return torch.autocast(device_type, enabled=False)
    return nullcontext()


def outside_graphs(function: Callable[P, R]) -> Callable[P, R]:
    """A function that torch.compile runs as it is, between the graphs before and after it.

    A loss checks its input, packs lists by their lengths and chooses between methods by what it finds: none of that can
    be part of a graph. Traced line by line it would fall into dozens of small graphs.
    """

    @functools.wraps(function)
    def call(*arguments: P.args, **options: P.kwargs) -> R:
        if torch.compiler.is_compiling():
            # Not as a decorator: that would load the whole compiler with `import rankwise`.
            run: Callable[P, R] = torch.compiler.disable(function)
            return run(*arguments, **options)
        return function(*arguments, **options)

    return call


def outside_inference_mode(function: Callable[P, R]) -> Callable[P, R]:
    """Run a function that keeps tensors outside of `torch.inference_mode()`, without gradients.

    Tensors made in that mode can never be written after it, nor be used where a gradient is wanted.
    """

    @functools.wraps(function)
    def call(*arguments: P.args, **options: P.kwargs) -> R:
        if not torch.is_inference_mode_enabled():
            return function(*arguments, **options)
        with torch.inference_mode(False), torch.no_grad():
            named = {name: _normal(value) for name, value in options.items()}
            return function(*map(_normal, arguments), **named)

    return call


def _normal(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) and value.is_inference() else value
