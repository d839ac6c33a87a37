"""Features on a common scale, as a layer: what it learned from the data is saved with the model."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rankwise.checks import check_choice

__all__ = ["SCALINGS", "ScaledRanker", "Scaling", "scaled"]

SCALINGS = ("standard", "log", "none")


class Scaling(nn.Module):
    """Each feature minus its mean, divided by its spread; a constant feature becomes 0.

    Args:
        features: (N, D) rows to learn mean and spread from: those of the training part.
        kind: "standard"; "log" takes sign(x) log(1 + |x|) first, for counts and other long tails.

    Example:
        >>> layer = Scaling(torch.tensor([[1.0, 5.0], [3.0, 5.0]]))
        >>> layer(torch.tensor([[3.0, 5.0], [5.0, 9.0]]))
        tensor([[1., 0.],
                [3., 0.]])
    """

    mean: Tensor
    factor: Tensor

    def __init__(self, features: Tensor, kind: str = "standard") -> None:
        super().__init__()
        self.kind = check_choice("kind", kind, ("standard", "log"))
        shaped = self._shape(features).double()
        mean, spread = shaped.mean(0), shaped.std(0, correction=0)
        # Rounding leaves a constant feature with a spread that is tiny beside its size.
        constant = spread <= 1e-7 * shaped.abs().amax(0).clamp_min(1e-30)
        factor = torch.where(constant, 0.0, 1 / torch.where(constant, 1.0, spread))
        self.register_buffer("mean", mean.to(features.dtype))
        self.register_buffer("factor", factor.to(features.dtype))

    def forward(self, features: Tensor) -> Tensor:
        """Rows (N, D) to rows (N, D)."""
        return (self._shape(features) - self.mean) * self.factor

    def _shape(self, features: Tensor) -> Tensor:
        return features.sign() * features.abs().log1p() if self.kind == "log" else features


def scaled(model: nn.Module, features: Tensor, kind: str) -> nn.Module:
    """The model behind a `Scaling` layer; the model itself with "none"."""
    return model if check_choice("scaling", kind, SCALINGS) == "none" else nn.Sequential(Scaling(features, kind), model)


class ScaledRanker(nn.Module):
    """A model of rows and their lists, `model(features, query_ids)`, behind a `Scaling` layer; without one for "none".

    Args:
        model: the model.
        features: (N, D) rows to learn the scaling from.
        kind: see `Scaling`.
    """

    def __init__(self, model: nn.Module, features: Tensor, kind: str) -> None:
        super().__init__()
        check_choice("scaling", kind, SCALINGS)
        self.scaling = nn.Identity() if kind == "none" else Scaling(features, kind)
        self.model = model

    def forward(self, features: Tensor, query_ids: Tensor | None = None) -> Tensor:
        scores: Tensor = self.model(self.scaling(features), query_ids)
        return scores
