"""Linear models, trees and networks, stacked."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import logit
from sklearn.base import is_regressor
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

from rankwise.losses import LOSSES
from rankwise.metrics import average_precision
from rankwise.models.bins import PiecewiseLinear
from rankwise.models.mixing import Mix, fit_mix
from rankwise.models.rows import Columns, Members
from rankwise.models.trees import build_boosting, build_extra_trees, share_margin
from rankwise.sklearn.learning import Budget, Fetch
from rankwise.sklearn.network import Network
from rankwise.sklearn.problems import OneList
from rankwise.sklearn.table import bound, scaler_of

__all__ = ["NETWORKS", "Bag", "Encoded", "Portfolio", "Rows", "join_columns", "out_of_fold"]

# Names of the networks, which differ in their loss.
NETWORKS = ("network, cross entropy", "network, ranking loss")

Floats = NDArray[np.float64]
View = Literal["scaled", "binned", "columns"]

_BINS = 8
# Wider encodings take too long.
_MOST_RAMPS = 2_048
# Linear models and extra trees learn little from more rows than this.
_MOST_ROWS = 50_000
_CHUNK = 65_536
_LOWEST_CHANCE = 1e-9
_LOGISTIC = partial(LogisticRegression, C=0.1, max_iter=300)


@dataclass(frozen=True)
class Rows:
    """Training rows of the learners.

    Attributes:
        kinds: (N,) the class of each row, 0 .. C-1; weights: (N,) positive numbers.
        held: (M, N) which rows are held out from which member of a learner.
        classes: C.
    """

    kinds: NDArray[np.intp]
    weights: Floats
    held: NDArray[np.bool_]
    classes: int

    @property
    def labels(self) -> NDArray[np.bool_]:
        """Return scores (N, outputs): one column for two classes, else one for each."""
        labels: NDArray[np.bool_] = self.kinds[:, None] == np.arange(1 if self.classes == 2 else 0, self.classes)
        return labels

    def learn_from(self, member: int, random: np.random.Generator) -> tuple[NDArray[np.intp], Floats]:
        """Return the rows of a member and their weights; of very many rows a sample that keeps the rare classes."""
        rows = np.flatnonzero(~self.held[member])
        if len(rows) <= _MOST_ROWS:
            return rows, self.weights[rows]
        counts = np.bincount(self.kinds[rows], minlength=self.classes)
        share = np.sqrt(counts) / np.sqrt(counts).sum()
        chance = np.minimum(1, _MOST_ROWS * share / np.maximum(counts, 1))[self.kinds[rows]]
        chosen = random.random(len(rows)) < chance
        return rows[chosen], self.weights[rows[chosen]] / chance[chosen]


class Encoded:
    """The columns of a table in one view; a long table is encoded anew whenever rows are taken.

    Args:
        X: (N, D) an array or a CSR array.
        encode: brings rows of it into the view.
    """

    def __init__(self, X: Any, encode: Callable[[Any], Any]) -> None:
        self._X, self._encode = X, encode
        self._table = encode(X) if X.shape[0] <= _CHUNK else None

    def __len__(self) -> int:
        return int(self._X.shape[0])

    def __getitem__(self, rows: NDArray[np.intp]) -> Any:
        """Return rows (n,) as an array or a CSR array."""
        return self._encode(self._X[rows]) if self._table is None else self._table[rows]

    def fetch(self, dtype: torch.dtype) -> Fetch:
        """Return what gives rows of any shape (...,) as a tensor (..., D)."""
        if isinstance(self._table, np.ndarray):
            return torch.from_numpy(self._table).to(dtype).__getitem__

        def dense(rows: NDArray[np.intp]) -> Tensor:
            values = self[rows.ravel()]
            values = values.toarray() if sparse.issparse(values) else values
            return torch.from_numpy(values).to(dtype).reshape(*rows.shape, values.shape[1])

        return dense


class Bag:
    """A scikit-learn classifier or regressor for each member; the score of a row is the mean of theirs.

    Args:
        build: makes a classifier or a regressor, given `random_state`.
        targets: (N,) what regressors learn.
    """

    def __init__(self, build: Callable[..., Any], targets: Floats | None = None) -> None:
        self._build, self._targets = build, targets

    def fit(self, table: Encoded, rows: Rows, random: np.random.Generator) -> None:
        """Train each member without its held-out rows."""
        self._models = []
        targets = rows.kinds if self._targets is None else self._targets
        for member in range(len(rows.held)):
            chosen, weights = rows.learn_from(member, random)
            # Weights of 1 are left out: histogram boosting takes several times as long with them.
            given = {} if (weights == 1).all() else {"sample_weight": weights}
            model = self._build(random_state=int(random.integers(2**31)))
            with warnings.catch_warnings():
                # A model that is nearly there ranks as well.
                warnings.simplefilter("ignore", ConvergenceWarning)
                self._models.append(model.fit(table[chosen], targets[chosen], **given))

    def member_scores(self, table: Encoded) -> Floats:
        """Return scores (M, N, outputs)."""
        parts = [
            np.stack([_scores_of(model, table[rows]) for model in self._models])
            for rows in np.split(np.arange(len(table)), range(_CHUNK, len(table), _CHUNK))
        ]
        return np.concatenate(parts, axis=1)


class Networks:
    """Members of a network, trained with a list loss.

    Args:
        loss: the loss, before any step.
        hidden: the widths of the hidden layers.
        budget: of the training.
        batch_size: rows in a batch.

    Attributes:
        steps: optimiser steps of the last training.
    """

    def __init__(self, loss: nn.Module, *, hidden: Sequence[int], budget: Budget, batch_size: int) -> None:
        self._loss, self._hidden, self._budget, self._batch_size = loss, hidden, budget, batch_size

    def fit(self, table: Encoded, rows: Rows, random: np.random.Generator) -> None:
        """Train all members at once."""
        # In float64 the order in which a small table is summed does not show.
        dtype = torch.float64 if len(table) <= self._batch_size else torch.float32
        fetch = table.fetch(dtype)
        generator = torch.Generator().manual_seed(int(random.integers(2**31)))
        size = len(rows.held), fetch(np.zeros(1, dtype=np.intp)).shape[1], rows.labels.shape[1]
        model = Members(*size, hidden=self._hidden, generator=generator)
        self._network = Network(model.to(dtype), self._loss)
        labels, weights = torch.from_numpy(rows.labels.astype(np.int64)), torch.from_numpy(rows.weights)
        problem = OneList(labels, weights, rows.held, self._batch_size)
        history = self._network.train(fetch, rows.weights, problem, self._budget, random)
        self.steps = int(history[-1]["step"])

    def member_scores(self, table: Encoded) -> Floats:
        """Return scores (M, N, outputs)."""
        return self._network.member_scores(table.fetch(torch.float64), len(table))


class Entry(NamedTuple):
    """A learner, its name, and the view of the table that it takes."""

    name: str
    view: View
    learner: Bag | Networks


class Portfolio:
    """Learners of different kinds, mixed for each class by their scores of rows they had not learned from.

    Args:
        loss: the ranking loss of one network; another takes cross entropy.
        codes: for each feature its column and its code, see `Columns`, for the trees; None if all are numbers.
        network: options that the networks share, see `Networks`.

    Attributes:
        names: (K,) of the learners.
        mixes: one for each output.
        quality: (K,) AP of the learners on rows they had not learned from, averaged over the outputs.
        steps: optimiser steps of the network that took most.
    """

    def __init__(self, loss: nn.Module, *, codes: Sequence[tuple[int, int]] | None = None, **network: Any) -> None:
        self._loss, self._network = loss, network
        self._codes = codes

    def fit(self, X: Any, rows: Rows, random: np.random.Generator) -> None:
        """Train all learners, then the mixes."""
        self._scaler = scaler_of(X, rows.weights)
        self._bins: PiecewiseLinear | None = None
        if not sparse.issparse(X) and 2 * X.shape[1] <= _MOST_RAMPS:
            self._bins = PiecewiseLinear.fit(X, bins=min(_BINS, _MOST_RAMPS // X.shape[1]))
        self._entries = self._choose(X)
        scores = []
        for entry, table in self._tables(X):
            entry.learner.fit(table, rows, random)
            scores.append(out_of_fold(entry.learner.member_scores(table), rows.held))
        self.names = [entry.name for entry in self._entries]
        self.steps = max(entry.learner.steps for entry in self._entries if isinstance(entry.learner, Networks))
        self.mixes, self.quality = _fit_mixes(np.stack(scores), rows, random)

    def logits(self, X: Any) -> Floats:
        """Return log odds (N, outputs)."""
        scores = np.stack([entry.learner.member_scores(table).mean(0) for entry, table in self._tables(X)])
        mixed = [mix(torch.from_numpy(scores[..., output])).numpy() for output, mix in enumerate(self.mixes)]
        return np.stack(mixed, axis=1)

    def _tables(self, X: Any) -> Iterator[tuple[Entry, Encoded]]:
        """Yield each learner with the table in its view, made once for all learners of that view."""
        encoders = {"scaled": self._scale, "binned": self._bin, "columns": self._join_columns}
        for view, entries in groupby(self._entries, key=lambda entry: entry.view):
            table = Encoded(X, encoders[view])
            yield from ((entry, table) for entry in entries)

    def _scale(self, X: Any) -> Any:
        return bound(self._scaler.transform(X))

    def _join_columns(self, X: Any) -> Any:
        return join_columns(X, self._scale(X), self._codes)

    def _bin(self, X: Any) -> Any:
        assert self._bins is not None
        return self._bins(torch.from_numpy(X)).numpy()

    def _choose(self, X: Any) -> list[Entry]:
        """Return the learners for a table, those of the same view together."""
        networks: Callable[[nn.Module], Networks] = partial(Networks, **self._network)
        entries = [
            Entry("logistic regression", "scaled", Bag(_LOGISTIC)),
            Entry(NETWORKS[0], "scaled", networks(LOSSES.get("cross-entropy").create())),
            Entry(NETWORKS[1], "scaled", networks(self._loss)),
            Entry("extra trees", "columns", Bag(build_extra_trees)),
        ]
        if not sparse.issparse(X):
            entries.append(Entry("histogram boosting", "columns", Bag(build_boosting)))
        if self._bins is not None:
            entries += [
                Entry("logistic regression on bins", "binned", Bag(_LOGISTIC)),
                Entry(
                    "logistic regression on bins, balanced", "binned", Bag(partial(_LOGISTIC, class_weight="balanced"))
                ),
            ]
        return entries


def _scores_of(model: Any, X: Any) -> Floats:
    """Return the log odds of each class against the rest, (N, C), or of the second of two, (N, 1); of a regressor its
    predictions (N, 1).
    """
    odds: Floats
    if is_regressor(model):
        odds = model.predict(X)[:, None]
        return odds
    if len(model.classes_) == 2 and hasattr(model, "decision_function"):
        odds = model.decision_function(X)[:, None]
        return odds
    chances = model.predict_proba(X)
    chances = chances[:, 1:] if len(model.classes_) == 2 else chances
    # The share of trees in favour is never taken for certain.
    margin = share_margin(model.n_estimators) if isinstance(model, ExtraTreesClassifier) else _LOWEST_CHANCE
    odds = logit(margin + (1 - 2 * margin) * chances)
    return odds


def join_columns(X: Any, scaled: Any, codes: Sequence[tuple[int, int]] | None) -> Any:
    """Return one number for each column of a table, see `Columns`, numbers scaled; without codes all are numbers."""
    if codes is None:
        return scaled
    columns = Columns(codes).double()
    return columns(torch.from_numpy(X), torch.from_numpy(scaled)).numpy()


def out_of_fold(scores: Floats, held: NDArray[np.bool_]) -> Floats:
    """Return (N, C) of member scores (M, N, C): the mean of members that a row was held out from, or else of all."""
    judges = held | ~held.any(0)
    mean: Floats = (scores * judges[..., None]).sum(0) / judges.sum(0)[:, None]
    return mean


def _fit_mixes(scores: Floats, rows: Rows, random: np.random.Generator) -> tuple[list[Mix], Floats]:
    """Return a mix for each output of the scores (K, N, C), and the AP (K,) of each learner.

    Rows that were never held out take no part, unless the others are of one kind.
    """
    mixes, quality = [], []
    for output, labels in enumerate(rows.labels.T):
        known = rows.held.any(0)
        if len(np.unique(labels[known])) < 2:
            known = np.ones_like(known)
        own, labels, weights = scores[:, known, output], labels[known], rows.weights[known]
        known_scores, positive, importance = (torch.from_numpy(each) for each in (own, labels, weights))
        mixes.append(fit_mix(known_scores, positive, importance, seed=int(random.integers(2**31))))
        expanded = (each.expand(own.shape) for each in (positive.long(), importance))
        values = average_precision(known_scores, next(expanded), weights=next(expanded), reduction="none")
        quality.append(values.numpy())
    return mixes, np.mean(quality, axis=0)
