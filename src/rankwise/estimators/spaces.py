"""How numbers are averaged: as they are, or given and kept as logarithms."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["LINEAR", "SPACES", "Space"]


@dataclass(frozen=True)
class Space:
    """Averages of the same numbers, whatever they are given as.

    Attributes:
        blend: `blend(old, new, rate)` is (1 - rate) old + rate new.
        mean: `mean(values, group, counts)` are the means (G, width) of values (Q, width) over the groups (Q,) of
            `counts` (G,) members.
    """

    blend: Callable[[Tensor, Tensor, float], Tensor]
    mean: Callable[[Tensor, Tensor, Tensor], Tensor]


def _blend(old: Tensor, new: Tensor, rate: float) -> Tensor:
    return old.lerp(new, rate)


def _mean(values: Tensor, group: Tensor, counts: Tensor) -> Tensor:
    return values.new_zeros(len(counts), values.shape[1]).index_add_(0, group, values).div_(counts[:, None])


def _blend_logarithms(old: Tensor, new: Tensor, rate: float) -> Tensor:
    """log((1 - rate) exp(old) + rate exp(new)), safe for any size."""
    if rate == 1:
        return new
    return torch.logaddexp(old + math.log1p(-rate), new + math.log(rate))


def _mean_logarithms(values: Tensor, group: Tensor, counts: Tensor) -> Tensor:
    """log of the mean of exp(values), measured from the largest of each group."""
    largest = values.new_full((len(counts), values.shape[1]), -torch.inf)
    largest.scatter_reduce_(0, group[:, None].expand_as(values), values, "amax")
    return _mean((values - largest[group]).exp_(), group, counts).log_().add_(largest)


LINEAR = Space(_blend, _mean)
SPACES = {"linear": LINEAR, "log": Space(_blend_logarithms, _mean_logarithms)}
