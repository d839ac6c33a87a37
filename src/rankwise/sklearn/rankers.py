"""Rankers trained for NDCG@k and pAp@k, one list per query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d

from rankwise.checks import check_choice, check_k, check_labels
from rankwise.deprecation import renamed_argument
from rankwise.metrics import Metric, create_metric, evaluate
from rankwise.sklearn.base import Floats, RankingEstimator
from rankwise.sklearn.learning import one_thread
from rankwise.sklearn.list_portfolio import ListPortfolio
from rankwise.sklearn.portfolio import Rows
from rankwise.sklearn.problems import ManyLists, hold_out
from rankwise.sklearn.table import scaler_of
from rankwise.surrogates import Gain, gain_function

__all__ = ["ListRanker", "NDCGRanker", "PApRanker"]

_MODELS = ("auto", "network")


class ListRanker(RankingEstimator):
    """Base class of the rankers, not for direct use."""

    # Under metadata routing the ids follow the rows through pipelines and searches without being asked for.
    __metadata_request__fit: ClassVar[dict[str, bool]] = {"qid": True}
    __metadata_request__partial_fit: ClassVar[dict[str, bool]] = {"qid": True}
    __metadata_request__score: ClassVar[dict[str, bool]] = {"qid": True}

    batch_queries: int

    def _metric(self) -> Metric:
        """Return the metric that this ranker is scored by."""
        raise NotImplementedError

    def fit(self, X: Any, y: Any, qid: Any = None, sample_weight: Any = None) -> ListRanker:
        """Train from scratch.

        Args:
            X: (N, D) numbers: an array or a sparse CSR matrix; or a pandas or polars frame with columns of any kind.
            y: (N,) how relevant each row is: 0 or more, for pAp@k 0 or 1.
            qid: (N,) the query of each row, numbers or strings in any order; None is refused.
            sample_weight: (N,) numbers of 0 or more; rows of weight 0 are ignored.
        """
        self._check_options("batch_queries")
        metric = self._metric()
        X, labels, queries, weights = self._check_rows(X, y, qid, sample_weight, reset=True)
        self.n_queries_ = int(queries.max()) + 1
        self._start_random()
        keys = self._random.permutation(self.n_queries_).astype(np.uint64)
        held = hold_out(keys, _useful(labels, queries), self.members, self.validation_fraction)[:, queries]
        self._begin(X, weights, 1, torch.float32)
        self._train(X, weights, self._lists(labels, weights, queries, held, metric))
        self._complete(X, labels, weights, queries, held)
        return self

    def _complete(
        self, X: Any, labels: torch.Tensor, weights: Floats, queries: NDArray[np.intp], held: NDArray[np.bool_]
    ) -> None:
        """Fit what a ranker has beside its networks."""

    def partial_fit(self, X: Any, y: Any, qid: Any = None, sample_weight: Any = None) -> ListRanker:
        """Go on with some more queries, all of whose rows are here: one pass over them, nothing is held out.

        Args:
            X: (N, D); y: (N,); qid: (N,); sample_weight: (N,), see `fit`.
        """
        self._check_options("batch_queries")
        metric = self._metric()
        first = not self.__sklearn_is_fitted__()
        X, labels, queries, weights = self._check_rows(X, y, qid, sample_weight, reset=first)
        count = int(queries.max()) + 1
        if first:
            self.n_queries_ = 0
            self._start_random()
            self._begin(X, weights, 1, torch.float32)
        else:
            scaler_of(X, weights, self._scaler)
        self.n_queries_ += count
        held = np.zeros((self._network.model.members, len(queries)), dtype=bool)
        problem = self._lists(labels, weights, queries, held, metric)
        self._train_more(X, weights, problem, steps=-(-count // self.batch_queries))
        return self

    def decision_function(self, X: Any) -> Floats:
        """Return the scores (N,); higher ranks first. Only scores of the same query should be compared."""
        return self._scores(X)[:, 0]

    def predict(self, X: Any) -> Floats:
        """Return the same as `decision_function`."""
        return self.decision_function(X)

    def score(self, X: Any, y: Any, qid: Any = None, sample_weight: Any = None) -> float:
        """Return the metric, averaged over the queries on which it is defined.

        Args:
            X: (N, D); y: (N,); sample_weight: (N,), see `fit`.
            qid: (N,); None takes all rows as one list, which is refused after a `fit` with several queries.
        """
        scores = self.decision_function(X)
        if qid is None and self.n_queries_ > 1:
            raise ValueError(
                "qid: expected the query of each row, as in fit, got None; in a search or a cross-validation call "
                "sklearn.set_config(enable_metadata_routing=True) first and pass qid= to it, so that it comes here"
            )
        weights, _ = self._check_weights(scores, sample_weight)
        metric = self._metric()
        labels = column_or_1d(y)
        check_consistent_length(scores, labels)
        result = evaluate(
            scores, labels, metric, query_ids=_query_numbers(qid, len(scores)), weights=weights, bootstrap=0
        )
        return result.means[metric.name]

    def _check_rows(
        self, X: Any, y: Any, qid: Any, sample_weight: Any, *, reset: bool
    ) -> tuple[Any, torch.Tensor, NDArray[np.intp], Floats]:
        X, y = self._check_labelled(X, y, reset=reset, y_numeric=True)
        if qid is None:
            raise ValueError(
                "qid: expected the query of each row, got None; pass fit(X, y, qid=...), or "
                f"qid=numpy.zeros({X.shape[0]}) if all rows are one list; APClassifier ranks rows without queries"
            )
        weights, there = self._check_weights(X, sample_weight)
        labels = torch.from_numpy(np.asarray(y, dtype=np.float64)[there])
        check_labels(labels, self._label_kinds[0])
        queries = _query_numbers(qid, X.shape[0])[there]
        return X[there], labels, np.unique(queries, return_inverse=True)[1], weights[there]

    def _lists(
        self,
        labels: torch.Tensor,
        weights: Floats,
        queries: NDArray[np.intp],
        held: NDArray[np.bool_],
        metric: Metric,
    ) -> ManyLists:
        return ManyLists(
            labels, torch.from_numpy(weights), queries, held, batch_queries=self.batch_queries, metric=metric
        )


def _takes_more_queries(ranker: NDCGRanker) -> bool:
    if ranker.model == "auto":
        raise AttributeError("partial_fit: expected model='network', got model='auto'")
    return True


class NDCGRanker(ListRanker):
    """A ranker trained for NDCG and scored by NDCG@k.

    By default networks trained with the ranking loss, and ridge regressions, boosted trees and extremely randomised
    trees of the gains, each on all queries but a fifth, five times. Their scores of the queries left out decide how
    they are mixed. A sparse table and a single query get networks only.

    Args:
        model: "auto" is all of these, "network" only networks.
        k: the cutoff of the metric, and of a loss that takes one ("k-song"); None: the whole list.
        gain: "exp2" or "linear", of the metric and the loss.
        loss: the registered name of a loss, see `rankwise list`.
        loss_options: options of that loss; by default `discount_shift=10` of "song", which overfits less.
        hidden_layer_sizes: the widths of the hidden layers; () is a linear network.
        members: how many networks; their scores are averaged.
        max_iter: optimiser steps at most.
        batch_queries: queries in a batch, with all their rows.
        learning_rate: of AdamW; it falls to 0 over `max_iter`.
        weight_decay: of AdamW.
        validation_fraction: the share of queries held out from each member.
        n_iter_no_change: stop after so many of the 20 looks at the held-out queries in a row without a better member.
        random_state: a seed decides everything that is random.
        verbose: print loss and held-out metric at each look.

    Attributes:
        n_queries_: how many queries it was trained with.
        n_features_in_, feature_names_in_: what `fit` saw; names where X has them, as a pandas or polars frame does.
        columns_left_out_: of a frame, the columns that tell nothing, with the reason for each.
        n_iter_: optimiser steps taken.
        history_: step, loss and metric of the held-out queries at each look.
        learners_: of `model="auto"` a list of learner, its metric on queries it was not trained on, and weight.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> X, qid = rng.normal(size=(400, 5)), np.arange(400) // 10
        >>> y = (X[:, 0] + X[:, 1] > 1).astype(int) + (X[:, 0] > 1.5)
        >>> ranker = NDCGRanker(k=5, hidden_layer_sizes=(), random_state=0).fit(X, y, qid=qid)
        >>> bool(ranker.score(X, y, qid=qid) > 0.9)
        True
    """

    _label_kinds = ("grades", "binary")
    _default_options: ClassVar[Mapping[str, Mapping[str, Any]]] = {"song": {"discount_shift": 10.0}}

    @renamed_argument("hidden", "hidden_layer_sizes", removed_in="0.3")
    @renamed_argument("max_steps", "max_iter", removed_in="0.3")
    @renamed_argument("patience", "n_iter_no_change", removed_in="0.3")
    def __init__(
        self,
        *,
        model: Literal["auto", "network"] = "auto",
        k: int | None = 10,
        gain: Gain = "exp2",
        loss: str = "song",
        loss_options: Mapping[str, Any] | None = None,
        hidden_layer_sizes: Sequence[int] = (64, 64),
        members: int = 5,
        max_iter: int = 300,
        batch_queries: int = 32,
        learning_rate: float = 0.01,
        weight_decay: float = 0.1,
        validation_fraction: float = 0.2,
        n_iter_no_change: int = 10,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        super().__init__(
            loss=loss,
            loss_options=loss_options,
            hidden_layer_sizes=hidden_layer_sizes,
            members=members,
            max_iter=max_iter,
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            validation_fraction=validation_fraction,
            n_iter_no_change=n_iter_no_change,
            random_state=random_state,
            verbose=verbose,
        )
        self.model = model
        self.k = k
        self.gain = gain
        self.batch_queries = batch_queries

    @available_if(_takes_more_queries)  # type: ignore[untyped-decorator]
    def partial_fit(self, X: Any, y: Any, qid: Any = None, sample_weight: Any = None) -> NDCGRanker:
        """Go on with some more queries, all of whose rows are here: one pass over them, nothing is held out.

        Only for `model="network"`.

        Args:
            X: (N, D); y: (N,); qid: (N,); sample_weight: (N,), see `fit`.
        """
        self._portfolio: ListPortfolio | None = None
        super().partial_fit(X, y, qid, sample_weight)
        return self

    def _check_options(self, *counts: str) -> None:
        super()._check_options(*counts)
        check_choice("model", self.model, _MODELS)

    def _complete(
        self, X: Any, labels: torch.Tensor, weights: Floats, queries: NDArray[np.intp], held: NDArray[np.bool_]
    ) -> None:
        self._portfolio = None
        # Without lists left out nothing tells how much trees count.
        if self.model == "network" or sparse.issparse(X) or not held.any():
            return
        gains = gain_function(self.gain)(labels)
        shares = (gains / gains.max().clamp_min(1e-300)).numpy()
        rows = Rows((labels > 0).long().numpy(), weights, held, classes=2)
        networks = self._member_scores(X)[..., 0]
        portfolio = ListPortfolio(None if self._encoder is None else self._encoder.codes)
        with one_thread(X):
            portfolio.fit(X, shares, queries, rows, networks, self._random)
        self._portfolio = portfolio
        self.learners_ = self._describe(portfolio, labels, weights, queries)

    def _describe(
        self, portfolio: ListPortfolio, labels: torch.Tensor, weights: Floats, queries: NDArray[np.intp]
    ) -> list[dict[str, Any]]:
        """Return the metric of each learner on lists that it did not learn from, and its weight."""
        metric = self._metric()
        values = [
            evaluate(scores, labels, metric, query_ids=queries, weights=weights, bootstrap=0).means[metric.name]
            for scores in portfolio.scores
        ]
        shares = portfolio.mix.shares
        return [
            {"learner": name, metric.name: value, "weight": float(share)}
            for name, value, share in zip(portfolio.names, values, shares, strict=True)
        ]

    def _scores(self, X: Any) -> Floats:
        check_is_fitted(self)
        X = self._check_features(X)
        networks: Floats = self._member_scores(X).mean(0)
        if self._portfolio is None:
            return networks
        return self._portfolio.predict(X, networks[:, 0])[:, None]

    def _metric(self) -> Metric:
        return create_metric(_at("ndcg", self.k), gain=self.gain)


class PApRanker(ListRanker):
    """A ranker trained for pAp@k and scored by it: a few good rows above the k best of the others.

    Args:
        k: how many negatives count, in the metric and the loss; None: all of a list.
        loss: the registered name of a loss of binary labels, see `rankwise list`.
        loss_options: options of that loss, such as {"surrogate": "ts*"}.
        hidden_layer_sizes, members, max_iter, batch_queries, learning_rate, weight_decay: see `NDCGRanker`.
        validation_fraction, n_iter_no_change, random_state, verbose: see `NDCGRanker`.

    A query without a positive, or with fewer than k others, is left out, in training as in the score.

    Attributes:
        n_queries_, n_features_in_, feature_names_in_, columns_left_out_, n_iter_, history_: see `NDCGRanker`.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> X, qid = rng.normal(size=(400, 5)), np.arange(400) // 20
        >>> y = (X[:, 0] + X[:, 1] > 1.5).astype(int)
        >>> ranker = PApRanker(k=5, hidden_layer_sizes=(), random_state=0).fit(X, y, qid=qid)
        >>> bool(ranker.score(X, y, qid=qid) > 0.9)
        True
    """

    @renamed_argument("hidden", "hidden_layer_sizes", removed_in="0.3")
    @renamed_argument("max_steps", "max_iter", removed_in="0.3")
    @renamed_argument("patience", "n_iter_no_change", removed_in="0.3")
    def __init__(
        self,
        *,
        k: int | None = 10,
        loss: str = "pap",
        loss_options: Mapping[str, Any] | None = None,
        hidden_layer_sizes: Sequence[int] = (64, 64),
        members: int = 5,
        max_iter: int = 300,
        batch_queries: int = 32,
        learning_rate: float = 0.01,
        weight_decay: float = 0.1,
        validation_fraction: float = 0.2,
        n_iter_no_change: int = 10,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        super().__init__(
            loss=loss,
            loss_options=loss_options,
            hidden_layer_sizes=hidden_layer_sizes,
            members=members,
            max_iter=max_iter,
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            validation_fraction=validation_fraction,
            n_iter_no_change=n_iter_no_change,
            random_state=random_state,
            verbose=verbose,
        )
        self.k = k
        self.batch_queries = batch_queries

    def _metric(self) -> Metric:
        return create_metric(_at("pap", self.k))


def _at(name: str, k: int | None) -> str:
    return name if check_k(k) is None else f"{name}@{k}"


def _query_numbers(qid: Any, rows: int) -> NDArray[np.intp]:
    """Return query ids of any kind as 0, 1, 2, ..."""
    if qid is None:
        return np.zeros(rows, dtype=np.intp)
    ids = column_or_1d(np.asarray(qid))
    if len(ids) != rows:
        raise ValueError(f"qid: expected one for each of the {rows} rows, got {len(ids)}")
    return np.unique(ids, return_inverse=True)[1]


def _useful(labels: torch.Tensor, queries: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return for each query whether its rows differ in relevance; metrics and losses are undefined for the others."""
    low, high = np.full(queries.max() + 1, np.inf), np.full(queries.max() + 1, -np.inf)
    np.minimum.at(low, queries, labels.numpy())
    np.maximum.at(high, queries, labels.numpy())
    return (high > low).astype(np.intp)
