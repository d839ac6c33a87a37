"""Regressions and trees beside the networks of a ranker, mixed by the order of lists they did not learn from."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rankwise.models.closed_forms import fit_list_regression
from rankwise.models.mixing import fit_list_mix
from rankwise.models.trees import build_boosting_regressor, build_extra_trees_regressor
from rankwise.sklearn.portfolio import Bag, Encoded, Floats, Rows, join_columns, out_of_fold
from rankwise.sklearn.table import bound, scaler_of

__all__ = ["ListPortfolio"]


class ListPortfolio:
    """Networks, ridge regressions, boosted and extremely randomised trees; a score is their sum with fitted factors.

    All but the networks learn the gains of rows, each member without its held-out lists.

    Args:
        codes: for each feature its column and its code, see `rankwise.models.rows.Columns`; None if all are numbers.

    Attributes:
        names: (K,) of the learners; mix: their sum; scores: (K, N) of the training rows by members that did not learn
            from them.
    """

    names = ("networks", "linear", "histogram boosting", "extra trees")

    def __init__(self, codes: Sequence[tuple[int, int]] | None) -> None:
        self._codes = codes

    def fit(
        self,
        X: Any,
        gains: Floats,
        queries: NDArray[np.intp],
        rows: Rows,
        networks: Floats,
        random: np.random.Generator,
    ) -> None:
        """Fit regressions, trees and the factors.

        Args:
            X: (N, D); gains: (N,); queries: (N,) the list of each row; rows: weights and held-out rows.
            networks: (M, N) scores of the trained networks.
            random: decides the trees.
        """
        self._scaler = scaler_of(X, rows.weights)
        table, scaled = self._table(X), self._scaled(X)
        self._linear = np.stack([self._regression(~held, scaled, gains, queries, rows.weights) for held in rows.held])
        self._bags = [Bag(build, gains) for build in (build_boosting_regressor, build_extra_trees_regressor)]
        members = [networks, self._linear @ scaled.T]
        for bag in self._bags:
            bag.fit(table, rows, random)
            members.append(bag.member_scores(table)[..., 0])
        self.scores = np.stack([out_of_fold(scores[..., None], rows.held)[:, 0] for scores in members])
        known = rows.held.any(0)
        taken = (self.scores[:, known], gains[known] * rows.weights[known], queries[known])
        self.mix = fit_list_mix(*(torch.from_numpy(each) for each in taken))

    def predict(self, X: Any, networks: Floats) -> Floats:
        """Return scores (N,) of rows (N, D), given the mean scores (N,) of the networks."""
        table = self._table(X)
        linear = self._scaled(X) @ self._linear.mean(0)
        scores = np.stack([networks, linear, *(bag.member_scores(table).mean(0)[:, 0] for bag in self._bags)])
        mixed: Floats = self.mix(torch.from_numpy(scores)).numpy()
        return mixed

    def _scaled(self, X: Any) -> Floats:
        scaled: Floats = bound(self._scaler.transform(X))
        return scaled

    @staticmethod
    def _regression(learned: NDArray[np.bool_], *given: NDArray[Any]) -> Floats:
        solved: Floats = fit_list_regression(*(torch.from_numpy(each[learned]) for each in given)).numpy()
        return solved

    def _table(self, X: Any) -> Encoded:
        return Encoded(X, partial(_join, scaler=self._scaler, codes=self._codes))


def _join(X: Any, scaler: Any, codes: Sequence[tuple[int, int]] | None) -> Any:
    return join_columns(X, bound(scaler.transform(X)), codes)
