"""Boosted trees trained for a ranking metric: gradients of a list loss in the form LightGBM and XGBoost take."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rankwise.checks import check_positive
from rankwise.losses import LOSSES, ListLoss

__all__ = ["Objective", "objective"]

Floats = NDArray[np.float64]

# How a loss by name is set up for whole lists of raw scores: nothing is remembered between rounds, the share of
# positives is that of the list, and the margin is that of log odds, as trees with a learning rate of .1 make them.
_WHOLE_LISTS: dict[str, dict[str, Any]] = {
    "auprc": {"prior": "batch", "recall": "batch", "link": "none", "tau": 6.0},
}

_AVERAGE_PRECISION = ("auprc", "stable-ap")

# A leaf in which nothing pulls must still weigh something: this share of the mean pull is added to each row's.
_FLOOR = 0.1


def objective(loss: str | ListLoss, *, step: float = 1.0, log_loss: float | None = None, **options: Any) -> Objective:
    """An objective for LightGBM or XGBoost that trains trees for average precision, NDCG or pAp@k.

    Args:
        loss: the registered name of a loss, or a loss. By name it is set up for whole lists of raw scores.
        step: how far the score of a row may move in one round at a learning rate of 1, see `Objective`.
        log_loss: how much of the log loss is added, see `Objective`. None: 1 for a loss of average precision, where it
            did better on the tables this was chosen on; else 0.
        options: of the loss, by name only; they go before the set-up.

    Example:
        >>> gradient, hessian = objective("soprc")(np.array([1, 0, 0]), np.array([0.0, 0.5, -8.0]))
        >>> bool(gradient[0] < 0 < gradient[1]), bool((hessian > 0).all())
        (True, True)
    """
    if isinstance(loss, ListLoss):
        if options:
            raise TypeError(f"options: expected none with a loss that is already made, got {', '.join(options)}")
        return Objective(loss, step=step, log_loss=log_loss or 0.0)
    record = LOSSES.get(loss)
    made = record.create(**{**_WHOLE_LISTS.get(record.name, {}), **options})
    share = float(record.name in _AVERAGE_PRECISION) if log_loss is None else log_loss
    return Objective(made, step=step, log_loss=share)


class Objective:
    """The gradient of a list loss with respect to scores, and a positive stand-in for its second derivative.

    Called as LightGBM's and XGBoost's scikit-learn classes do, `(labels, scores[, sample_weight[, group]])`, or as
    their native `train` does, `(scores, data)`; in the latter labels, weights and groups are asked of the data. Without
    groups all rows are one list.

    With g_i the derivative of the loss with respect to the score of row i, times the number of positive rows, which
    brings it to the size of the log loss's, the second derivative is taken to be

        h_i = (|g_i| + mean of |g| / 10) / step.

    A leaf then moves by -sum(g) / sum(h): by `step` where all its rows pull one way, by less where they disagree, and
    hardly at all where few pull. The true second derivative would not do: a ranking loss is flat, linear or concave
    for most pairs, and trees need a positive one.

    With `log_loss` its derivatives, p_i - y_i and p_i (1 - p_i), are added that many times, p_i = sigmoid(s_i + b). The
    offset b, the log odds of a positive row, is what boosting for the log loss starts from: scores start from 0 here.

    Args:
        loss: any list loss. It is copied and put into eval mode: between rounds nothing is remembered.
        step: above 0.
        log_loss: 0 or more; above 0 only for a loss of binary labels.
    """

    def __init__(self, loss: ListLoss, *, step: float = 1.0, log_loss: float = 0.0) -> None:
        if not isinstance(loss, ListLoss):
            raise TypeError(f"loss: expected a list loss or its name, got {type(loss).__name__}")
        self.step = check_positive("step", step)
        self.log_loss = check_positive("log_loss", log_loss, zero=True)
        if self.log_loss and loss.label_kind != "binary":
            raise ValueError(f"log_loss: expected 0 with a loss of {loss.label_kind}, got {log_loss}")
        self.loss = copy.deepcopy(loss).eval()

    def __call__(self, first: Any, second: Any, sample_weight: Any = None, group: Any = None) -> tuple[Floats, Floats]:
        """Gradient and second derivative, (N,) each.

        Args:
            first: (N,) labels; or (N,) scores if `second` is a data set.
            second: (N,) scores; or a LightGBM `Dataset` or an XGBoost `DMatrix`.
            sample_weight: (N,) item weights, or None.
            group: the number of rows of each query, in the order of the rows, or None.
        """
        if hasattr(second, "get_label"):
            scores, labels = first, second.get_label()
            sample_weight, group = second.get_weight(), _groups_of(second)
        else:
            labels, scores = first, second
        labels, scores = np.asarray(labels, dtype=np.float64), np.asarray(scores, dtype=np.float64)
        if scores.ndim != 1 or labels.shape != scores.shape:
            raise ValueError(f"scores: expected (N,) like labels {labels.shape}, got {scores.shape}")
        weights = _given(sample_weight)
        gradient = self._gradient(scores, labels, weights, _given(group))
        share = np.ones_like(scores) if weights is None else weights / weights[weights > 0].mean()
        gradient *= max(1.0, share[labels > 0].sum())
        pull = np.abs(gradient)
        # Where all is won nothing pulls, and any positive number will do.
        hessian = (pull + (_FLOOR * pull.mean() if pull.any() else 1.0)) / self.step
        if self.log_loss:
            chance = _chance(scores, labels, share)
            gradient += self.log_loss * share * (chance - labels)
            hessian += self.log_loss * share * chance * (1 - chance)
        return gradient, hessian

    def _gradient(
        self, scores: Floats, labels: Floats, weights: NDArray[Any] | None, group: NDArray[Any] | None
    ) -> Floats:
        """Of the mean over lists."""
        inputs = torch.tensor(scores, requires_grad=True)
        given: dict[str, Tensor] = {}
        if group is not None:
            if group.sum() != len(scores):
                raise ValueError(f"group: expected sizes of sum {len(scores)}, the number of rows, got {group.sum()}")
            given["query_ids"] = torch.from_numpy(np.repeat(np.arange(len(group)), group.astype(np.intp)))
        if weights is not None:
            given["weights"] = torch.from_numpy(weights.astype(np.float64))
        value = self.loss(inputs, torch.from_numpy(labels), **given)
        (gradient,) = torch.autograd.grad(value, inputs)
        return np.asarray(gradient.numpy())


def _chance(scores: Floats, labels: Floats, weights: Floats) -> Floats:
    """The chance of a positive, (N,), if scores are log odds above those of a row one knows nothing of."""
    positive = (weights * labels).sum()
    offset = np.log((positive + 1) / (weights.sum() - positive + 1))
    chance: Floats = 1 / (1 + np.exp(-(scores + offset).clip(-500, 500)))
    return chance


def _groups_of(data: Any) -> NDArray[Any] | None:
    """Rows of each query: LightGBM has their numbers, XGBoost where they begin and end."""
    if hasattr(data, "get_group"):
        return _given(data.get_group())
    bounds = _given(data.get_uint_info("group_ptr"))
    return None if bounds is None else np.diff(bounds.astype(np.int64))


def _given(values: Any) -> NDArray[Any] | None:
    """XGBoost says "none" with an empty array."""
    return None if values is None or len(values) == 0 else np.asarray(values)
