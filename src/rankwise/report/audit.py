"""The report of an audit: one section for each question asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rankwise.audit import Bias, Bounds, Composition, Generalisation, ListStability, Stability
from rankwise.report.content import Axis, Figure, Panel, Report, Section, Series, Table
from rankwise.report.plots import INK, MUTED, Look, axis, curve, log_axis, plain, powers_axis
from rankwise.report.write import versions

__all__ = ["Finding", "audit_report", "describe"]

PLAIN: Look = (2, "dash")
RECALL_FIXED: Look = (4, "dot")
SOPRC: Look = (3, "solid")
FLOORED: Look = (5, "longdash")
STABLE: Look = (1, "dashdot")
GUIDE: Look = (MUTED, "dot")
LOOKS = {
    "plain AP loss": PLAIN,
    "plain AP loss, recall fixed": RECALL_FIXED,
    "SOPRC": SOPRC,
    "SOPRC, recall floor 1/3": FLOORED,
    "stable AP": STABLE,
}


@dataclass(frozen=True)
class Finding:
    """Answer to one question of the audit: title, sentence and tables for the terminal, and a figure for the page."""

    title: str
    text: str
    sentence: str
    tables: tuple[Table, ...]
    figure: Figure


def audit_report(findings: Sequence[Finding], *, source: str, facts: Sequence[tuple[str, str]]) -> Report:
    """Return the findings as a page, ready for `write_report`; `source` says what was audited."""
    return Report(
        title=f"rankwise audit: {source}",
        headline=findings[0].sentence,
        summary="What theory says of the losses for average precision (AP), checked on this data.",
        sections=tuple(
            Section(each.title, f"{each.text} {each.sentence}", (each.figure, *each.tables)) for each in findings
        ),
        facts=(*facts, ("Versions", versions("torch"))),
    )


def describe(result: Bias | Stability | ListStability | Bounds | Generalisation) -> Finding:
    """Return words, tables and a figure for a record of `rankwise.audit`."""
    if isinstance(result, Bias):
        return _describe_bias(result)
    if isinstance(result, Stability):
        return _describe_stability(result)
    if isinstance(result, ListStability):
        return _describe_list_stability(result)
    if isinstance(result, Generalisation):
        return _describe_generalisation(result)
    return _describe_bounds(result)


def _describe_bias(result: Bias) -> Finding:
    estimates = Table(
        ("loss", "all the data", "batches", "bias", "std"),
        tuple(
            (each.name, f"{each.full:.3f}", f"{each.mean:.3f}", f"{each.bias:+.3f}", f"{each.std:.3f}")
            for each in result.estimates
        ),
        caption=f"Each loss on {result.repeats} batches of {result.positives} positives and {result.negatives} "
        "negatives, against its own value on all the data. 1 - AP of all the data: "
        f"{result.truth:.4f}; share of positives: {result.prior:.4g}.",
    )
    tried = (*result.compositions, *result.larger)
    mixtures = Table(
        ("batch", "AP: bias", "error", "SOPRC: bias", "error"),
        tuple(
            (
                _mixture(each),
                f"{each.plain_bias:+.3f}",
                f"{each.plain_error:.3f}",
                f"{each.corrected_bias:+.3f}",
                f"{each.corrected_error:.3f}",
            )
            for each in tried
        ),
        caption="batch: positives + negatives. What the AP of a batch and the SOPRC estimate with the true prior say "
        "of 1 - AP: bias on average, error (root mean square) in a typical batch. What is left of SOPRC's bias comes "
        "from the few negatives of a batch and falls with their number.",
        strong=result.compositions.index(result.best),
    )
    positions = np.arange(len(tried))
    # A little apart, so that their bars do not hide each other.
    series = []
    for name, look, shift, errors in (
        ("AP of the batch", PLAIN, -0.05, [(each.plain_bias, each.plain_error) for each in tried]),
        ("SOPRC, true prior", SOPRC, 0.05, [(each.corrected_bias, each.corrected_error) for each in tried]),
    ):
        bias = np.array([mean for mean, _ in errors])
        spread = np.array([max(error**2 - mean**2, 0) ** 0.5 for mean, error in errors])
        series.append(curve(positions + shift, bias, name, look, markers=True, low=bias - spread, high=bias + spread))
    reach = [0.0, *(value for each in series for value in (*each.low, *each.high))]
    across = Axis(
        "positives + negatives in a batch",
        -0.4,
        len(tried) - 0.6,
        tuple((float(index), _mixture(each)) for index, each in enumerate(tried)),
    )
    figure = Figure(
        (Panel(across, axis("error in 1 - AP", reach), (*series, _level(across, 0.0, ""))),),
        alt="Error in 1 - AP of the AP of a batch and of the SOPRC estimate, for several compositions of a batch.",
        caption="Dots are means over the batches, bars one standard deviation to either side. Zero is right.",
        height=340,
    )
    return Finding(
        "Bias of mini-batches",
        "Does the value of a loss on a batch say what it would say of all the data?",
        result.sentence,
        (estimates, mixtures),
        figure,
    )


def _describe_stability(result: Stability) -> Finding:
    sizes = result.changes[0].sizes
    table = Table(
        ("loss", *(f"n = {size}" for size in sizes), "slope", "value"),
        tuple(
            (each.name, *(f"{change:.4f}" for change in each.worst), f"{each.slope:+.2f}", f"{each.value:.2f}")
            for each in result.changes
        ),
        caption=f"The largest change found when one of n examples is replaced, {result.share:.1%} of them positive. "
        "slope: of the change against n, both logarithmic; -1 is a change of 1 / n. value: of the loss before, at the "
        "largest n.",
    )
    series = [curve(sizes, each.worst, each.name, LOOKS[each.name], markers=True) for each in result.changes]
    guide = max(each.worst[0] for each in result.changes)
    series.append(curve(sizes, [guide * sizes[0] / size for size in sizes], "1 / n", GUIDE))
    values = powers_axis("largest change of the loss", [value for each in series for value in each.y])
    figure = Figure(
        (Panel(log_axis("examples (n)", sizes), values, tuple(series)),),
        alt="The largest change of each loss when one example is replaced, against the number of examples.",
        caption="Both axes are logarithmic: a loss that falls in parallel to the dotted line changes by 1 / n.",
        height=340,
    )
    return Finding(
        "Stability of the losses",
        "How far can one broken or mislabelled example move the value of a loss?",
        result.sentence,
        (table,),
        figure,
    )


def _describe_list_stability(result: ListStability) -> Finding:
    sizes = result.distances[0].sizes
    columns = ("loss", *(f"N = {size}" for size in sizes), "slope", "AP")
    tables = tuple(
        Table(
            columns,
            tuple(
                (
                    each.name,
                    *(f"{value:.2%}" for value in (each.negatives if kind else each.positives)),
                    f"{each.slopes[kind]:+.2f}",
                    f"{each.ap[-1]:.3f}",
                )
                for each in result.distances
            ),
            caption=f"Mean distance between two models, in percent of the length of their weights, when one {name} of "
            f"N training examples is replaced. {result.models} pairs of linear models each. AP: of the models trained "
            "with the largest N, on all the data.",
        )
        for kind, name in enumerate(("positive", "negative"))
    )
    errors = Table(
        ("loss", *(f"N = {size}" for size in sizes), "G"),
        tuple(
            (
                each.name,
                *(f"{value:.3g}" for value in result.estimation_errors(each.name)),
                f"{max(each.steepest):.3g}",
            )
            for each in result.distances
        ),
        caption="The generalisation bound of the SOPRC paper (theorem 1) with these distances: the loss on new data "
        f"exceeds that on the training data by at most G (n+ epsilon+ + n- epsilon-), batches of {result.positives} + "
        f"{result.negatives}. The losses are at most 1, so a bound of 1 or more says nothing. G: the longest gradient "
        "seen, which is rather too small; with the longest possible one the bound is larger still.",
    )
    both = [100 * value for each in result.distances for value in (*each.positives, *each.negatives)]
    panels = tuple(
        Panel(
            log_axis("training examples (N)", sizes),
            powers_axis("distance, % of the weights", both),
            tuple(
                curve(sizes, 100 * np.array(getattr(each, kind)), each.name, LOOKS[each.name], markers=True)
                for each in result.distances
            ),
            title=title,
        )
        for kind, title in (("positives", "a positive replaced"), ("negatives", "a negative replaced"))
    )
    figure = Figure(
        panels,
        alt="Mean distance between models trained with and without one example, against the number of examples.",
        caption="Both axes are logarithmic; theory promises a fall of about 1 / N. recall fixed: the same loss when no "
        "gradient flows through the recall, as in SOPRC, which in addition remembers the positives of earlier batches.",
        height=340,
    )
    source = "made-up examples, as the file has no features" if result.synthetic else "the features of the file"
    return Finding(
        "Stability of training",
        f"How far does replacing one training example move the trained model? Linear models, on {source}.",
        result.sentence,
        (*tables, errors),
        figure,
    )


def _describe_bounds(result: Bounds) -> Finding:
    table = Table(
        ("tau", "1 - AP", "AUPRCLoss", "slack", "stable AP bound", "slack", "failures"),
        tuple(
            (
                f"{each.tau:g}",
                f"{result.truth:.4f}",
                f"{each.soprc:.4f}",
                f"{each.soprc - result.truth:.4f}",
                f"{each.stable:.4f}",
                f"{each.stable - result.truth:.4f}",
                str(each.soprc_violations + each.stable_violations),
            )
            for each in result.bounds
        ),
        caption=f"Means over {result.lists} list{'s' if result.lists > 1 else ''}. tau: the margin of the surrogate. "
        "slack: how far a bound lies above 1 - AP. A bound of 1 or more says nothing, as 1 - AP never exceeds 1.",
    )
    taus = [each.tau for each in result.bounds]
    series = (
        curve(taus, [each.stable for each in result.bounds], "stable AP, theorem 1", STABLE, markers=True),
        curve(taus, [each.soprc for each in result.bounds], "AUPRCLoss", SOPRC, markers=True),
        curve(taus, [result.truth] * len(taus), "1 - AP of the data", (INK, "dot")),
    )
    reach = [0.0, *(value for each in series for value in each.y)]
    figure = Figure(
        (Panel(log_axis("margin tau", taus), axis("1 - AP and its bounds", reach, low=0), series),),
        alt="1 - AP of the data and the two upper bounds of it, against the margin tau.",
        caption="What a loss says can be trusted as far as it lies close above the dotted line.",
        height=320,
    )
    return Finding("Bounds", "Does a low loss guarantee a high AP?", result.sentence, (table,), figure)


def _describe_generalisation(result: Generalisation) -> Finding:
    table = Table(
        ("tau", "1 - AP", "from the loss", "deviation", "bound, at least", "examples for 1"),
        tuple(
            (
                f"{each.tau:g}",
                f"{result.truth:.4f}",
                f"{each.empirical:.3g}",
                f"{each.deviation:.3g}",
                f"{each.total:.3g}",
                f"{each.examples:.2g}",
            )
            for each in result.bounds
        ),
        caption="For data that the model was trained on. from the loss: q^2 / 2 times the stable AP loss. deviation: "
        f"the term that falls with the number of examples, here {result.size:,}. The complexity of the model, which no "
        "single model tells, is left out, so the bound is at least this. A bound of 1 or more says nothing. examples "
        "for 1: with so many the deviation alone falls below 1.",
    )
    taus = [each.tau for each in result.bounds]
    series = (
        curve(taus, [each.total for each in result.bounds], "bound for new data, at least", STABLE, markers=True),
        curve(taus, [1.0] * len(taus), "1: says nothing above", (INK, "dot")),
    )
    reach = [value for each in series for value in each.y]
    figure = Figure(
        (Panel(log_axis("margin tau", taus), powers_axis("bound of 1 - AP", reach), series),),
        alt=f"The bound of 1 - AP on new data, at least {min(each.total for each in result.bounds):.3g}.",
        caption="Note the axis: every mark is ten times the one below.",
        height=320,
    )
    return Finding("Generalisation", "What does theory promise for new data?", result.sentence, (table,), figure)


def _mixture(composition: Composition) -> str:
    return f"{composition.positives} + {composition.negatives}"


def _level(across: Axis, height: float, name: str) -> Series:
    return Series(name, plain([across.low, across.high]), plain([height, height]), MUTED, "dot")
