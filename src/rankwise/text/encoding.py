"""Run a sentence-transformers model on many inputs with the activations of one chunk in memory at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

__all__ = ["run_in_chunks", "unwrapped"]


def unwrapped(model: nn.Module) -> Any:
    """Return the model itself, without the wrapper of data-parallel training."""
    return getattr(model, "module", model)


def run_in_chunks(model: nn.Module, chunks: Iterator[Mapping[str, Any]], output: str) -> Tensor:
    """Return an output of the model for all inputs, joined.

    With a gradient, the activations of a chunk are computed again in the backward pass, with the same random numbers.

    Args:
        model: perhaps wrapped for data-parallel training.
        chunks: what the model takes, a chunk at a time.
        output: which of its outputs.
    """
    if not torch.is_grad_enabled():
        return torch.cat([unwrapped(model)(dict(chunk))[output] for chunk in chunks])
    # "use_reentrant=False" keeps the gradients of parameters, and so their exchange between processes, as they were.
    return torch.cat([checkpoint(_first_wrapped(model, output), chunk, use_reentrant=False) for chunk in chunks])


def _first_wrapped(model: nn.Module, output: str) -> Callable[[Mapping[str, Any]], Tensor]:
    """Return a function that runs the wrapped model, and when it is called again the model itself.

    The wrapper prepares the exchange of gradients in its forward pass; inside the backward pass that is too late.
    """
    called = False

    def run(chunk: Mapping[str, Any]) -> Tensor:
        nonlocal called
        chosen = unwrapped(model) if called else model
        called = True
        result: Tensor = chosen(dict(chunk))[output]
        return result

    return run
