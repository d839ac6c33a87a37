"""The report of the simulation."""

from __future__ import annotations

import numpy as np

from rankwise.audit import Simulation
from rankwise.report.content import Figure, Report, Section, Table
from rankwise.report.plots import Look, band, curve, log_axis, panel_axes, panel_titles
from rankwise.report.versions import versions

__all__ = ["estimates_table", "quantiles_table", "simulation_report"]

PLAIN_LOOK: Look = ("var(--series-2)", "dash")
OUR_LOOK: Look = ("var(--series-3)", "solid")
PLAIN, OURS = "AP of the batch", "SOPRC estimate"


def simulation_report(result: Simulation) -> Report:
    """Everything the simulation found, ready for `write_report`."""
    return Report(
        title="rankwise simulate",
        headline=result.sentence,
        summary="Scores of positives and negatives were drawn from three pairs of distributions, one in ten a "
        "positive. Batches with too few or too many positives then had to estimate 1 - AUPRC, one minus the area under "
        "the precision-recall curve of all the scores.",
        sections=(
            Section(
                "How far off the estimates are",
                "The average precision (AP) of a batch depends on its share of positives: with too few it looks worse "
                "than the model is, with too many better. SOPRC corrects for the share, so that its estimate does not "
                "depend on how batches are put together.",
                (_estimates_figure(result), estimates_table(result)),
            ),
            Section(
                "How well the positives are remembered",
                "SOPRC needs to know how the scores of all positives are spread. From the few in a batch it "
                "interpolates 100 quantiles, and keeps a moving average of them, V. Errors are in standard deviations "
                "of the positive scores.",
                (_quantiles_figure(result), quantiles_table(result)),
            ),
        ),
        facts=(
            ("Scores", "binormal N(0, 1) / N(1, 1); bibeta B(2, 5) / B(5, 2); offset uniform U(0, 1) / U(.5, 1.5)"),
            (
                "Batches",
                f"{result.repeats} of {result.batch_size} scores for each share of positives",
            ),
            ("Prior", f"{result.prior:g}, the share of positives in all the scores"),
            ("SOPRC", "indicators instead of surrogates; 100 quantiles, update rate 0.1; batches one after the other"),
            ("Seed", str(result.seed)),
            ("Paper", "Wen et al., NeurIPS 2022, section 3.3 and appendix B.2"),
            ("Versions", versions("torch")),
        ),
    )


def estimates_table(result: Simulation) -> Table:
    """Bias and spread of both estimates of 1 - AUPRC."""
    return Table(
        ("scores", "1 - AUPRC", "positives", "AP: bias", "std", "SOPRC: bias", "std"),
        tuple(
            (
                case.distribution,
                f"{case.truth:.4f}",
                f"{case.rate:.0%}",
                f"{case.plain.mean():+.3f}",
                f"{case.plain.std():.3f}",
                f"{case.ours.mean():+.3f}",
                f"{case.ours.std():.3f}",
            )
            for case in result.cases
        ),
        caption="positives: their share in a batch. bias: the mean over the batches minus the truth. std: how far the "
        "estimates from single batches scatter.",
    )


def quantiles_table(result: Simulation) -> Table:
    """Errors of the quantiles of the positives' scores."""
    return Table(
        ("scores", "positives", "in a batch", "bias", "one batch", "remembered"),
        tuple(
            (
                case.distribution,
                f"{case.rate:.0%}",
                str(case.positives),
                f"{np.abs(case.interpolated).mean():.3f}",
                f"{case.interpolation_error:.3f}",
                f"{case.memory_error:.3f}",
            )
            for case in result.cases
        ),
        caption="bias: the mean distance of the average interpolated quantile from the true one. one batch, "
        "remembered: the typical (root mean square) error of a quantile interpolated from one batch, and of V.",
    )


def _estimates_figure(result: Simulation) -> Figure:
    names = _names(result)
    traces = []
    for panel, name in enumerate(names, start=1):
        cases = [case for case in result.cases if case.distribution == name]
        rates = [100 * case.rate for case in cases]
        for label, look, errors in (
            (PLAIN, PLAIN_LOOK, [case.plain for case in cases]),
            (OURS, OUR_LOOK, [case.ours for case in cases]),
        ):
            mean, std = (np.array([getattr(each, what)() for each in errors]) for what in ("mean", "std"))
            traces.append(band(rates, mean - std, mean + std, label, look, panel=panel))
            traces.append(
                curve(rates, mean, label, look, markers=True, panel=panel, hover="%{x:g} % positives: %{y:+.3f}")
            )
    rates = sorted({100 * case.rate for case in result.cases})
    layout = panel_axes(
        len(names),
        log_axis("positives in a batch, %", rates, margin=1.15),
        {"title": {"text": "error of the estimate"}, "matches": "y", "zeroline": True, "zerolinecolor": "var(--muted)"},
    )
    layout |= {"annotations": panel_titles(names), "margin": {"l": 62, "r": 12, "t": 34, "b": 56}}
    largest = max(result.cases, key=lambda case: abs(case.plain.mean()))
    return Figure(
        tuple(traces),
        layout,
        alt=f"Error of two estimates of 1 - AUPRC against the share of positives in a batch. The AP of the batch is "
        f"off by up to {largest.plain.mean():+.2f}; the SOPRC estimate stays near 0.",
        caption=f"The truth has {result.prior:.0%} positives. Lines are means over {result.repeats} batches, tints one "
        "standard deviation to either side. Zero is right.",
        height=360,
    )


def _quantiles_figure(result: Simulation) -> Figure:
    names = _names(result)
    rate = min(case.rate for case in result.cases)
    chosen = [case for case in result.cases if case.rate == rate]
    traces = []
    for panel, case in enumerate(chosen, start=1):
        for label, look, mean, std in (
            ("from one batch", PLAIN_LOOK, case.interpolated, case.interpolated_std),
            ("remembered (V)", OUR_LOOK, case.remembered, case.remembered_std),
        ):
            levels = 100 * case.levels
            traces.append(band(levels, mean - std, mean + std, label, look, panel=panel))
            traces.append(curve(levels, mean, label, look, panel=panel, hover="quantile %{x:g} %: %{y:+.3f}"))
    layout = panel_axes(
        len(names),
        {"title": {"text": "quantile, %"}, "tickvals": [0, 25, 50, 75], "range": [0, 100], "zeroline": False},
        {"title": {"text": "error"}, "matches": "y", "zeroline": True, "zerolinecolor": "var(--muted)"},
    )
    layout |= {"annotations": panel_titles(names), "margin": {"l": 62, "r": 12, "t": 34, "b": 56}}
    return Figure(
        tuple(traces),
        layout,
        alt="Errors of the interpolated and of the remembered quantiles of the positive scores against their level.",
        caption=f"With {chosen[0].positives} positives in a batch, the fewest tried. Lines are means, tints one "
        "standard deviation to either side.",
        height=340,
    )


def _names(result: Simulation) -> list[str]:
    return list(dict.fromkeys(case.distribution for case in result.cases))
