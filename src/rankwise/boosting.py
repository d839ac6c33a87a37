"""Boosted trees trained for a ranking metric: gradients of a list loss in the form LightGBM and XGBoost take."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rankwise.checks import check_finite, check_positive
from rankwise.lists import Lists, PackedLists
from rankwise.losses import LOSSES, ListLoss, ListNetLoss, ListwiseCELoss, SoftmaxLoss
from rankwise.losses.base import bound_scores
from rankwise.pairs import recorded_pair_sums
from rankwise.surrogates import Logistic, SquaredHinge

__all__ = ["Objective", "objective"]

Floats = NDArray[np.float64]

# How a loss by name is set up for whole lists of raw scores: nothing is remembered between rounds, the share of
# positives is that of the list, and the margin is that of log odds, as trees with a learning rate of .1 make them.
_WHOLE_LISTS: dict[str, dict[str, Any]] = {
    "auprc": {"prior": "batch", "recall": "batch", "link": "none", "tau": 6.0},
}

_AVERAGE_PRECISION = ("auprc", "stable-ap")

# Convex surrogates with a second derivative wherever a pair is not yet in order.
_SMOOTH = (SquaredHinge, Logistic)
_SOFTMAX = (ListwiseCELoss, ListNetLoss, SoftmaxLoss)

# A leaf whose rows have no gradient must still have a second derivative: this share of the mean is added to all.
_FLOOR = 0.1


def objective(loss: str | ListLoss, *, step: float = 1.0, log_loss: float | None = None, **options: Any) -> Objective:
    """Return an objective for LightGBM or XGBoost that trains trees for average precision, NDCG or pAp@k.

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
    """Gradient of a list loss with respect to scores, and a positive diagonal second derivative.

    Called as LightGBM's and XGBoost's scikit-learn classes do, `(labels, scores[, sample_weight[, group]])`, or as
    their native `train` does, `(scores, data)`; then labels, weights and groups are read from the data. Without
    groups all rows are one list.

    The objective is the sum over lists of the loss of a list times its number of rows; of its relevant rows for
    losses of binary labels and for softmax losses. A long list so weighs more than a short one.

    The second derivative is that of a Gauss-Newton step where the loss allows it:

    - losses made of sums over pairs of squared hinges or logistic functions (`"song"`, `"k-song"`): the second
      derivative of these sums, with the function around them replaced by its tangent;
    - softmax losses (`"listnet"`, `"softmax"`, `"solc"`): p_i (1 - p_i) with the softmax p of the list.

    For all other losses it is |g_i|, the size of the gradient. A tenth of its mean is added everywhere, and the sum is
    divided by `step`. The true second derivative would not do: a ranking loss is flat, linear or concave for most
    pairs, and trees need a positive one.

    With `log_loss` its derivatives, p_i - y_i and p_i (1 - p_i), are added that many times, p_i = sigmoid(s_i + b). The
    offset b, the log odds of a positive row, is what boosting for the log loss starts from: scores start from 0 here.

    Args:
        loss: any list loss. It is copied and put into eval mode, so that it keeps no state between rounds.
        step: above 0; scales the steps of all leaves.
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
        self._layout: _Layout | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_layout": None}

    def __call__(self, first: Any, second: Any, sample_weight: Any = None, group: Any = None) -> tuple[Floats, Floats]:
        """Return the gradient and the second derivative, (N,) each.

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
        rows = _Rows(labels, _given(sample_weight), _given(group))
        if self._layout is None or not self._layout.rows.equal(rows):
            self._layout = _Layout(self.loss, rows)
        gradient, curvature = _derivatives(self.loss, self._layout, scores)
        # If all lists are ranked right, there is no gradient, and any positive number will do.
        hessian = (curvature + (_FLOOR * curvature.mean() if curvature.any() else 1.0)) / self.step
        if self.log_loss:
            share = rows.relative_weights()
            chance = _chance(scores, labels, share)
            gradient += self.log_loss * share * (chance - labels)
            hessian += self.log_loss * share * chance * (1 - chance)
        return gradient, hessian


class _Rows(NamedTuple):
    """Inputs of an objective that stay the same from round to round."""

    labels: Floats
    weights: NDArray[Any] | None
    group: NDArray[Any] | None

    def equal(self, other: _Rows) -> bool:
        return all(
            mine is theirs or (mine is not None and theirs is not None and np.array_equal(mine, theirs))
            for mine, theirs in zip(self, other, strict=True)
        )

    def relative_weights(self) -> Floats:
        """Return the item weights with a mean of 1."""
        if self.weights is None:
            return np.ones_like(self.labels)
        relative: Floats = self.weights / self.weights[self.weights > 0].mean()
        return relative


class _Layout:
    """Rows packed into lists, once for all rounds.

    Attributes:
        rows: the rows; list_weights: (Q,) weights of the lists in the objective.
    """

    def __init__(self, loss: ListLoss, rows: _Rows) -> None:
        # Copies: the caller may write into its arrays, and the next call compares with these.
        self.rows = _Rows(rows.labels.copy(), *(None if each is None else each.copy() for each in rows[1:]))
        count = len(rows.labels)
        given: dict[str, Tensor | None] = {"query_ids": None, "weights": None}
        if rows.group is not None:
            if rows.group.sum() != count:
                raise ValueError(f"group: expected sizes of sum {count}, the number of rows, got {rows.group.sum()}")
            given["query_ids"] = torch.from_numpy(np.repeat(np.arange(len(rows.group)), rows.group.astype(np.intp)))
        if rows.weights is not None:
            given["weights"] = torch.from_numpy(rows.weights.astype(np.float64))
        numbers = torch.arange(count, dtype=torch.float64)
        self._packed = loss.pack_inputs(numbers, torch.from_numpy(self.rows.labels), **given)
        self._index = [block.scores.long() for block in self._packed.blocks]
        by_relevant = loss.label_kind == "binary" or isinstance(loss, _SOFTMAX)
        shares = torch.from_numpy(rows.relative_weights())
        if by_relevant:
            shares = shares * torch.from_numpy(rows.labels > 0)
        self.list_weights = self._packed.join(
            [(shares[index] * block.mask).sum(1) for index, block in zip(self._index, self._packed.blocks, strict=True)]
        )

    def lists(self, scores: Tensor) -> PackedLists:
        """Return the lists with these scores (N,)."""
        blocks = [
            block.with_scores(bound_scores(scores[index].masked_fill(~block.mask, 0)))
            for index, block in zip(self._index, self._packed.blocks, strict=True)
        ]
        return replace(self._packed, blocks=tuple(blocks))

    def flat(self, values: list[Tensor]) -> Tensor:
        """Return values of the blocks, (Q, L) each, in the order of the rows: (N,)."""
        rows = torch.zeros(len(self.rows.labels), dtype=torch.float64)
        for each, index, block in zip(values, self._index, self._packed.blocks, strict=True):
            rows[index[block.mask]] = each[block.mask]
        return rows


def _derivatives(loss: ListLoss, layout: _Layout, scores: Floats) -> tuple[Floats, Floats]:
    """Return the gradient of the objective and its positive second derivative, (N,) each, without floor and step."""
    inputs = torch.tensor(scores, requires_grad=True)
    check_finite("scores", inputs)
    packed = layout.lists(inputs)
    with recorded_pair_sums() as records:
        values, valid = loss.per_list(packed, packed.ids)
    total = (values * layout.list_weights * valid).sum()
    smooth = bool(records) and all(isinstance(each.surrogate, _SMOOTH) for each in records)
    sums = [each.sums for each in records] if smooth else []
    gradient, *upstream = torch.autograd.grad(total, [inputs, *sums], retain_graph=True)
    if isinstance(loss, _SOFTMAX):
        curvature = layout.flat([_softmax_curvature(block, packed, layout.list_weights) for block in packed.blocks])
    elif smooth:
        curvature = torch.zeros_like(inputs)
        for each, grad in zip(records, upstream, strict=True):
            (back,) = torch.autograd.grad(each.inputs, inputs, each.curvature(grad.abs()), retain_graph=True)
            curvature = curvature + back
    else:
        curvature = gradient.abs()
    return gradient.numpy().copy(), curvature.detach().numpy().copy()


@torch.no_grad()
def _softmax_curvature(block: Lists, packed: PackedLists, list_weights: Tensor) -> Tensor:
    shares = torch.softmax(block.scores.masked_fill(~block.mask, -torch.inf), 1).nan_to_num(0)
    weights = packed.select_block(list_weights, block)[:, None]
    return weights * shares * (1 - shares)


def _chance(scores: Floats, labels: Floats, weights: Floats) -> Floats:
    """Return the chance of a positive, (N,), if scores are log odds above those of a row one knows nothing of."""
    positive = (weights * labels).sum()
    offset = np.log((positive + 1) / (weights.sum() - positive + 1))
    chance: Floats = 1 / (1 + np.exp(-(scores + offset).clip(-500, 500)))
    return chance


def _groups_of(data: Any) -> NDArray[Any] | None:
    """Return the number of rows of each query; LightGBM stores the numbers, XGBoost the bounds."""
    if hasattr(data, "get_group"):
        return _given(data.get_group())
    bounds = _given(data.get_uint_info("group_ptr"))
    return None if bounds is None else np.diff(bounds.astype(np.int64))


def _given(values: Any) -> NDArray[Any] | None:
    """Return an array, or None; XGBoost passes an empty array for None."""
    return None if values is None or len(values) == 0 else np.asarray(values)
