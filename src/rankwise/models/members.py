"""Several small networks of one shape, computed together."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

__all__ = ["Members"]


class Members(nn.Module):
    """M fully connected scorers with C outputs each; no hidden layer makes them linear.

    Args:
        members: M; inputs: D, the numbers in a row; outputs: C.
        hidden: the widths of the hidden layers.
        generator: decides the initial weights; by default torch's random state does.

    Example:
        >>> members = Members(3, 8, 1, hidden=(16,), generator=torch.Generator().manual_seed(0))
        >>> members(torch.rand(5, 8, dtype=torch.float64)).shape
        torch.Size([3, 5, 1])
    """

    def __init__(
        self,
        members: int,
        inputs: int,
        outputs: int,
        *,
        hidden: Sequence[int],
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.members = members
        widths = (inputs, *hidden, outputs)
        self.weights = nn.ParameterList()
        self.biases = nn.ParameterList()
        for wide, narrow in pairwise(widths):
            bound = wide**-0.5
            shapes = (members, wide, narrow), (members, 1, narrow)
            weight, bias = (torch.rand(shape, generator=generator, dtype=torch.float64) for shape in shapes)
            self.weights.append(nn.Parameter((2 * weight - 1) * bound))
            self.biases.append(nn.Parameter((2 * bias - 1) * bound))

    def forward(self, features: Tensor) -> Tensor:
        """Map rows (B, D) for all members, or (M, B, D) for each, to scores (M, B, C)."""
        values = features
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            values = torch.matmul(torch.relu(values) if layer else values, weight) + bias
        return values
