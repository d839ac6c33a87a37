"""Adapt calls to the modes of torch: autocast, compile, inference."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor, nn

__all__ = [
    "ExactModule",
    "full_precision",
    "outside_graphs",
    "outside_inference_mode",
    "send",
    "wide_dtype",
    "widen",
    "with_float64",
]

P = ParamSpec("P")
R = TypeVar("R")

HALF = (torch.float16, torch.bfloat16)
# Types of devices that have no float64.
_WITHOUT_FLOAT64 = {"mps"}


def wide_dtype(device: torch.device) -> torch.dtype:
    """Return float64, or float32 on a device without it."""
    return torch.float32 if device.type in _WITHOUT_FLOAT64 else torch.float64


def widen(values: Tensor) -> Tensor:
    """Return the values in float64, or in float32 on a device without it."""
    return values.to(wide_dtype(values.device))


def send(values: Tensor, device: torch.device) -> Tensor:
    """Return the values on a device; the host does not wait for what an accelerator does before it takes them."""
    return values.to(device, non_blocking=device.type != "cpu")


def with_float64(values: Tensor) -> Tensor:
    """Return the values on a device that has float64: the CPU, if theirs has none."""
    return values.cpu() if values.device.type in _WITHOUT_FLOAT64 else values


class ExactModule(nn.Module):
    """A module whose buffers `half()` and `bfloat16()` leave in their precision: a moving average in half precision
    would stop moving. On a device without float64 they are float32.
    """

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        def move(values: Tensor) -> Tensor:
            try:
                moved = fn(values)
            except TypeError:
                if values.dtype != torch.float64:
                    raise
                moved = fn(values.float())
            return values.to(moved.device) if moved.dtype in HALF else moved

        return super()._apply(move, recurse)  # type: ignore[no-untyped-call]


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
