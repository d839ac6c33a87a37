"""Networks, logistic regressions and trees of the same rows, stacked."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from rankwise.checks import check_count
from rankwise.models.rows import NUMBER, Members, Scaling, squash, unsquash
from rankwise.models.trees import EXTRA_TREES, TreeMembers, share_margin

__all__ = ["LEARNERS", "Ramps", "StackedScorer", "fit_logistic", "out_of_fold", "scale_of"]

LEARNERS = ("network", "network, cross entropy", "linear", "ramps", "balanced ramps", "boosting", "extra trees")
# Networks, which differ in their loss.
_NETWORKS = 2
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
    """Log odds of positive rows: `sum_k factor_k score_k + constant` of two networks, three logistic regressions,
    boosted trees and extremely randomised trees, in the order of `LEARNERS`.

    There are M members of each, and a score is the mean of theirs. If the rows are in M folds, member m learns nothing
    from fold m, so that the scores of all rows by members that did not learn from them can decide the factors. The two
    networks differ in the loss that they are trained with. The inputs of the regressions are the scaled features, their
    `Ramps`, and the ramps with both classes of equal weight. The trees are scikit-learn's, turned into tensors.

    In training mode the scores (N, 2 M) are those of the networks, which are trained by themselves: first all members
    of the one, then all of the other. Before `mix` the scores (N,) are the means of those.

    Args:
        width: D, the number of features.
        hidden: the widths of the hidden layers of each network.
        members: M.
        scaling: of the features, see `Scaling`; fill_missing: see there. Scaled features are squashed into (-3, 3).
        bins: ramps of each feature.
        columns: the column and the code of each feature, see `Columns`, for the trees; by default all are numbers.

    Example:
        >>> rows, labels = torch.randn(200, 3), torch.arange(200) % 5 == 0
        >>> model = StackedScorer(3, members=2).eval()
        >>> _ = model.scaling.fit(rows)
        >>> model.fit(rows, labels, torch.arange(200) % 2, regularisation=10.0)
        >>> model.member_scores(rows).shape
        torch.Size([200, 2, 7])
    """

    linear: Tensor
    centre: Tensor
    spread: Tensor
    factors: Tensor
    constant: Tensor
    fitted: Tensor

    def __init__(
        self,
        width: int,
        *,
        hidden: Sequence[int] = (64, 64),
        members: int = 5,
        scaling: str = "standard",
        fill_missing: bool = False,
        bins: int = 8,
        columns: Sequence[tuple[int, int]] | None = None,
    ) -> None:
        super().__init__()
        self.scaling = Scaling(width, scaling, fill_missing=fill_missing)
        self.members = check_count("members", members)
        self.network = Members(_NETWORKS * members, width, 1, hidden=hidden).float()
        self.ramps = Ramps(width, bins)
        # For each member and regression the weights of the features or of the ramps, then the intercept.
        self.register_buffer("linear", torch.zeros(members, _REGRESSIONS, width * (bins + 1) + 1))
        self.register_buffer("centre", torch.zeros(_NETWORKS * members))
        self.register_buffer("spread", torch.ones(_NETWORKS * members))
        codes = [(column, NUMBER) for column in range(width)] if columns is None else columns
        self.trees = TreeMembers(members, codes)
        factors = torch.zeros(len(LEARNERS))
        factors[:_NETWORKS] = 1 / _NETWORKS
        self.register_buffer("factors", factors)
        self.register_buffer("constant", torch.zeros(()))
        self.register_buffer("fitted", torch.tensor(False))

    def forward(self, features: Tensor) -> Tensor:
        """Score rows (N, D)."""
        if self.training:
            return self.network_scores(features)
        scaled = self._scale(features)
        networks = self._standardised(scaled).mean(1)
        regressions = self._regressions(scaled, self.linear.mean(0))
        return self.mixed(torch.cat([networks, regressions, self._trees(features).mean(1)], 1))

    def network_scores(self, features: Tensor) -> Tensor:
        """Return the scores (N, 2 M) that are trained: of all members of the one network, then of the other."""
        return self._networks(self._scale(features))

    @torch.no_grad()
    def fit(
        self,
        features: Tensor,
        labels: Tensor,
        folds: Tensor | None,
        *,
        regularisation: float,
        weights: Tensor | None = None,
    ) -> None:
        """Fit regressions and trees, and the scale of the scores of the trained networks.

        Args:
            features: (N, D); labels: (N,) above 0 for positives.
            folds: (N,) the member that does not learn from a row; None if all learn from all rows.
            regularisation: `regularisation / 2` is the cost of the squared weights of a regression.
            weights: (N,) of the rows; by default 1.
        """
        weights = torch.ones(len(labels), dtype=torch.float64, device=labels.device) if weights is None else weights
        filled, scaled = self.scaling.fill(features), self._scale(features)
        self._fit_regressions(scaled, labels > 0, folds, weights.double(), regularisation)
        self.trees.fit(filled, scaled, labels > 0, weights, folds, self._unscale)
        centre, spread = scale_of(self._networks(scaled), labels > 0)
        self.centre.copy_(centre)
        self.spread.copy_(spread)
        self.fitted.fill_(True)

    def _fit_regressions(
        self, scaled: Tensor, positive: Tensor, folds: Tensor | None, weights: Tensor, regularisation: float
    ) -> None:
        self.ramps.fit(scaled)
        inputs, width = self._inputs(scaled).double(), scaled.shape[1]
        self.linear.zero_()
        for row, columns, balanced in (
            (0, slice(0, width), False),
            (1, slice(width, inputs.shape[1]), False),
            (2, slice(width, inputs.shape[1]), True),
        ):
            own, fitted = inputs[:, columns].contiguous(), None
            for member in range(self.members):
                if fitted is None or folds is not None:
                    learned = weights if folds is None else weights * (folds != member)
                    cost = _balance(positive, learned) if balanced else learned
                    # Members are alike: one begins where the one before it ended.
                    fitted = fit_logistic(own, positive, cost, regularisation=regularisation, start=fitted)
                self.linear[member, row, columns], self.linear[member, row, -1] = fitted[:-1], fitted[-1]

    @torch.no_grad()
    def member_scores(self, features: Tensor) -> Tensor:
        """Return the scores (N, M, K) of the learners of each member; the networks' are standardised."""
        scaled = self._scale(features)
        networks = self._standardised(scaled)
        # Before `fit` the others have learned nothing.
        if not self.fitted:
            return functional.pad(networks, (0, len(LEARNERS) - _NETWORKS))
        regressions = torch.stack([self._regressions(scaled, linear) for linear in self.linear], 1)
        return torch.cat([networks, regressions, self._trees(features)], 2)

    def mix(self, factors: Tensor, constant: float) -> None:
        """Set the factors (K,) and the constant of the sum."""
        self.factors.copy_(factors)
        self.constant.fill_(constant)

    def mixed(self, scores: Tensor) -> Tensor:
        """Return the sum (...,) of scores (..., K)."""
        return scores @ self.factors + self.constant

    def _scale(self, features: Tensor) -> Tensor:
        return squash(self.scaling(features))

    def _unscale(self, scaled: Tensor, inputs: Tensor) -> Tensor:
        return self.scaling.invert(unsquash(scaled), inputs)

    def _networks(self, scaled: Tensor) -> Tensor:
        """Return the scores (N, 2 M) of the networks."""
        scores: Tensor = self.network(scaled)
        return scores.squeeze(-1).T

    def _standardised(self, scaled: Tensor) -> Tensor:
        """Return the scores (N, M, 2) of the networks, standardised."""
        scores = (self._networks(scaled) - self.centre) / self.spread
        return torch.stack(scores.split(self.members, 1), 2)

    def _inputs(self, scaled: Tensor) -> Tensor:
        return torch.cat([scaled, self.ramps(scaled)], 1)

    def _regressions(self, scaled: Tensor, linear: Tensor) -> Tensor:
        return self._inputs(scaled) @ linear[:, :-1].T + linear[:, -1]

    def _trees(self, features: Tensor) -> Tensor:
        """Return the log odds (N, M, 2) of boosted and of extremely randomised trees."""
        boosting, share = self.trees(self.scaling.fill(features)).unbind(2)
        margin = share_margin(EXTRA_TREES.trees)
        return torch.stack([boosting, (margin + (1 - 2 * margin) * share).logit()], 2)


def out_of_fold(scores: Tensor, folds: Tensor) -> Tensor:
    """Return of member scores (N, M, ...) those (N, ...) of the member that did not learn from the row.

    Example:
        >>> out_of_fold(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([1, 0]))
        tensor([2., 3.])
    """
    return scores[torch.arange(len(scores)), folds]


def scale_of(scores: Tensor, positive: Tensor) -> tuple[Tensor, Tensor]:
    """Return the median of the negatives, and how far above it a tenth of them are, for each column (...) of scores.

    Members of folds are compared on this scale. A mean and a standard deviation would be those of the few rows that a
    member has learned by heart.

    Args:
        scores: (N, ...); positive: (N,) True for positives, some are not.
    """
    negatives = scores[~positive].double().sort(0).values
    middle, high = (negatives[int(share * (len(negatives) - 1))] for share in (0.5, 0.9))
    # Few different scores may have nothing between the two.
    spread = torch.maximum(high - middle, 0.1 * negatives.std(0, correction=0))
    return middle, torch.where(spread > 0, spread, 1.0)


def _balance(positive: Tensor, weights: Tensor) -> Tensor:
    """Return the weights (N,) of rows times a number for each class, so that both weigh the same."""
    kinds = torch.stack([(weights * ~positive).sum(), (weights * positive).sum()]).clamp_min(1)
    return weights * (weights.sum() / (2 * kinds))[positive.long()]


def fit_logistic(
    features: Tensor, labels: Tensor, weights: Tensor, *, regularisation: float, start: Tensor | None = None
) -> Tensor:
    """Return weights (D,) and intercept of a logistic regression as one tensor (D + 1,), float64.

    Minimises the sum of the weighted log losses plus `regularisation |w|^2 / 2`; the intercept is free.

    Args:
        features: (N, D).
        labels: (N,) True for positives.
        weights: (N,) of the rows.
        regularisation: above 0.
        start: (D + 1,) weights and intercept to begin with; by default 0.

    Example:
        >>> rows = torch.tensor([[-2.0], [-1.0], [1.0], [2.0]])
        >>> fitted = fit_logistic(rows, rows[:, 0] > 0, torch.ones(4), regularisation=1.0)
        >>> bool(fitted[0] > 0), abs(round(float(fitted[1]), 3))
        (True, 0.0)
    """
    features, targets, weights = features.detach().double(), labels.double(), weights.double()
    zeros = torch.zeros(features.shape[1] + 1, dtype=torch.float64, device=features.device)
    at = (zeros if start is None else start.clone()).requires_grad_()
    optimiser = torch.optim.LBFGS([at], max_iter=300, line_search_fn="strong_wolfe", tolerance_grad=1e-6)
    total = weights.sum()

    def cost() -> Tensor:
        optimiser.zero_grad()
        logits = features @ at[:-1] + at[-1]
        fit = (weights * functional.binary_cross_entropy_with_logits(logits, targets, reduction="none")).sum()
        value = (fit + regularisation * at[:-1].square().sum() / 2) / total
        value.backward()
        return value

    with torch.enable_grad():
        optimiser.step(cost)
    return at.detach()
