"""Plots of a comparison over seeds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rankwise.problems.tabular import Tabular
from rankwise.problems.trials import Outcome
from rankwise.report.content import Axis, Figure, Panel, Series
from rankwise.report.plots import Look, axis, curve, log_axis, plain, shares_axis

__all__ = [
    "compare_figure",
    "mean_precision_curve",
    "precision_at_positives",
    "precision_recall_figure",
    "progress_figure",
]


def compare_figure(outcomes: Sequence[Outcome], looks: Sequence[Look], metric: str, name: str) -> Figure:
    """Mean, interval and the single seeds of every contender, one row each."""
    names = [outcome.contender.name for outcome in outcomes]
    means = [outcome.summary(metric).mean for outcome in outcomes]
    series: list[Series] = []
    for row, (outcome, (colour, _)) in enumerate(zip(outcomes, looks, strict=True)):
        values, summary = outcome.values(metric), outcome.summary(metric)
        if len(values) > 1:
            series.append(Series("", plain([summary.low, summary.high]), (row, row), colour))
            series.append(Series("", plain(values), (row + 0.25,) * len(values), 7, shape="dots"))
        series.append(Series("", plain([summary.mean]), (row,), colour, shape="dots", labels=(f"{summary.mean:.2f}",)))
    panel = Panel(
        axis(name, [value for each in series for value in each.x]),
        # The first on top.
        Axis("", len(names) - 0.4, -0.7, tuple((float(row), each) for row, each in enumerate(names))),
        tuple(series),
    )
    return Figure(
        (panel,),
        alt=f"Mean {name}: {', '.join(f'{each} {mean:.2f}' for each, mean in zip(names, means, strict=True))}.",
        caption="Dots with a number are means, lines their 95 % intervals, grey dots the single seeds.",
        height=30 + 58 * len(names),
        numbers=False,
    )


def precision_recall_figure(outcomes: Sequence[Outcome], looks: Sequence[Look]) -> Figure:
    """One precision-recall curve per contender, the mean over seeds."""
    series = []
    for outcome, look in zip(outcomes, looks, strict=True):
        recall, precision = mean_precision_curve(outcome)
        series.append(curve(recall, precision, outcome.contender.name, look))
    panel = Panel(
        shares_axis("recall: share of the eights found so far"),
        shares_axis("precision: share that are eights"),
        tuple(series),
    )
    return Figure(
        (panel,),
        alt="Precision against recall on the test images, one curve per loss.",
        caption="Going down each model's ranking of the test images: how many of the eights have been found, and how "
        "many of the images so far are eights. The area under a curve is its average precision. Mean over seeds.",
        height=360,
    )


def progress_figure(outcomes: Sequence[Outcome], looks: Sequence[Look], metric: str, name: str) -> Figure:
    """The validation metric against the optimiser step, the mean over seeds, on a logarithmic axis."""
    series = []
    for outcome, look in zip(outcomes, looks, strict=True):
        steps = outcome.trials[0].history.steps[1:]
        mean = np.mean([trial.history.curve(metric)[1:] for trial in outcome.trials], axis=0)
        series.append(curve(steps, mean, outcome.contender.name, look))
    ticks = [tick for tick in (5, 10, 20, 50, 100, 200, 400) if tick <= max(max(each.x) for each in series)]
    panel = Panel(
        log_axis("optimiser steps", ticks, margin=1.05),
        axis(f"{name} (validation)", [0, 1], low=0, high=1),
        tuple(series),
    )
    return Figure(
        (panel,),
        alt=f"{name} on the validation images against the number of optimiser steps, one curve per loss.",
        caption="On the validation images, which also chose the learning rate. Mean over seeds. Note the axis: every "
        "mark about doubles the steps.",
        height=340,
    )


Values = NDArray[np.float64]


def mean_precision_curve(outcome: Outcome) -> tuple[Values, Values]:
    """Return the recall (P,) and the mean precision over seeds (P,) on the test part of a tabular problem.

    The precision at recall k / P is that of the list cut where the k-th of the P positives is found, so the mean of the
    curve is the mean average precision.
    """
    curves = []
    for trial in outcome.trials:
        if not isinstance(trial.problem, Tabular):
            raise TypeError(f"outcome: expected trials of a tabular problem, got {type(trial.problem).__name__}")
        test = trial.split.part("test")
        scores = trial.problem.predict(trial.model, test).double().numpy()
        curves.append(precision_at_positives(scores, test.labels.numpy()))
    precision = np.mean(curves, axis=0)
    return np.arange(1, len(precision) + 1) / len(precision), precision


def precision_at_positives(scores: Values, labels: NDArray[np.int64]) -> Values:
    """The precision at each positive, best first; tied items are one threshold.

    Example:
        >>> precision_at_positives(np.array([.9, .8, .7, .6]), np.array([1, 0, 1, 0])).round(3).tolist()
        [1.0, 0.667]
    """
    positives = np.sort(scores[labels == 1])[::-1]
    at_or_above = len(scores) - np.searchsorted(np.sort(scores), positives, side="left")
    hits = len(positives) - np.searchsorted(positives[::-1], positives, side="left")
    precision: Values = hits / at_or_above
    return precision
