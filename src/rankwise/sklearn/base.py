"""What the estimators share: options and their checks, features, training, scores."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from rankwise.checks import check_count, check_positive, check_share
from rankwise.losses import LOSSES, ListLoss
from rankwise.sklearn.learning import Budget, learn
from rankwise.sklearn.problems import Problem
from rankwise.sklearn.scorer import Members
from rankwise.sklearn.table import Table, scaler_of

__all__ = ["RankingEstimator"]

Floats = NDArray[np.float64]

# The held-out rows are looked at this often in a full run.
_LOOKS = 20
_CHUNK = 65_536


class RankingEstimator(BaseEstimator):  # type: ignore[misc]
    """An ensemble of linear or fully connected scorers trained with a list loss. Not for direct use."""

    _label_kinds: tuple[str, ...] = ("binary",)

    def __init__(
        self,
        *,
        loss: str,
        loss_options: Mapping[str, Any] | None,
        hidden: Sequence[int],
        members: int,
        max_steps: int,
        learning_rate: float,
        weight_decay: float,
        validation_fraction: float,
        patience: int,
        random_state: Any,
    ) -> None:
        self.loss = loss
        self.loss_options = loss_options
        self.hidden = hidden
        self.members = members
        self.max_steps = max_steps
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.random_state = random_state

    def _check_options(self, *counts: str) -> None:
        """Refuse options that make no sense; `counts` are further whole numbers."""
        for name in ("members", "max_steps", "patience", *counts):
            check_count(name, getattr(self, name))
        if isinstance(self.hidden, str) or not isinstance(self.hidden, Sequence):
            raise TypeError(f"hidden: expected the widths of the hidden layers, such as (64, 64), got {self.hidden!r}")
        for width in self.hidden:
            check_count("hidden", width)
        for name in ("learning_rate", "weight_decay"):
            value = getattr(self, name)
            check_positive(name, float(value) if isinstance(value, Real) else value, zero=name == "weight_decay")
        check_share("validation_fraction", self.validation_fraction)

    def _make_loss(self) -> ListLoss:
        """A fresh loss; what the metric has of `k` and `gain` is passed on to a loss that takes it."""
        record = LOSSES.get(self.loss)
        if record.labels not in self._label_kinds:
            expected = f"expected a loss of {self._label_kinds[0]} labels"
            raise ValueError(f"loss: {expected}, got {self.loss!r}, which is one of {record.labels}")
        options = copy.deepcopy(dict(self.loss_options or {}))
        for name in ("k", "gain"):
            if record.takes(name) and hasattr(self, name):
                options.setdefault(name, getattr(self, name))
        loss: ListLoss = record.create(**options)
        return loss

    def _check_weights(self, X: Any, sample_weight: Any) -> tuple[Floats, NDArray[np.bool_]]:
        """Weights (N,), and which of them are above 0: the others are as good as absent."""
        weights: Floats = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        return weights, weights > 0

    def _begin(self, X: Any, weights: Floats, outputs: int, dtype: torch.dtype) -> None:
        """A new ensemble and a new loss."""
        self._loss = self._make_loss()
        self._scaler = scaler_of(X, weights)
        generator = torch.Generator().manual_seed(self._draw_seed())
        model = Members(self.members, X.shape[1], outputs, hidden=self.hidden, generator=generator)
        self._model = model.to(dtype)

    def _train(self, X: Any, weights: Floats, problem: Problem) -> None:
        """All steps, with the best weights by the held-out rows in the end."""
        every = max(1, self.max_steps // _LOOKS)
        rates = float(self.learning_rate), float(self.weight_decay)
        self._learn(X, weights, problem, Budget(self.max_steps, *rates, check_every=every, patience=self.patience))

    def _train_more(self, X: Any, weights: Floats, problem: Problem, steps: int) -> None:
        """A few more steps at a constant rate."""
        rates = float(self.learning_rate), float(self.weight_decay)
        self._learn(X, weights, problem, Budget(steps, *rates, cooling=False))

    def _learn(self, X: Any, weights: Floats, problem: Problem, budget: Budget) -> None:
        table = Table(X, self._scaler, next(self._model.parameters()).dtype)
        self.history_ = learn(self._model, self._loss, problem, table.__getitem__, budget, self._random)
        self._note_spread(X, weights)

    def _draw_seed(self) -> int:
        return int(self._random.integers(2**31))

    def _start_random(self) -> None:
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        self._random = np.random.default_rng(seed)

    def _note_spread(self, X: Any, weights: Floats) -> None:
        """Members of equal say: a ranking loss leaves the scale of scores open, so each is divided by its own."""
        scores = self._raw_scores(X)
        share = weights[:, None] / weights.sum()
        self._centre = (scores * share).sum(1, keepdims=True)
        spread = np.sqrt(((scores - self._centre) ** 2 * share).sum(1, keepdims=True))
        self._spread = np.where(spread > 0, spread, 1.0)

    def _raw_scores(self, X: Any) -> Floats:
        """(M, N, C). In float64, so that the scores of a row do not depend on the rows beside it."""
        table = Table(X, self._scaler, torch.float64)
        model = copy.deepcopy(self._model).double()
        with torch.no_grad():
            parts = [
                model(table[np.arange(start, min(start + _CHUNK, X.shape[0]))]).numpy()
                for start in range(0, X.shape[0], _CHUNK)
            ]
        return np.concatenate(parts, axis=1)

    def _member_scores(self, X: Any) -> Floats:
        """(M, N, C), each member with mean 0 and spread 1 on the rows it was trained with."""
        scaled: Floats = (self._raw_scores(X) - self._centre) / self._spread
        return scaled

    def _scores(self, X: Any) -> Floats:
        """(N, C): the mean of the members."""
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        mean: Floats = self._member_scores(X).mean(0)
        return mean

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_centre")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
