"""Report of the simulation."""

from __future__ import annotations

import numpy as np

from rankwise.audit import Simulation
from rankwise.report.content import Axis, Figure, Panel, Report, Section, Series, Table
from rankwise.report.plots import Look, axis, curve, log_axis
from rankwise.report.write import versions

__all__ = ["estimates_table", "quantiles_table", "simulation_report"]

PLAIN_LOOK: Look = (2, "dash")
OUR_LOOK: Look = (3, "solid")
PLAIN, OURS = "AP of the batch", "SOPRC estimate"


def simulation_report(result: Simulation) -> Report:
    """Return the report of the simulation, ready for `write_report`."""
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
    rates = sorted({100 * case.rate for case in result.cases})
    groups = []
    for name in _names(result):
        cases = [case for case in result.cases if case.distribution == name]
        series = []
        for label, look, errors in (
            (PLAIN, PLAIN_LOOK, [case.plain for case in cases]),
            (OURS, OUR_LOOK, [case.ours for case in cases]),
        ):
            mean, std = (np.array([getattr(each, what)() for each in errors]) for what in ("mean", "std"))
            along = [100 * case.rate for case in cases]
            series.append(curve(along, mean, label, look, low=mean - std, high=mean + std))
        groups.append((name, series))
    heights = _common("error of the estimate", groups)
    panels = [
        Panel(log_axis("positives in a batch, %", rates, margin=1.15), heights, tuple(series), title=name)
        for name, series in groups
    ]
    largest = max(result.cases, key=lambda case: abs(case.plain.mean()))
    return Figure(
        tuple(panels),
        alt=f"Error of two estimates of 1 - AUPRC against the share of positives in a batch. The AP of the batch is "
        f"off by up to {largest.plain.mean():+.2f}; the SOPRC estimate stays near 0.",
        caption=f"The truth has {result.prior:.0%} positives. Lines are means over {result.repeats} batches, tints one "
        "standard deviation to either side. Zero is right.",
        height=260,
    )


def _quantiles_figure(result: Simulation) -> Figure:
    rate = min(case.rate for case in result.cases)
    chosen = [case for case in result.cases if case.rate == rate]
    groups = []
    for case in chosen:
        series = [
            curve(100 * case.levels, mean, label, look, low=mean - std, high=mean + std)
            for label, look, mean, std in (
                ("from one batch", PLAIN_LOOK, case.interpolated, case.interpolated_std),
                ("remembered (V)", OUR_LOOK, case.remembered, case.remembered_std),
            )
        ]
        groups.append((case.distribution, series))
    across = Axis("quantile, %", 0, 100, tuple((float(tick), str(tick)) for tick in (0, 25, 50, 75, 100)))
    heights = _common("error", groups)
    return Figure(
        tuple(Panel(across, heights, tuple(series), title=name) for name, series in groups),
        alt="Errors of the interpolated and of the remembered quantiles of the positive scores against their level.",
        caption=f"With {chosen[0].positives} positives in a batch, the fewest tried. Lines are means, tints one "
        "standard deviation to either side.",
        height=240,
    )


def _common(title: str, groups: list[tuple[str, list[Series]]]) -> Axis:
    """One axis for all panels, so that they can be compared."""
    return axis(title, [value for _, series in groups for each in series for value in (0, *each.low, *each.high)])


def _names(result: Simulation) -> list[str]:
    return list(dict.fromkeys(case.distribution for case in result.cases))
