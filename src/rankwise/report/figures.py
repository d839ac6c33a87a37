"""The plots of a comparison over seeds, as plain Plotly traces."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from rankwise.report.content import Figure
from rankwise.report.curves import mean_precision_curve
from rankwise.report.plots import Look, curve
from rankwise.training import Outcome, Summary

__all__ = ["compare_figure", "precision_recall_figure", "progress_figure"]

SHARES = [0, 0.2, 0.4, 0.6, 0.8, 1]


def compare_figure(outcomes: Sequence[Outcome], looks: Sequence[Look], metric: str, name: str) -> Figure:
    """Mean, interval and the single seeds of every contender, one row each."""
    names = [outcome.contender.name for outcome in outcomes]
    means = [outcome.summary(metric).mean for outcome in outcomes]
    traces: list[dict[str, Any]] = []
    for row, (outcome, (colour, _)) in enumerate(zip(outcomes, looks, strict=True)):
        traces += _row(outcome.values(metric), outcome.summary(metric), row, colour)
    layout = {
        "xaxis": {"title": {"text": name}, "zeroline": False},
        "yaxis": {
            "range": [len(names) - 0.5, -0.6],
            "tickvals": list(range(len(names))),
            "ticktext": [escape(each, quote=False) for each in names],
            "automargin": True,
            "showgrid": False,
            "zeroline": False,
            "ticklabelstandoff": 8,
        },
        "showlegend": False,
        "margin": {"l": 10, "r": 20, "t": 8, "b": 50},
    }
    return Figure(
        tuple(traces),
        layout,
        alt=f"Mean {name}: {', '.join(f'{each} {mean:.2f}' for each, mean in zip(names, means, strict=True))}.",
        caption="Large dots are means, bars their 95 % intervals, small dots the single seeds.",
        height=90 + 62 * len(names),
    )


def precision_recall_figure(outcomes: Sequence[Outcome], looks: Sequence[Look]) -> Figure:
    """One precision-recall curve per contender, the mean over seeds."""
    traces = []
    for outcome, look in zip(outcomes, looks, strict=True):
        recall, precision = mean_precision_curve(outcome)
        traces.append(curve(recall, precision, outcome.contender.name, look))
    layout = {
        "xaxis": {
            "title": {"text": "recall: share of the eights found so far"},
            "range": [0, 1.005],
            "tickvals": SHARES,
            "tickformat": ".0%",
        },
        "yaxis": {
            "title": {"text": "precision: share that are eights"},
            "range": [0, 1.03],
            "tickvals": SHARES,
            "tickformat": ".0%",
        },
    }
    return Figure(
        tuple(traces),
        layout,
        alt="Precision against recall on the test images, one curve per loss.",
        caption="Going down each model's ranking of the test images: how many of the eights have been found, and how "
        "many of the images so far are eights. The area under a curve is its average precision. Mean over seeds.",
        height=440,
    )


def progress_figure(outcomes: Sequence[Outcome], looks: Sequence[Look], metric: str, name: str) -> Figure:
    """The validation metric against the optimiser step, the mean over seeds, on a logarithmic axis."""
    traces = []
    for outcome, look in zip(outcomes, looks, strict=True):
        steps = outcome.trials[0].history.steps[1:]
        mean = np.mean([trial.history.curve(metric)[1:] for trial in outcome.trials], axis=0)
        traces.append(curve(steps, mean, outcome.contender.name, look))
    ticks = [tick for tick in (5, 10, 20, 50, 100, 200, 400) if tick <= max(max(trace["x"]) for trace in traces)]
    layout = {
        "xaxis": {
            "title": {"text": "optimiser steps"},
            "type": "log",
            "range": [math.log10(ticks[0] * 0.95), math.log10(ticks[-1] * 1.05)],
            "tickvals": ticks,
            "ticktext": list(map(str, ticks)),
        },
        "yaxis": {"title": {"text": f"{name} (validation)"}, "range": [0, 1.0]},
    }
    return Figure(
        tuple(traces),
        layout,
        alt=f"{name} on the validation images against the number of optimiser steps, one curve per loss.",
        caption="On the validation images, which also chose the learning rate. Mean over seeds. Note the axis: every "
        "mark about doubles the steps.",
        height=420,
    )


def _row(values: list[float], summary: Summary, row: int, colour: str) -> list[dict[str, Any]]:
    seeds = {
        "x": values,
        "y": [row + 0.2] * len(values),
        "mode": "markers",
        "marker": {"color": colour, "size": 7, "opacity": 0.5},
        "hovertemplate": "one seed: %{x:.3f}<extra></extra>",
    }
    interval = {
        "x": [summary.low, summary.high],
        "y": [row, row],
        "mode": "lines",
        "line": {"color": colour, "width": 4},
        "hoverinfo": "skip",
    }
    mean = {
        "x": [summary.mean],
        "y": [row],
        "mode": "markers+text",
        "text": [f"<b>{summary.mean:.2f}</b>"],
        "textposition": "top center",
        "textfont": {"color": "var(--ink)", "size": 14},
        "marker": {"color": colour, "size": 15, "line": {"color": "var(--card)", "width": 2}},
        "hovertemplate": f"mean %{{x:.3f}}<br>95 % interval {summary.low:.3f} to {summary.high:.3f}<extra></extra>",
    }
    return [interval, seeds, mean] if len(values) > 1 else [mean]
