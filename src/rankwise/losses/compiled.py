"""What torch.compile makes of a loss."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

__all__ = ["outside_graphs"]

P = ParamSpec("P")
R = TypeVar("R")


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
