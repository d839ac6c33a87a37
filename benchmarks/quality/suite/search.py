"""Search: NDCG@5 of rankers on MQ2008, on all its queries and with a hundred to learn from.

A cut is one of its five folds. The development half is judged on the validation sections and learns from the training
sections; the confirmation half learns from both and is judged on the test sections.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

import rankwise as rw
from benchmarks.quality.mq2008.bridge import by_query, lightgbm_with, xgboost_with
from benchmarks.quality.mq2008.data import join_validation, load_fold
from rankwise.boosting import objective
from rankwise.data import Part
from rankwise.metrics import ndcg
from rankwise.problems import SearchRanking
from rankwise.sklearn import NDCGRanker

__all__ = ["CONTENDERS", "METRIC", "OURS", "data_sets", "evaluate"]

METRIC = "NDCG@5"
OURS = "NDCGRanker()"
# Queries to learn from, of the smaller set.
FEW = 100

# From rows to learn from, rows to score and a seed to scores.
Contender = Callable[[Part, Part, int], Tensor]


def _ranker(train: Part, test: Part, seed: int) -> Tensor:
    assert train.query_ids is not None
    model = NDCGRanker(random_state=seed)
    model.fit(train.features.numpy(), train.labels.numpy(), qid=train.query_ids.numpy())
    return torch.from_numpy(model.predict(test.features.numpy()))


def _trained(**options: Any) -> Contender:
    def score(train: Part, test: Part, seed: int) -> Tensor:
        problem = SearchRanking(seeds=(seed,), **options)
        # The test part is required and only its scores are used.
        run = rw.train(problem, train=_arrays(train), test=_arrays(test))
        return problem.predict(run.model, run.part("test"))

    return score


def _tuned_lightgbm(train: Part, test: Part, seed: int) -> Tensor:
    """Choose rate and leaves on a fifth of the queries, then fit to all of them."""
    learn, choose = _few(train, 0.8, seed)

    def fitted(rate: float, leaves: int, part: Part, to: Part) -> Tensor:
        from lightgbm import LGBMRanker

        features, labels, sizes = by_query(part)
        options = {"learning_rate": rate, "num_leaves": leaves, "n_estimators": 100, "label_gain": [0, 1, 3]}
        model = LGBMRanker(**options, n_jobs=1, verbosity=-1).fit(features, labels, group=sizes)
        return torch.from_numpy(np.asarray(model.predict(to.features.numpy())))

    grid = itertools.product((0.03, 0.1), (7, 15))
    best = max(grid, key=lambda pair: _quality(fitted(*pair, learn, choose), choose))
    return fitted(*best, train, test)


def _boosted(fit: Callable[[Part, Part], Tensor]) -> Contender:
    return lambda train, test, seed: fit(train, test)


CONTENDERS: Mapping[str, Contender] = {
    OURS: _ranker,
    "rankwise train": _trained(),
    "rankwise train, ListNet": _trained(loss="listnet"),
    "LightGBM lambdarank": _boosted(lightgbm_with("lambdarank")),
    "LightGBM lambdarank, tuned": _tuned_lightgbm,
    "LightGBM listnet of rankwise": _boosted(lightgbm_with(objective("listnet"))),
    "XGBoost rank:ndcg": _boosted(xgboost_with("rank:ndcg")),
}


def data_sets(half: str) -> Sequence[str]:
    """Return the names of the data sets of one half."""
    return [f"MQ2008 ({half})", f"MQ2008, {FEW} queries ({half})"]


def evaluate(data: str, contender: str, cut: int) -> float:
    """Return NDCG@5 of a contender on the queries of a section that have relevant documents."""
    train, test = _parts(data, cut)
    return _quality(CONTENDERS[contender](train, test, cut), test)


def _quality(scores: Tensor, part: Part) -> float:
    values = ndcg(scores, part.labels, query_ids=part.query_ids, k=5, reduction="none", empty="skip")
    return float(values.nanmean())


@functools.cache
def _parts(data: str, cut: int) -> tuple[Part, Part]:
    split = load_fold(cut + 1)
    confirmed = data.endswith("(confirmation)")
    train = join_validation(split).train if confirmed else split.train
    if "queries" in data:
        assert train.query_ids is not None
        train, _ = _few(train, FEW / len(train.query_ids.unique()), cut)
    return train, split.part("test" if confirmed else "validation")


def _few(part: Part, share: float, seed: int) -> tuple[Part, Part]:
    """Return the rows of some queries, and of the others."""
    assert part.query_ids is not None
    queries = part.query_ids.unique()
    order = torch.randperm(len(queries), generator=torch.Generator().manual_seed(seed))
    chosen = torch.isin(part.query_ids, queries[order[: round(share * len(queries))]])
    return tuple(part.take(rows.nonzero().squeeze(1)) for rows in (chosen, ~chosen))  # type: ignore[return-value]


def _arrays(part: Part) -> tuple[Any, ...]:
    assert part.query_ids is not None
    return part.features.numpy(), part.labels.numpy(), part.query_ids.numpy()
