"""Base of the estimators: options and their checks, features, training, scores."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, check_X_y, validate_data

from rankwise.checks import check_count, check_positive, check_share
from rankwise.losses import LOSSES, ListLoss
from rankwise.models.rows import Members
from rankwise.sklearn.frames import FrameEncoder, is_frame
from rankwise.sklearn.learning import Budget, one_thread
from rankwise.sklearn.network import Network
from rankwise.sklearn.problems import Problem
from rankwise.sklearn.table import Table, scaler_of

__all__ = ["RankingEstimator"]

Floats = NDArray[np.float64]

# The held-out rows are looked at this often in a full run.
_LOOKS = 20


class RankingEstimator(BaseEstimator):  # type: ignore[misc]
    """An ensemble of linear or fully connected scorers trained with a list loss. Not for direct use."""

    _label_kinds: tuple[str, ...] = ("binary",)
    # Options of losses that are created without any.
    _default_options: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    def __init__(
        self,
        *,
        loss: str,
        loss_options: Mapping[str, Any] | None,
        hidden_layer_sizes: Sequence[int],
        members: int,
        max_iter: int,
        learning_rate: float,
        weight_decay: float,
        validation_fraction: float,
        n_iter_no_change: int,
        random_state: Any,
        verbose: bool,
    ) -> None:
        self.loss = loss
        self.loss_options = loss_options
        self.hidden_layer_sizes = hidden_layer_sizes
        self.members = members
        self.max_iter = max_iter
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.random_state = random_state
        self.verbose = verbose

    def _check_options(self, *counts: str) -> None:
        """Refuse options that make no sense; `counts` are further whole numbers."""
        for name in ("members", "max_iter", "n_iter_no_change", *counts):
            check_count(name, getattr(self, name))
        sizes = self.hidden_layer_sizes
        if isinstance(sizes, str) or not isinstance(sizes, Sequence):
            raise TypeError(f"hidden_layer_sizes: expected widths of layers, such as (64, 64), got {sizes!r}")
        for width in sizes:
            check_count("hidden_layer_sizes", width)
        for name in ("learning_rate", "weight_decay"):
            value = getattr(self, name)
            check_positive(name, float(value) if isinstance(value, Real) else value, zero=name == "weight_decay")
        check_share("validation_fraction", self.validation_fraction)

    def _make_loss(self) -> ListLoss:
        """Return a fresh loss; what the metric has of `k` and `gain` is passed on to a loss that takes it."""
        record = LOSSES.get(self.loss)
        if record.labels not in self._label_kinds:
            expected = f"expected a loss of {self._label_kinds[0]} labels"
            raise ValueError(f"loss: {expected}, got {self.loss!r}, which is one of {record.labels}")
        given = self._default_options.get(self.loss, {}) if self.loss_options is None else self.loss_options
        options = copy.deepcopy(dict(given))
        for name in ("k", "gain"):
            if record.takes(name) and hasattr(self, name):
                options.setdefault(name, getattr(self, name))
        loss: ListLoss = record.create(**options)
        return loss

    def _check_weights(self, X: Any, sample_weight: Any) -> tuple[Floats, NDArray[np.bool_]]:
        """Return the weights (N,) and the mask of those above 0; rows of weight 0 are ignored."""
        weights: Floats = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if not weights.any():  # newer versions of scikit-learn refuse it themselves
            raise ValueError("sample_weight: expected at least one non-zero weight")
        return weights, weights > 0

    def _begin(self, X: Any, weights: Floats, outputs: int, dtype: torch.dtype) -> None:
        """Build a new network and a new loss."""
        self._scaler = scaler_of(X, weights)
        generator = torch.Generator().manual_seed(self._draw_seed())
        model = Members(self.members, X.shape[1], outputs, hidden=self._widths, generator=generator)
        self._network = Network(model.to(dtype), self._make_loss())
        self.n_iter_ = 0

    @property
    def _widths(self) -> Sequence[int]:
        """Return the widths of the hidden layers."""
        return self.hidden_layer_sizes

    @property
    def _budget(self) -> Budget:
        """Return the budget of all steps, with evaluations on the held-out rows."""
        every = max(1, self.max_iter // _LOOKS)
        rates = float(self.learning_rate), float(self.weight_decay)
        return Budget(
            self.max_iter, *rates, check_every=every, patience=self.n_iter_no_change, verbose=bool(self.verbose)
        )

    def _train(self, X: Any, weights: Floats, problem: Problem) -> None:
        """Take all steps and keep the weights that are best for the held-out rows."""
        self._learn(X, weights, problem, self._budget)
        self.n_iter_ = int(self.history_[-1]["step"])

    def _train_more(self, X: Any, weights: Floats, problem: Problem, steps: int) -> None:
        """Take a few more steps at a constant rate."""
        rates = float(self.learning_rate), float(self.weight_decay)
        self._learn(X, weights, problem, Budget(steps, *rates, cooling=False))
        self.n_iter_ += steps

    def _learn(self, X: Any, weights: Floats, problem: Problem, budget: Budget) -> None:
        table = Table(X, self._scaler, next(self._network.model.parameters()).dtype)
        with one_thread(X):
            self.history_ = self._network.train(table.__getitem__, weights, problem, budget, self._random)

    def _draw_seed(self) -> int:
        return int(self._random.integers(2**31))

    def _start_random(self) -> None:
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        self._random = np.random.default_rng(seed)

    def _member_scores(self, X: Any) -> Floats:
        """Return the scores (M, N, C) of each member."""
        table = Table(X, self._scaler, torch.float64)
        return self._network.member_scores(table.__getitem__, X.shape[0])

    def _scores(self, X: Any) -> Floats:
        """Return scores (N, C), the mean over the members."""
        check_is_fitted(self)
        mean: Floats = self._member_scores(self._check_features(X)).mean(0)
        return mean

    def _check_features(self, X: Any) -> Any:
        """Return rows to score as an array or a CSR array."""
        if is_frame(X) and self._encoder is not None:
            return self._encode(X, reset=False)
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        return X if self._encoder is None else self._encode_numbers(X)

    def _check_labelled(self, X: Any, y: Any, *, reset: bool, **options: Any) -> tuple[Any, Any]:
        """Return rows as an array or a CSR array, and their labels; `reset` learns the columns of a frame anew."""
        options |= {"accept_sparse": "csr", "dtype": np.float64}
        if is_frame(X) and (reset or self._encoder is not None):
            return check_X_y(self._encode(X, reset=reset), y, **options)  # type: ignore[no-any-return]
        X, y = validate_data(self, X, y, reset=reset, **options)
        if reset:
            self._encoder: FrameEncoder | None = None
        return (X if self._encoder is None else self._encode_numbers(X)), y

    def _encode(self, frame: Any, *, reset: bool) -> Floats:
        validate_data(self, frame, skip_check_array=True, reset=reset)
        if reset:
            self._encoder = FrameEncoder(frame)
            self.columns_left_out_ = self._encoder.left_out
        assert self._encoder is not None
        return self._encoder.encode(frame)

    def _encode_numbers(self, X: Any) -> Floats:
        """Encode an array without names, after a frame was learned from: its columns are those of the frame."""
        import polars as pl

        assert self._encoder is not None
        return self._encoder.encode(pl.DataFrame(X, schema=self._encoder.columns, orient="row"))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_network")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
