"""A fresh last layer for a trained body."""

from __future__ import annotations

import math

import torch
from torch import nn

__all__ = ["reset_last_layer"]


@torch.no_grad()
def reset_last_layer(model: nn.Module, seed: int = 0) -> None:
    """Draw the weights of the last linear layer anew, in the way torch first did; the same in every process.

    Args:
        model: with at least one `nn.Linear`.
        seed: decides the weights; torch's random state is neither read nor changed.
    """
    layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
    if not layers:
        raise ValueError("model: expected a linear layer to reset, got none")
    last = layers[-1]
    bound = 1 / math.sqrt(last.in_features)
    generator = torch.Generator().manual_seed(seed)
    for parameter in (last.weight, last.bias):
        if parameter is not None:
            drawn = torch.rand(parameter.shape, generator=generator) * 2 * bound - bound
            parameter.copy_(drawn)
