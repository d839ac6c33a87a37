"""Recommendation: NDCG@20 of films on MovieLens-100K, for all users and for half of them.

A cut holds out a fifth of each user's films; the halves of the suite differ in the seeds of their cuts. Every choice is
made on a tenth of the films that are left, then everything is fitted to all of those. The defaults of `recsys` were
decided on MovieLens-100K and MovieLens-1M, so these figures are no proof for other data.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

import rankwise as rw
from benchmarks.find import find_data
from benchmarks.quality.blends import fit_ease
from rankwise.data import InteractionPart, Interactions, Split, read_movielens
from rankwise.problems import Recommendation

__all__ = ["CONTENDERS", "METRIC", "OURS", "data_sets", "evaluate"]

METRIC = "NDCG@20"
OURS = "rankwise train"
NAME = "ndcg@20"

Parts = Split[InteractionPart]
# From a problem, its pairs and their parts to NDCG@20 on the test part.
Contender = Callable[[Recommendation, Interactions, Parts], float]


class Popularity(nn.Module):
    """Score items by the number of users that chose them."""

    def __init__(self, part: InteractionPart) -> None:
        super().__init__()
        self.register_buffer("counts", torch.bincount(part.known.columns, minlength=part.known.width).double())

    def forward(self, history: Tensor) -> Tensor:
        return self.counts.expand(history.shape)


class ImplicitALS(nn.Module):
    """Alternating least squares of the package implicit; users are folded in by their histories."""

    def __init__(self, part: InteractionPart, *, factors: int, regularisation: float, weight: float) -> None:
        super().__init__()
        from implicit.als import AlternatingLeastSquares  # type: ignore[import-not-found]
        from scipy.sparse import csr_matrix

        model = AlternatingLeastSquares(
            factors, regularization=regularisation, alpha=weight, random_state=0, num_threads=1
        )
        model.fit(csr_matrix(part.known.dense().numpy()), show_progress=False)
        self.items = torch.from_numpy(np.asarray(model.item_factors)).double()
        self.regularisation, self.weight = regularisation, weight

    def forward(self, history: Tensor) -> Tensor:
        items, eye = self.items, torch.eye(self.items.shape[1], dtype=torch.float64)
        gram = items.T @ items + self.regularisation * eye
        users = []
        for row in history.double():
            own = items[row > 0]
            # A chosen item has the confidence `weight`, any other 1.
            users.append(torch.linalg.solve(gram + (self.weight - 1) * own.T @ own, self.weight * own.sum(0)))
        return torch.stack(users) @ items.T


def _ours(problem: Recommendation, pairs: Interactions, parts: Parts) -> float:
    run = rw.train(problem, train=pairs)  # which cuts the pairs alike
    return _judged(problem, run.model, parts.part("test"))


def _judged(problem: Recommendation, model: nn.Module, part: InteractionPart) -> float:
    return float(problem.evaluate(model, part).means[NAME])


def _ease(problem: Recommendation, pairs: Interactions, parts: Parts) -> float:
    return float(fit_ease(problem, parts)[1].means[NAME])


def _popularity(problem: Recommendation, pairs: Interactions, parts: Parts) -> float:
    return _judged(problem, Popularity(parts.train.join(parts.part("validation"))), parts.part("test"))


def _als(problem: Recommendation, pairs: Interactions, parts: Parts) -> float:
    validation = parts.part("validation")

    def fitted(part: InteractionPart, factors: int, regularisation: float) -> ImplicitALS:
        return ImplicitALS(part, factors=factors, regularisation=regularisation, weight=5.0)

    grid = itertools.product((16, 32), (1.0, 30.0))
    best = max(grid, key=lambda chosen: _judged(problem, fitted(parts.train, *chosen), validation))
    return _judged(problem, fitted(parts.train.join(validation), *best), parts.part("test"))


CONTENDERS: Mapping[str, Contender] = {
    OURS: _ours,
    "EASE, lambda by validation": _ease,
    "ALS of implicit, tuned": _als,
    "popularity": _popularity,
}


def data_sets(half: str) -> Sequence[str]:
    """Return the names of the data sets of one half."""
    return [f"MovieLens-100K ({half})", f"MovieLens-100K, half of the users ({half})"]


def evaluate(data: str, contender: str, cut: int) -> float:
    """Return NDCG@20 of a contender on the films of all users that were held out."""
    seed = cut + (100 if "confirmation" in data else 0)
    pairs = _pairs()
    if "half" in data:
        users = len(pairs.user_names)
        kept = torch.randperm(users, generator=torch.Generator().manual_seed(seed))[: users // 2]
        pairs = pairs.take(torch.isin(pairs.users, kept).nonzero().squeeze(1))
    problem = Recommendation.model_validate({"data": {"test": 0.2}, "seeds": (seed,)})
    _, split = problem.read({"train": pairs})
    return CONTENDERS[contender](problem, pairs, problem.cut(split, seed))


@functools.cache
def _pairs() -> Interactions:
    return read_movielens(find_data("movielens-100k"))
