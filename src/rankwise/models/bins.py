"""Piecewise-linear encoding of columns by quantiles."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

__all__ = ["PiecewiseLinear"]


class PiecewiseLinear(nn.Module):
    """Encode each column by ramps between its quantiles: (x - low) / (high - low), cut to [0, 1], for each bin.

    A linear function of the ramps is a piecewise-linear function of the column (Gorishniy et al., "On embeddings for
    numerical features in tabular deep learning", 2022). A column of two values has one ramp, a constant one none.

    Args:
        columns: (E,) the column of each ramp.
        low: (E,) where each ramp begins; high: (E,) where it ends.

    Example:
        >>> encode = PiecewiseLinear.fit(np.array([[0.0], [1.0], [2.0], [3.0], [4.0]]), bins=2)
        >>> encode(torch.tensor([[1.0], [3.0]], dtype=torch.float64))
        tensor([[0.5000, 0.0000],
                [1.0000, 0.5000]], dtype=torch.float64)
    """

    columns: Tensor
    low: Tensor
    width: Tensor

    def __init__(self, columns: Tensor, low: Tensor, high: Tensor) -> None:
        super().__init__()
        self.register_buffer("columns", columns)
        self.register_buffer("low", low)
        self.register_buffer("width", high - low)

    @classmethod
    def fit(cls, features: NDArray[np.float64], *, bins: int) -> PiecewiseLinear:
        """Return an encoding with at most `bins` ramps for each column of features (N, D)."""
        quantiles = np.quantile(features, np.linspace(0, 1, bins + 1), axis=0)
        edges = [np.unique(column) for column in quantiles.T]
        columns = np.repeat(np.arange(len(edges)), [len(edge) - 1 for edge in edges])
        low, high = (np.concatenate(parts) for parts in ([e[:-1] for e in edges], [e[1:] for e in edges]))
        return cls(torch.from_numpy(columns), torch.from_numpy(low), torch.from_numpy(high))

    def forward(self, features: Tensor) -> Tensor:
        """Map columns (..., D) to ramps (..., E)."""
        return ((features[..., self.columns] - self.low) / self.width).clamp(0, 1)
