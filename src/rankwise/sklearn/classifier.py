"""A classifier trained for average precision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
)

from rankwise.checks import check_choice
from rankwise.deprecation import renamed_argument
from rankwise.metrics import average_precision
from rankwise.models.mixing import fit_sigmoid
from rankwise.sklearn.advice import advise
from rankwise.sklearn.base import Floats, RankingEstimator
from rankwise.sklearn.learning import one_thread
from rankwise.sklearn.portfolio import Portfolio, Rows
from rankwise.sklearn.problems import OneList, hold_out
from rankwise.sklearn.table import merge_rows, row_keys, scaler_of

__all__ = ["APClassifier"]

_MODELS = ("auto", "network", "linear")


def _takes_more_rows(classifier: APClassifier) -> bool:
    if classifier.model == "auto":
        raise AttributeError("partial_fit: expected model='network' or model='linear', got model='auto'")
    return True


class APClassifier(ClassifierMixin, RankingEstimator):  # type: ignore[misc]
    """A classifier that ranks positives first: trained for average precision (AP), scored by it.

    By default a portfolio: logistic regressions, extra trees, histogram boosting and small networks, trained with cross
    entropy and with the ranking loss, each on all rows but a fifth, five times. Their scores of the rows left out
    decide how they are mixed. More than two classes are one ranking each, one against the rest.

    Args:
        model: "auto" (the portfolio), "network" or "linear" (networks or linear models trained with `loss` alone).
        loss: the registered name of a loss of binary labels, see `rankwise list`.
        loss_options: options of that loss.
        hidden_layer_sizes: the widths of the hidden layers of networks.
        members: how many members each learner has; their scores are averaged.
        max_iter: optimiser steps of a network at most.
        batch_size: rows in a batch; a table of no more rows is one batch.
        learning_rate: of AdamW; it falls to 0 over `max_iter`.
        weight_decay: of AdamW.
        validation_fraction: the share of rows, of each class, held out from each member.
        n_iter_no_change: stop after so many of the 20 looks at the held-out rows in a row without a better one.
        random_state: a seed decides everything that is random.
        verbose: print loss and held-out metric at each look.

    Attributes:
        classes_: (C,) the classes; the second of two is the positive one.
        n_features_in_, feature_names_in_: what `fit` saw; names where X has them, as a pandas or polars frame does.
        columns_left_out_: of a frame, the columns that tell nothing, with the reason for each.
        learners_: of a portfolio, the name, out-of-fold AP and mixing weight (the mean over classes) of each learner.
        advice_: of a portfolio, in sentences: how exact its out-of-fold AP is, and which loss suited the network.
        n_iter_: optimiser steps taken; of a portfolio, those of the network that took most.
        history_: of "network" and "linear", step, loss and AP of the held-out rows at each look.

    Example:
        >>> from sklearn.datasets import make_classification
        >>> X, y = make_classification(600, weights=[0.9], random_state=0)
        >>> classifier = APClassifier(random_state=0).fit(X[:400], y[:400])
        >>> bool(classifier.score(X[400:], y[400:]) > 0.6)
        True
        >>> classifier.predict_proba(X[400:]).shape
        (200, 2)
    """

    @renamed_argument("hidden", "hidden_layer_sizes", removed_in="0.3")
    @renamed_argument("max_steps", "max_iter", removed_in="0.3")
    @renamed_argument("patience", "n_iter_no_change", removed_in="0.3")
    def __init__(
        self,
        *,
        model: Literal["auto", "network", "linear"] = "auto",
        loss: str = "soprc",
        loss_options: Mapping[str, Any] | None = None,
        hidden_layer_sizes: Sequence[int] = (64, 64),
        members: int = 5,
        max_iter: int = 300,
        batch_size: int = 256,
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
        self.batch_size = batch_size

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> APClassifier:
        """Train from scratch.

        Args:
            X: (N, D) numbers: an array or a sparse CSR matrix; or a pandas or polars frame with columns of any kind.
            y: (N,) classes.
            sample_weight: (N,) numbers of 0 or more; rows of weight 0 are ignored, weight 2 counts as two rows.
        """
        self._check_options("batch_size")
        check_choice("model", self.model, _MODELS)
        X, y, weights = self._check_rows(X, y, sample_weight, reset=True)
        check_classification_targets(y)
        self.classes_, kinds = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y: expected at least two classes, got one class: {self.classes_[0]!r}")
        self._start_random()
        keys = row_keys(X, self._draw_seed())
        if X.shape[0] <= self.batch_size:
            # A small table is one batch, so rows may be merged: twice the row is then twice the weight.
            rows, weights = merge_rows(keys, kinds, weights)
            X, keys, kinds = X[rows], keys[rows], kinds[rows]
        held = hold_out(keys, kinds, self.members, self.validation_fraction)
        if self.model == "auto":
            self._fit_portfolio(X, Rows(kinds, weights, held, len(self.classes_)))
            return self
        # In float64 the order in which a small table is summed does not show.
        self._begin(X, weights, self._outputs, torch.float64 if X.shape[0] <= self.batch_size else torch.float32)
        self._train(X, weights, OneList(*self._as_lists(kinds, weights), held, self.batch_size))
        self._calibrate(self._member_scores(X), held, kinds, weights)
        return self

    def _fit_portfolio(self, X: Any, rows: Rows) -> None:
        options = {"hidden": self.hidden_layer_sizes, "budget": self._budget, "batch_size": self.batch_size}
        codes = None if self._encoder is None else self._encoder.codes
        self._portfolio = Portfolio(self._make_loss(), codes=codes, **options)
        with one_thread(X):
            self._portfolio.fit(X, rows, self._random)
        self.n_iter_ = self._portfolio.steps
        mean = torch.stack([mix.shares for mix in self._portfolio.mixes]).mean(0).numpy()
        learners = zip(self._portfolio.names, self._portfolio.quality, mean, strict=True)
        self.learners_ = [{"learner": name, "ap": float(ap), "weight": float(weight)} for name, ap, weight in learners]
        self.advice_ = advise(self.learners_, int(rows.labels.sum()) if rows.labels.shape[1] == 1 else None)

    @available_if(_takes_more_rows)  # type: ignore[untyped-decorator]
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> APClassifier:
        """Go on with some more rows: one pass over them. Nothing is held out; the last call's rows calibrate.

        Only for `model="network"` and `model="linear"`.

        Args:
            X: (N, D); y: (N,); sample_weight: (N,), see `fit`.
            classes: all classes there will ever be; needed in the first call.
        """
        self._check_options("batch_size")
        first = not self.__sklearn_is_fitted__()
        if first and classes is None:
            raise ValueError("classes: expected all classes in the first call of partial_fit, got None")
        X, y, weights = self._check_rows(X, y, sample_weight, reset=first)
        known = np.unique(classes) if first else self.classes_
        if len(known) < 2:
            raise ValueError(f"classes: expected at least two, got {known!r}")
        kinds = np.searchsorted(known, y).clip(max=len(known) - 1)
        if (known[kinds] != y).any():
            raise ValueError(f"y: expected classes among {known.tolist()}, got {np.setdiff1d(y, known).tolist()}")
        self.classes_ = known
        if first:
            self._start_random()
            self._begin(X, weights, self._outputs, torch.float32)
        else:
            scaler_of(X, weights, self._scaler)
        held = np.zeros((self._network.model.members, X.shape[0]), dtype=bool)
        problem = OneList(*self._as_lists(kinds, weights), held, self.batch_size)
        self._train_more(X, weights, problem, steps=-(-X.shape[0] // self.batch_size))
        self._calibrate(self._member_scores(X), held, kinds, weights)
        return self

    def decision_function(self, X: Any) -> Floats:
        """Return calibrated log odds, (N,) of the positive class, or (N, C); in the order of the scores of each
        class.
        """
        check_is_fitted(self)
        if hasattr(self, "_portfolio"):
            logits = self._portfolio.logits(self._check_features(X))
        else:
            logits = self._scores(X) * self._slope + self._intercept
        return logits[:, 0] if self._outputs == 1 else logits

    def predict_proba(self, X: Any) -> Floats:
        """Return the chance of each class, (N, C), of sum 1."""
        chances = expit(self.decision_function(X))
        if self._outputs == 1:
            return np.stack([1 - chances, chances], axis=1)
        total = chances.sum(1, keepdims=True)
        return np.where(total > 0, chances / np.where(total > 0, total, 1), 1 / len(self.classes_))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the likeliest class, (N,)."""
        logits = self.decision_function(X)
        chosen = (logits > 0).astype(int) if self._outputs == 1 else logits.argmax(1)
        predicted: NDArray[Any] = self.classes_[chosen]
        return predicted

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Average precision; of more than two classes the mean over those that occur."""
        logits = self.decision_function(X)
        y = column_or_1d(y)
        check_consistent_length(logits, y)
        kinds = self.classes_[1:] if self._outputs == 1 else self.classes_
        labels = torch.from_numpy((y[:, None] == kinds).astype(np.int64))
        scores = torch.from_numpy(logits.reshape(labels.shape))
        weights = torch.from_numpy(_check_sample_weight(sample_weight, logits, dtype=np.float64))
        return float(average_precision(scores.T, labels.T, weights=weights.expand(labels.T.shape)))

    def _check_rows(self, X: Any, y: Any, sample_weight: Any, *, reset: bool) -> tuple[Any, Any, Floats]:
        X, y = self._check_labelled(X, y, reset=reset)
        weights, there = self._check_weights(X, sample_weight)
        return X[there], y[there], weights[there]

    @property
    def _widths(self) -> Sequence[int]:
        return () if self.model == "linear" else self.hidden_layer_sizes

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_portfolio") or super().__sklearn_is_fitted__()

    @property
    def _outputs(self) -> int:
        return 1 if len(self.classes_) == 2 else len(self.classes_)

    def _as_lists(self, kinds: NDArray[np.intp], weights: Floats) -> tuple[torch.Tensor, torch.Tensor]:
        """Return labels (N, C), one column for two classes, and weights (N,)."""
        labels = kinds[:, None] if self._outputs == 1 else kinds[:, None] == np.arange(len(self.classes_))
        return torch.from_numpy(labels.astype(np.int64)), torch.from_numpy(weights)

    def _begin(self, X: Any, weights: Floats, outputs: int, dtype: torch.dtype) -> None:
        super()._begin(X, weights, outputs, dtype)
        self._slope: Floats = np.ones(outputs)
        self._intercept: Floats = np.zeros(outputs)

    def _calibrate(self, scores: Floats, held: NDArray[np.bool_], kinds: NDArray[np.intp], weights: Floats) -> None:
        """Return a sigmoid for each output, from the scores (M, N, C) that members gave to rows they did not learn
        from.

        An output for which those are of one kind takes all rows, and if there is still one kind, stays as it is.
        """
        row_of = np.broadcast_to(np.arange(scores.shape[1]), held.shape)
        for output in range(self._outputs):
            positive = (kinds == (1 if self._outputs == 1 else output))[row_of]
            for chosen in (held, np.ones_like(held)):
                if positive[chosen].any() and not positive[chosen].all():
                    given = (scores[..., output][chosen], positive[chosen], weights[row_of][chosen])
                    sigmoid = fit_sigmoid(*(torch.from_numpy(each) for each in given))
                    self._slope[output], self._intercept[output] = sigmoid
                    break
