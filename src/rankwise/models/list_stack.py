"""Networks, linear models and trees that score the rows of lists, stacked."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from rankwise.checks import check_count
from rankwise.models.closed_forms import fit_list_regression
from rankwise.models.rows import NUMBER, Members, Scaling, squash, unsquash
from rankwise.models.trees import TreeMembers

__all__ = ["LIST_LEARNERS", "StackedRanker"]

LIST_LEARNERS = ("networks", "linear", "boosting", "extra trees")


class StackedRanker(nn.Module):
    """Scores of rows: `sum_k factor_k score_k` of networks, linear models, boosted and extremely randomised trees.

    There are M members of each, and a score is the mean of theirs. If the lists are in M folds, member m learns nothing
    from fold m, so that the scores of all lists by members that did not learn from them can decide the factors.

    Linear models and the extremely randomised trees learn from scaled features, squashed to a bounded range.

    In training mode the scores (N, M) are those of the networks. Before `mix` a score (N,) is their mean.

    Args:
        width: D, the number of features.
        hidden: the widths of the hidden layers of each network.
        members: M.
        scaling: of the features, see `Scaling`; fill_missing: see there.
        columns: the column and the code of each feature, see `Columns`, for the trees; by default all are numbers.

    Example:
        >>> rows = torch.randn(200, 3)
        >>> model = StackedRanker(3, members=2).eval()
        >>> _ = model.scaling.fit(rows)
        >>> queries = torch.arange(200) // 10
        >>> model.fit(rows, rows[:, 0].exp(), queries, queries % 2)
        >>> model.member_scores(rows).shape
        torch.Size([200, 2, 4])
    """

    linear: Tensor
    factors: Tensor
    fitted: Tensor

    def __init__(
        self,
        width: int,
        *,
        hidden: Sequence[int] = (64, 64),
        members: int = 5,
        scaling: str = "standard",
        fill_missing: bool = False,
        columns: Sequence[tuple[int, int]] | None = None,
    ) -> None:
        super().__init__()
        self.scaling = Scaling(width, scaling, fill_missing=fill_missing)
        self.network = Members(check_count("members", members), width, 1, hidden=hidden).float()
        self.trees = TreeMembers(members, [(column, NUMBER) for column in range(width)] if columns is None else columns)
        self.register_buffer("linear", torch.zeros(width, members))
        self.register_buffer("factors", torch.tensor([1.0, 0.0, 0.0, 0.0]))
        self.register_buffer("fitted", torch.tensor(False))

    def forward(self, features: Tensor) -> Tensor:
        """Score rows (N, D)."""
        networks = self.network_scores(features)
        if self.training:
            return networks
        return self.mixed(torch.cat([networks[..., None], self._others(features)], 2).mean(1))

    def network_scores(self, features: Tensor) -> Tensor:
        """Return the scores (N, M) of the networks."""
        scores: Tensor = self.network(self.scaling(features))
        return scores.squeeze(-1).T

    @torch.no_grad()
    def fit(
        self, features: Tensor, gains: Tensor, queries: Tensor, folds: Tensor | None, weights: Tensor | None = None
    ) -> None:
        """Fit linear models and trees to the gains (N,) of rows (N, D).

        Args:
            features: (N, D); gains: (N,); queries: (N,) the list of each row.
            folds: (N,) the member that does not learn from a row; None if all learn from all rows.
            weights: (N,) of the rows; by default 1.
        """
        weights = torch.ones_like(gains) if weights is None else weights
        filled, scaled = self.scaling.fill(features), squash(self.scaling(features))
        for member in range(self.network.members):
            learned = slice(None) if folds is None else folds != member
            given = (each[learned] for each in (scaled, gains, queries, weights))
            self.linear[:, member] = fit_list_regression(*given)
        self.trees.fit(filled, scaled, gains, weights, folds, self._unscale)
        self.fitted.fill_(True)

    @torch.no_grad()
    def member_scores(self, features: Tensor) -> Tensor:
        """Return the scores (N, M, K) of the learners of each member."""
        networks = self.network_scores(features)[..., None]
        # Before `fit` the trees have learned nothing.
        if not self.fitted:
            return functional.pad(networks, (0, len(LIST_LEARNERS) - 1))
        return torch.cat([networks, self._others(features)], 2)

    def mix(self, factors: Tensor) -> None:
        """Set the factors (K,) of the sum."""
        self.factors.copy_(factors)

    def mixed(self, scores: Tensor) -> Tensor:
        """Return the sum (...,) of scores (..., K)."""
        return scores @ self.factors

    def _others(self, features: Tensor) -> Tensor:
        """Return the scores (N, M, K - 1) of the learners behind the networks."""
        linear = squash(self.scaling(features)) @ self.linear
        return torch.cat([linear[..., None], self.trees(self.scaling.fill(features))], 2)

    def _unscale(self, scaled: Tensor, inputs: Tensor) -> Tensor:
        return self.scaling.invert(unsquash(scaled), inputs)
