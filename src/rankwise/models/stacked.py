"""A network beside logistic regressions of the same rows, stacked."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from rankwise.checks import check_count
from rankwise.models.rows import Scaling

__all__ = ["Ramps", "StackedScorer", "fit_logistic"]

# Regressions: of the scaled features; of their ramps; of their ramps, with both classes of equal weight.
_REGRESSIONS = 3


class Ramps(nn.Module):
    """Encode each feature by ramps between its quantiles: (x - low) / (high - low), cut to [0, 1], for each bin.

    A linear function of the ramps is a piecewise-linear function of the feature. Quantiles that are equal leave a ramp
    of 0.

    Args:
        width: D, the number of features; bins: B for each.

    Example:
        >>> ramps = Ramps(1, bins=2).fit(torch.tensor([[0.0], [1.0], [2.0], [3.0], [4.0]]))
        >>> ramps(torch.tensor([[1.0], [3.0]]))
        tensor([[0.5000, 0.0000],
                [1.0000, 0.5000]])

    Paper: Gorishniy et al., On embeddings for numerical features in tabular deep learning, NeurIPS 2022.
    """

    low: Tensor
    factor: Tensor

    def __init__(self, width: int, bins: int) -> None:
        super().__init__()
        self.register_buffer("low", torch.zeros(width, check_count("bins", bins)))
        self.register_buffer("factor", torch.zeros(width, bins))

    @torch.no_grad()
    def fit(self, features: Tensor) -> Ramps:
        """Learn the quantiles of the rows (N, D) of the training part."""
        shares = torch.linspace(0, 1, self.low.shape[1] + 1, dtype=torch.float64, device=features.device)
        for column, values in enumerate(features.T.double()):  # torch.quantile takes 16 million numbers at most
            ordered = values.sort().values
            at = shares * (len(ordered) - 1)
            edges = torch.lerp(ordered[at.floor().long()], ordered[at.ceil().long()], at.frac())
            spread = edges.diff()
            self.low[column] = edges[:-1]
            self.factor[column] = torch.where(spread > 0, 1 / torch.where(spread > 0, spread, 1.0), 0.0)
        return self

    def forward(self, features: Tensor) -> Tensor:
        """Encode rows (N, D) as (N, D B)."""
        return ((features[..., None] - self.low) * self.factor).clamp(0, 1).flatten(-2)


class StackedScorer(nn.Module):
    """Log odds of positive rows: `sum_k factor_k score_k + constant` of a network and three logistic regressions.

    The inputs of the regressions are the scaled features, their `Ramps`, and the ramps with both classes of equal
    weight. In training mode, and before `mix`, the scores are those of the network, which is trained by itself.

    Args:
        network: scaled rows (N, D) to scores (N,).
        width: D, the number of features.
        scaling: of the features, see `Scaling`; fill_missing: see there.
        bins: ramps of each feature.

    Example:
        >>> rows, labels = torch.randn(200, 3), torch.arange(200) % 5 == 0
        >>> model = StackedScorer(nn.Sequential(nn.Linear(3, 1), nn.Flatten(0)), 3).eval()
        >>> _ = model.scaling.fit(rows)
        >>> model.fit(rows, labels, regularisation=10.0)
        >>> model.member_scores(rows).shape
        torch.Size([4, 200])
    """

    linear: Tensor
    spread: Tensor
    factors: Tensor
    constant: Tensor

    def __init__(
        self,
        network: nn.Module,
        width: int,
        *,
        scaling: str = "standard",
        fill_missing: bool = False,
        bins: int = 8,
    ) -> None:
        super().__init__()
        self.scaling = Scaling(width, scaling, fill_missing=fill_missing)
        self.network = network
        self.ramps = Ramps(width, bins)
        # One row for each regression: the weights of the features or of the ramps, then the intercept.
        self.register_buffer("linear", torch.zeros(_REGRESSIONS, width * (bins + 1) + 1))
        self.register_buffer("spread", torch.ones(()))
        self.register_buffer("factors", torch.tensor([1.0] + [0.0] * _REGRESSIONS))
        self.register_buffer("constant", torch.zeros(()))

    def forward(self, features: Tensor) -> Tensor:
        """Score rows (N, D)."""
        scaled = self.scaling(features)
        scores: Tensor = self.network(scaled)
        if self.training:
            return scores
        return self.factors[0] * scores / self.spread + self._regressions(scaled) @ self.factors[1:] + self.constant

    @torch.no_grad()
    def fit(self, features: Tensor, labels: Tensor, *, regularisation: float) -> None:
        """Fit the regressions to rows (N, D) with labels (N,), and the spread of the scores of the trained network."""
        scaled = self.scaling(features)
        self.ramps.fit(scaled)
        inputs, width, positive = self._inputs(scaled), scaled.shape[1], labels > 0
        ones = torch.ones(len(labels), dtype=torch.float64, device=labels.device)
        kinds = torch.stack([(~positive).sum(), positive.sum()]).clamp_min(1)
        balanced = (len(labels) / (2 * kinds.double()))[positive.long()]
        self.linear.zero_()
        for row, columns, weights in (
            (0, slice(0, width), ones),
            (1, slice(width, inputs.shape[1]), ones),
            (2, slice(width, inputs.shape[1]), balanced),
        ):
            fitted = fit_logistic(inputs[:, columns], positive, weights, regularisation=regularisation)
            self.linear[row, columns], self.linear[row, -1] = fitted[:-1], fitted[-1]
        training = self.network.training
        scores = self.network.eval()(scaled)
        self.network.train(training)
        self.spread.copy_(scores.double().std(correction=0).clamp_min(1e-12))

    @torch.no_grad()
    def member_scores(self, features: Tensor) -> Tensor:
        """Return the scores (K, N) of the network, in units of its spread, and of each regression."""
        scaled = self.scaling(features)
        return torch.cat([self.network(scaled)[None] / self.spread, self._regressions(scaled).T])

    def mix(self, factors: Tensor, constant: float) -> None:
        """Set the factors (K,) and the constant of the sum."""
        self.factors.copy_(factors)
        self.constant.fill_(constant)

    def _inputs(self, scaled: Tensor) -> Tensor:
        return torch.cat([scaled, self.ramps(scaled)], 1)

    def _regressions(self, scaled: Tensor) -> Tensor:
        return self._inputs(scaled) @ self.linear[:, :-1].T + self.linear[:, -1]


def fit_logistic(features: Tensor, labels: Tensor, weights: Tensor, *, regularisation: float) -> Tensor:
    """Return weights (D,) and intercept of a logistic regression as one tensor (D + 1,), float64.

    Minimises the sum of the weighted log losses plus `regularisation |w|^2 / 2`; the intercept is free.

    Args:
        features: (N, D).
        labels: (N,) True for positives.
        weights: (N,) of the rows.
        regularisation: above 0.

    Example:
        >>> rows = torch.tensor([[-2.0], [-1.0], [1.0], [2.0]])
        >>> fitted = fit_logistic(rows, rows[:, 0] > 0, torch.ones(4), regularisation=1.0)
        >>> bool(fitted[0] > 0), abs(round(float(fitted[1]), 3))
        (True, 0.0)
    """
    features, targets, weights = features.detach().double(), labels.double(), weights.double()
    at = torch.zeros(features.shape[1] + 1, dtype=torch.float64, device=features.device, requires_grad=True)
    optimiser = torch.optim.LBFGS([at], max_iter=300, line_search_fn="strong_wolfe", tolerance_grad=1e-6)
    total = weights.sum()

    def cost() -> Tensor:
        optimiser.zero_grad()
        logits = features @ at[:-1] + at[-1]
        fit = (weights * binary_cross_entropy_with_logits(logits, targets, reduction="none")).sum()
        value = (fit + regularisation * at[:-1].square().sum() / 2) / total
        value.backward()
        return value

    with torch.enable_grad():
        optimiser.step(cost)
    return at.detach()
