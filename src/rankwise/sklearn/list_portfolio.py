"""Trees beside the networks of a ranker, mixed by the order of lists that they did not learn from."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rankwise.models.mixing import fit_list_mix
from rankwise.models.trees import build_boosting_regressor, build_extra_trees_regressor
from rankwise.sklearn.portfolio import Bag, Encoded, Floats, Rows, join_columns, out_of_fold
from rankwise.sklearn.table import bound, scaler_of

__all__ = ["ListPortfolio"]


class ListPortfolio:
    """Networks, boosted trees and extremely randomised trees; a score is their sum with fitted factors.

    The trees learn the gain of each row by itself, each member without its held-out lists.

    Args:
        codes: for each feature its column and its code, see `rankwise.models.rows.Columns`; None if all are numbers.

    Attributes:
        names: (K,) of the learners; mix: their sum; scores: (K, N) of the training rows by members that did not learn
            from them.
    """

    names = ("networks", "histogram boosting", "extra trees")

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
        """Fit the trees and the factors.

        Args:
            X: (N, D); gains: (N,); queries: (N,) the list of each row; rows: weights and held-out rows.
            networks: (M, N) scores of the trained networks.
            random: decides the trees.
        """
        self._scaler = scaler_of(X, rows.weights)
        table = self._table(X)
        self._bags = [Bag(build, gains) for build in (build_boosting_regressor, build_extra_trees_regressor)]
        members = [networks]
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
        scores = np.stack([networks, *(bag.member_scores(table).mean(0)[:, 0] for bag in self._bags)])
        mixed: Floats = self.mix(torch.from_numpy(scores)).numpy()
        return mixed

    def _table(self, X: Any) -> Encoded:
        return Encoded(X, partial(_join, scaler=self._scaler, codes=self._codes))


def _join(X: Any, scaler: Any, codes: Sequence[tuple[int, int]] | None) -> Any:
    return join_columns(X, bound(scaler.transform(X)), codes)
