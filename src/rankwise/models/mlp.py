"""Small fully connected networks for rows of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from torch import Tensor, nn
from torch.nn import functional

__all__ = ["MLPEmbedder", "MLPScorer", "fully_connected"]


class MLPScorer(nn.Module):
    """One raw score (logit) per row.

    Args:
        inputs: D, the numbers in a row.
        hidden: the widths of the hidden layers.
        dropout: before the last layer, while training.

    Example:
        >>> import torch
        >>> MLPScorer(64, hidden=(16,))(torch.rand(5, 64)).shape
        torch.Size([5])
    """

    def __init__(self, inputs: int, *, hidden: Sequence[int] = (64,), dropout: float = 0.0) -> None:
        super().__init__()
        self.layers = fully_connected(inputs, hidden, 1, dropout=dropout)

    def forward(self, features: Tensor) -> Tensor:
        """Rows (N, D) to scores (N,)."""
        return cast(Tensor, self.layers(features)).squeeze(-1)


class MLPEmbedder(nn.Module):
    """One vector per row.

    Args:
        inputs: D, the numbers in a row.
        outputs: d, the numbers in a vector.
        hidden: the widths of the hidden layers.
        normalise: vectors of length 1, so that their products are cosines; otherwise as the last layer gives them.

    Example:
        >>> import torch
        >>> vectors = MLPEmbedder(64, 32)(torch.rand(5, 64))
        >>> vectors.shape, bool(torch.allclose(vectors.norm(dim=1), torch.ones(5)))
        (torch.Size([5, 32]), True)
    """

    def __init__(self, inputs: int, outputs: int, *, hidden: Sequence[int] = (64,), normalise: bool = True) -> None:
        super().__init__()
        self.layers = fully_connected(inputs, hidden, outputs)
        self.normalise = normalise

    def forward(self, features: Tensor) -> Tensor:
        """Rows (N, D) to vectors (N, d)."""
        vectors = cast(Tensor, self.layers(features))
        return functional.normalize(vectors, dim=1) if self.normalise else vectors


def fully_connected(inputs: int, hidden: Sequence[int], outputs: int, *, dropout: float = 0.0) -> nn.Sequential:
    """Linear layers with ReLU between them, and dropout before the last if asked for."""
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [nn.Linear(inputs, width), nn.ReLU()]
        inputs = width
    if dropout:
        layers.append(nn.Dropout(dropout))
    return nn.Sequential(*layers, nn.Linear(inputs, outputs))
