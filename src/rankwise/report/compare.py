"""The report of a comparison: the differences, query by query, and how each run got there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rankwise.metrics import Comparison
from rankwise.report.content import Axis, Figure, Panel, Report, Section, Series, Table
from rankwise.report.plots import Look, axis, curve, plain, smoothed
from rankwise.report.write import versions
from rankwise.training import History

__all__ = ["ComparedMetric", "comparison_report", "difference_section", "training_section"]

LOOKS: tuple[Look, ...] = ((1, "solid"), (2, "dash"), (3, "dot"), (4, "dashdot"), (5, "longdash"))
MOST = 5
DOTS = 1000


@dataclass(frozen=True)
class ComparedMetric:
    """One metric of several systems on the same data.

    Attributes:
        title: of the metric.
        comparisons: the comparison of each other system with the first.
        values: of every system its values per query (Q,); empty where there is a single list.
        queries: (Q,) what the queries are called.
    """

    title: str
    comparisons: Sequence[Comparison]
    values: Sequence[Tensor] = ()
    queries: Sequence[str] = ()


def comparison_report(
    names: Sequence[str], compared: Sequence[ComparedMetric], histories: Mapping[str, tuple[str, History]]
) -> Report:
    """Return the page, ready for `write_report`.

    Args:
        names: of the systems; all are compared with the first.
        compared: one or more metrics, the first of which is the headline.
        histories: of those systems that are runs, by name: the metric they were chosen by, and their history.
    """
    sections = [difference_section(names, each) for each in compared]
    sections += [_by_query(names, each) for each in compared if len(each.queries) > 1]
    if histories:
        sections.append(training_section(histories))
    return Report(
        title=f"rankwise compare: {' and '.join(names)}",
        headline=_sentence(names, compared[0]),
        summary="All systems ranked the same items, so they are compared pair by pair: what is easy or hard for both "
        "does not count as a difference.",
        sections=tuple(sections),
        facts=(*((f"System {index}", name) for index, name in enumerate(names, 1)), ("Versions", versions("torch"))),
    )


def _sentence(names: Sequence[str], compared: ComparedMetric) -> str:
    index = max(range(len(compared.comparisons)), key=lambda each: abs(compared.comparisons[each].difference))
    comparison, other = compared.comparisons[index], names[index + 1]
    low, high = comparison.interval
    word = "better" if comparison.difference > 0 else "worse"
    gap = f"{compared.title} {comparison.mean_a:.3f} against {comparison.mean_b:.3f}"
    if low <= 0 <= high:
        return f"{other} and {names[0]} cannot be told apart: {gap}."
    return f"{other} is {word} than {names[0]}: {gap}."


def difference_section(names: Sequence[str], compared: ComparedMetric) -> Section:
    """Return the differences of all systems to the first, with intervals."""
    first = compared.comparisons[0]
    rows = [(names[0], f"{first.mean_b:.4f}", "", "", "", "")]
    series = []
    for index, (name, each) in enumerate(zip(names[1:], compared.comparisons, strict=True)):
        low, high = each.interval
        counts = f"{each.wins:,} / {each.ties:,} / {each.losses:,}" if each.pairs > 1 else "-"
        bounds = f"{low:+.4f} to {high:+.4f}"
        rows.append((name, f"{each.mean_a:.4f}", f"{each.difference:+.4f}", bounds, f"{each.p_value:.3g}", counts))
        series.append(Series("", plain([low, high]), (index, index), 1))
        series.append(
            Series("", plain([each.difference]), (index,), 1, shape="dots", labels=(f"{each.difference:+.3f}",))
        )
    reach = [0.0, *(value for each in series for value in each.x)]
    last = len(compared.comparisons) - 1
    across = axis(f"difference in {compared.title} to {names[0]}", reach)
    zero = Series("", (0.0, 0.0), (last + 0.5, -0.6), 7, "dot")
    panel = Panel(
        across,
        Axis("", last + 0.5, -0.6, tuple((float(index), name) for index, name in enumerate(names[1:]))),
        (zero, *series),
    )
    told = "; ".join(
        f"{name} {each.difference:+.3f}" for name, each in zip(names[1:], compared.comparisons, strict=True)
    )
    table = Table(
        ("", "mean", "difference", "95 % interval", "p", "better / equal / worse"),
        tuple(rows),
        caption=f"p: two-sided, {first.test}: how often chance alone would bring such a difference. The last column "
        "counts queries.",
    )
    several = (
        " Several comparisons at once: some look significant by chance; divide .05 by their number."
        if len(compared.comparisons) > 1
        else ""
    )
    return Section(
        f"Difference in {compared.title}",
        f"The line is the 95 % interval. If it leaves out zero, the difference is hardly luck.{several}",
        (
            Figure((panel,), alt=f"Differences to {names[0]}: {told}.", height=40 + 60 * (last + 1), numbers=False),
            table,
        ),
    )


def _by_query(names: Sequence[str], compared: ComparedMetric) -> Section:
    first, panels, tables = compared.values[0], [], []
    ends = Axis("", -0.02, 1.02, tuple((tick / 5, f"{tick / 5:.1f}") for tick in range(6)))
    for name, values in zip(names[1:], compared.values[1:], strict=True):
        both = ~(first.isnan() | values.isnan())
        indices = both.nonzero().squeeze(1)
        shown = indices[torch.linspace(0, len(indices) - 1, min(DOTS, len(indices))).round().long()]
        panels.append(
            Panel(
                Axis(names[0], ends.low, ends.high, ends.ticks),
                Axis(name, ends.low, ends.high, ends.ticks),
                (
                    Series("equal", (0.0, 1.0), (0.0, 1.0), 7, "dash"),
                    Series("a query", plain(first[shown]), plain(values[shown]), 1, shape="dots"),
                ),
                title="" if len(names) == 2 else name,
            )
        )
        gaps = (values - first)[indices]
        order = indices[gaps.argsort()]
        chosen = list(dict.fromkeys([*order[:MOST].tolist(), *order[-MOST:].tolist()]))
        rows = tuple(
            (
                compared.queries[index],
                f"{first[index]:.3f}",
                f"{values[index]:.3f}",
                f"{values[index] - first[index]:+.3f}",
            )
            for index in chosen
        )
        tables.append(Table(("query", names[0], name, "difference"), rows, caption="The largest losses and gains."))
    return Section(
        f"Query by query: {compared.title}",
        f"Above the dashed line a query does better than with {names[0]}, below it worse.",
        (
            Figure(
                tuple(panels),
                alt=f"{compared.title} of each query with both systems.",
                caption=f"{compared.title} of {len(compared.queries):,} queries."
                if len(compared.queries) <= DOTS
                else f"{compared.title} of {DOTS:,} of {len(compared.queries):,} queries, evenly spread.",
                height=340,
                numbers=False,
            ),
            *tables,
        ),
    )


def training_section(histories: Mapping[str, tuple[str, History]]) -> Section:
    """Return the losses and validation metrics of runs along their training, by name."""
    losses, metrics = [], []
    named = ""
    for look, (name, (metric, history)) in zip(LOOKS * len(histories), histories.items(), strict=False):
        if history.losses:
            losses.append(curve(*smoothed(history.losses), name, look))
        if history.steps:
            metrics.append(curve(history.steps, history.curve(metric), name, look, markers=True))
            named = metric
    panels = [
        Panel(
            axis("step", [0, *(step for each in group for step in each.x)], low=0),
            axis(title, [value for each in group for value in each.y]),
            tuple(group),
            title=head,
        )
        for head, title, group in (
            ("Loss", "loss, training data", losses),
            ("Metric", f"{named}, validation data", metrics),
        )
        if group
    ]
    return Section(
        "Along the training",
        "Different losses have different scales: compare how the metrics rise, not how high losses stand.",
        (Figure(tuple(panels), alt="Loss and validation metric of each run along its training."),) if panels else (),
    )
