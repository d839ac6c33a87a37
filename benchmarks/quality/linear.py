"""Fit linear scorers by the full-batch sub-gradient method, a grid of step sizes and penalties in one pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

import torch
from torch import Tensor, nn

from rankwise.checks import check_choice, check_count, check_positive
from rankwise.data import Part
from rankwise.lists import Lists, PackedLists, pack
from rankwise.losses import BinaryCrossEntropyLoss, ListLoss
from rankwise.metrics import create_metric
from rankwise.metrics.metric import Metric, measure_lists
from rankwise.models import MLPScorer

__all__ = ["LinearRun", "fit_linear"]

RATES = (0.01, 0.03, 0.1, 0.3, 1.0)
PENALTIES = (0.001, 0.01, 0.1)


@dataclass(frozen=True)
class LinearRun:
    """The weights with the best validation metric.

    Attributes:
        model: scores rows, (N, D) to (N,).
        rate, penalty: those of the chosen run.
        step: number of the step after which its weights were taken; 0 means that training did not improve on the start.
        value: the metric of these weights on the validation part.
        steps: numbers of the steps after which the weights were evaluated.
        curve: the metric of the chosen run at each of these steps.
        taken: number of steps taken in all, fewer than asked for if stopped early.
    """

    model: MLPScorer
    rate: float
    penalty: float
    step: int
    value: float
    steps: list[int] = field(default_factory=list)
    curve: list[float] = field(default_factory=list)
    taken: int = 0


def fit_linear(
    train: Part,
    validation: Part,
    loss: ListLoss,
    *,
    metric: str,
    steps: int = 200,
    rates: Sequence[float] = RATES,
    penalties: Sequence[float] = PENALTIES,
    start: str | LinearRun = "cross-entropy",
    eval_every: int = 10,
    patience: int | None = None,
    on_step: Callable[[int, float], None] | None = None,
) -> LinearRun:
    """Minimise mean loss over lists + penalty * |w|^2 by steps of length rate / sqrt(t + 1), all lists at a time.

    Every pair of a rate and a penalty is one run; all runs take a step together. The weights returned are the best on
    the validation part over all runs and all steps at which they were evaluated: a convex surrogate of a hard problem
    is often smallest at w = 0, so choosing by the loss would return nothing. The penalty acts as
    w / (1 + 2 rate penalty) after each step, which is stable however large it is; the bias is free.

    Args:
        train: features (N, D), labels, and the list of each row in `query_ids` (all rows are one list without).
        validation: the same, for choices.
        loss: any list loss without state, `PApLoss(k=8)`; its mean over the lists that count is minimised.
        metric: by name, "pap@8"; higher is better.
        steps: number of steps.
        rates: step lengths, penalties: of the squared weights; 0 is none.
        start: "cross-entropy" first fits cross entropy with the same steps, rates, penalties and metric; "zeros" starts
            from nothing; or an earlier run.
        eval_every: evaluate the weights before the first step, after every so many steps and after the last.
        patience: stop when no run has improved for so many evaluations; None never does.
        on_step: called after every step with its number and the mean loss over the runs.

    Example:
        >>> from rankwise.losses import PApLoss
        >>> features = torch.randn(300, 4, generator=torch.Generator().manual_seed(0))
        >>> part = Part(features, (features[:, 0] > 0.5).long(), torch.arange(300) % 10)
        >>> run = fit_linear(part, part, PApLoss(k=5), metric="pap@5", steps=30)
        >>> run.value > 0.9, run.model(features).shape
        (True, torch.Size([300]))
    """
    _check_grid(rates, penalties)
    for name, value in (("steps", steps), ("eval_every", eval_every), ("patience", patience)):
        if value is not None:
            check_count(name, value)
    if isinstance(start, str) and check_choice("start", start, ("cross-entropy", "zeros")) == "cross-entropy":
        start = fit_linear(
            train,
            validation,
            BinaryCrossEntropyLoss(),
            metric=metric,
            steps=steps,
            rates=rates,
            penalties=penalties,
            start="zeros",
            eval_every=eval_every,
            patience=patience,
        )
    grid = list(product(rates, penalties))
    runs = _Runs(train, validation, loss, create_metric(metric), grid, None if isinstance(start, str) else start)
    _descend(runs, steps, eval_every, patience, on_step)
    return runs.best()


def _descend(
    runs: _Runs, steps: int, eval_every: int, patience: int | None, on_step: Callable[[int, float], None] | None
) -> None:
    runs.evaluate(0)
    idle = 0
    for step in range(1, steps + 1):
        value = runs.step(step)
        if on_step is not None:
            on_step(step, value)
        if step % eval_every == 0 or step == steps:
            idle = 0 if runs.evaluate(step) else idle + 1
            if patience is not None and idle >= patience:
                break


class _Runs:
    """The weights of all runs, one row each, and the best of each so far."""

    def __init__(
        self,
        train: Part,
        validation: Part,
        loss: ListLoss,
        metric: Metric,
        grid: list[tuple[float, float]],
        start: LinearRun | None,
    ) -> None:
        count, inputs = len(grid), train.features.shape[1]
        self.loss, self.metric, self.grid = loss, metric, grid
        self.columns = torch.tensor(grid, dtype=train.features.dtype).T[:, :, None]
        self.train, self.validation = _Columns(train, count), _Columns(validation, count)
        self.weights = torch.zeros(count, inputs + 1, dtype=train.features.dtype)  # the bias comes last
        if start is not None:
            layer = _layer(start.model)
            self.weights[:] = torch.cat([layer.weight[0], layer.bias]).detach()
        self.kept = self.weights.clone()
        self.kept_value = torch.full((count,), -torch.inf, dtype=torch.float64)
        self.kept_step = torch.zeros(count, dtype=torch.int64)
        self.steps: list[int] = []
        self.curves: list[Tensor] = []
        self.taken = 0

    def step(self, number: int) -> float:
        weights = self.weights.requires_grad_()
        values, valid = self.loss.per_list(self.train.score(weights), None)
        valid = valid.view(len(weights), -1)
        each = torch.where(valid, values.view(len(weights), -1), 0).sum(1) / valid.sum(1).clamp_min(1)
        (gradient,) = torch.autograd.grad(each.sum(), weights)
        rates, penalties = self.columns
        length = rates / (number + 1) ** 0.5
        with torch.no_grad():
            moved = weights - length * gradient
            moved[:, :-1] /= 1 + 2 * length * penalties
        self.weights, self.taken = moved.detach(), number
        return float(each.detach().mean())

    @torch.no_grad()
    def evaluate(self, step: int) -> bool:
        """Evaluate all runs on the validation part, keep the best weights, and return whether any run improved."""
        values, _ = measure_lists(self.validation.score(self.weights), [self.metric])
        means = values[self.metric.name].view(len(self.weights), -1).nanmean(1)
        better = means > self.kept_value
        self.kept[better], self.kept_value[better] = self.weights[better].detach(), means[better]
        self.kept_step[better] = step
        self.steps.append(step)
        self.curves.append(means)
        return bool(better.any())

    def best(self) -> LinearRun:
        if not bool(torch.isfinite(self.kept_value).any()):
            raise ValueError(f"validation: expected a list on which {self.metric.name} is defined, got none")
        chosen = int(self.kept_value.argmax())
        model = MLPScorer(self.kept.shape[1] - 1, hidden=())
        layer = _layer(model)
        with torch.no_grad():
            layer.weight[0], layer.bias[0] = self.kept[chosen, :-1], self.kept[chosen, -1]
        rate, penalty = self.grid[chosen]
        curve = [float(means[chosen]) for means in self.curves]
        step, value = int(self.kept_step[chosen]), float(self.kept_value[chosen])
        return LinearRun(model, rate, penalty, step, value, self.steps, curve, self.taken)


class _Columns:
    """A part packed into lists once, repeated `count` times; its scores then come from one product per block."""

    def __init__(self, part: Part, count: int) -> None:
        packed = pack(torch.zeros(len(part)), part.labels, query_ids=part.query_ids, sample_ids=torch.arange(len(part)))
        self.size = packed.size
        self.features, self.blocks = [], []
        constant = torch.ones(len(part), 1, dtype=part.features.dtype)
        rows = torch.cat([part.features, constant], 1)
        for block in packed.blocks:
            assert block.sample_ids is not None
            self.features.append(rows[block.sample_ids.flatten()].T.contiguous())
            offsets = torch.arange(count)[:, None] * packed.size
            self.blocks.append(
                Lists(
                    scores=block.scores,
                    labels=block.labels.repeat(count, 1),
                    mask=block.mask.repeat(count, 1),
                    weights=None,
                    positions=(offsets + block.positions).flatten(),
                )
            )

    def score(self, weights: Tensor) -> PackedLists:
        """Return the lists scored by each row of weights: those of the first row, then those of the second, ..."""
        blocks = []
        for features, block in zip(self.features, self.blocks, strict=True):
            scores = (weights @ features).view(block.mask.shape)
            blocks.append(replace(block, scores=scores.masked_fill(~block.mask, 0)))
        return PackedLists(tuple(blocks), self.size * len(weights), None)


def _layer(model: MLPScorer) -> nn.Linear:
    layer = model.layers[0]
    assert isinstance(layer, nn.Linear)
    return layer


def _check_grid(rates: Sequence[float], penalties: Sequence[float]) -> None:
    for name, values, zero in (("rates", rates, False), ("penalties", penalties, True)):
        if not len(values):
            raise ValueError(f"{name}: expected at least one number, got none")
        for value in values:
            check_positive(name, value, zero=zero)
