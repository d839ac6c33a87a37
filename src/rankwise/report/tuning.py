"""The report of a tuning: whether the best options are better than the default, and which options mattered."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from rankwise.problems.load import dump_problem
from rankwise.problems.problem import Problem
from rankwise.problems.spaces import Choice, Range, option_of
from rankwise.problems.trials import tabulate_seeds
from rankwise.report.compare import ComparedMetric, difference_section
from rankwise.report.content import Axis, Figure, Listing, Panel, Report, Section, Series, Table
from rankwise.report.plots import Look, axis, curve, plain, powers_axis
from rankwise.report.write import versions

if TYPE_CHECKING:
    from rankwise.runs.study import Trial
    from rankwise.runs.tuning import Tuned

__all__ = ["tuning_report", "verdict"]

DRAWN = 4  # options that get a panel
LISTED = 50


def tuning_report(tuned: Tuned, problem: Problem[Any, Any]) -> Report:
    """Return the page, ready for `write_report`.

    Args:
        tuned: with the runs of the comparison.
        problem: as it was before.
    """
    states = [each.state for each in tuned.trials]
    counts = ", ".join(f"{states.count(state)} {state}" for state in ("complete", "pruned", "failed"))
    return Report(
        title=f"rankwise tune: {tuned.folder.resolve().name}",
        headline=verdict(tuned, problem.metric),
        summary=_summary(tuned, problem.metric),
        sections=(
            *_differences(tuned),
            _over_seeds(tuned),
            _options(tuned, problem),
            _importance(tuned, problem.metric),
            _trials(tuned, problem.metric),
        ),
        facts=(
            ("Task", f"{problem.kind}: {problem.summary}"),
            ("Trials", counts),
            ("Time of the trials", f"{sum(each.seconds for each in tuned.trials):,.0f} s"),
            ("Versions", versions("torch", "optuna")),
        ),
        details=(Listing("The best recipe", dump_problem(tuned.problem)), *_failures(tuned.trials)),
    )


def verdict(tuned: Tuned, metric: str) -> str:
    """Return in one sentence whether the best options are better than the default on the test part."""
    if tuned.best.default:
        return f"No trial was better than the default on the validation part: {metric} {tuned.default.value:.3f}."
    means = {name: [run.test.means[metric] for run in runs if run.test] for name, runs in tuned.runs.items()}
    best, default = (sum(means[name]) / len(means[name]) for name in ("best", "default"))
    gap = f"{metric} {best:.3f} against {default:.3f} on the test part, mean over {len(means['best'])} seeds"
    if tuned.comparison is None:
        return f"The best options and the default: {gap}."
    low, high = tuned.comparison.interval
    if low <= 0 <= high:
        return f"The best options and the default cannot be told apart: {gap}."
    return f"The best options are {'better' if low > 0 else 'worse'} than the default: {gap}."


def _summary(tuned: Tuned, metric: str) -> str:
    best, default = tuned.best, tuned.default
    text = (
        f"{len(tuned.trials)} trials were judged on the validation part: the default got {metric} {default.value:.4f}, "
        f"the best, trial {best.number}, {best.value:.4f}. The largest of many values is too good by luck; the test "
        "part, which no trial saw, says what the options are worth."
    )
    before = [number for number in tuned.tested if number != best.number]
    if before:
        named = ", ".join(map(str, before))
        text += (
            f" The test part was used before, for the best of fewer trials (trial {named}): do not go on until the "
            "figure pleases."
        )
    return text


def _differences(tuned: Tuned) -> list[Section]:
    if tuned.comparison is None:
        return []
    section = difference_section(["default", "best"], ComparedMetric(tuned.comparison.metric, [tuned.comparison]))
    return [section]


def _over_seeds(tuned: Tuned) -> Section:
    seeds = [int(run.record["seed"]) for run in tuned.runs["default"]]
    names = list(tuned.runs["default"][0].test.means) if tuned.runs["default"][0].test else []
    tables = []
    for title, runs in tuned.runs.items():
        values = {name: [run.test.means[name] for run in runs if run.test] for name in names}
        columns, rows = tabulate_seeds(seeds, values)
        tables.append(Table(("metric", *columns), tuple(rows), caption=f"The {title} options."))
    return Section(
        "On the test part, over the seeds",
        "All runs had the same test part. The seeds differ in the initial weights and the batches. Up to three are "
        "listed; more have an interval of their mean (Student's t), which is of the luck of training alone.",
        tuple(tables),
    )


def _options(tuned: Tuned, problem: Problem[Any, Any]) -> Section:
    rows = tuple(
        (key, _shown(option_of(problem, key)), _shown(option_of(tuned.problem, key)), str(space))
        for key, space in tuned.spaces.items()
    )
    table = Table(("option", "default", "best", "searched"), rows, caption="-: chosen by the program, from the data.")
    return Section("The options", "best.yaml has them all; `rankwise train` takes it.", (table,))


def _importance(tuned: Tuned, metric: str) -> Section:
    text = (
        "The share of the variance of the validation metric over the complete trials that each option explains by "
        "itself (fANOVA, a forest fitted to the trials). With few trials it is a hint only."
    )
    if not tuned.importance:
        few = "Fewer than four complete trials within the spaces, or all alike: nothing can be said."
        return Section("What mattered", few)
    rows = list(tuned.importance.items())
    series = [
        Series("", plain([0.0, 0.0, share, share, 0.0]), (at - 0.25, at + 0.25, at + 0.25, at - 0.25, at - 0.25), 1)
        for at, (_, share) in ((float(row), each) for row, each in enumerate(rows))
    ]
    bars = Panel(
        axis("share of the variance", [0.0, *(share for _, share in rows)], low=0),
        Axis("", len(rows) - 0.4, -0.7, tuple((float(row), key.split(".")[-1]) for row, (key, _) in enumerate(rows))),
        tuple(series),
    )
    told = ", ".join(f"{key} {share:.0%}" for key, share in rows)
    figures = [Figure((bars,), alt=f"Importance: {told}.", height=60 + 34 * len(rows), numbers=False)]
    panels = [_along(tuned, key, metric) for key, _ in rows[:DRAWN]]
    figures.append(
        Figure(
            tuple(panels),
            alt=f"{metric} of each complete trial against its options.",
            caption=f"One dot per complete trial: {metric} on the validation part against the options that mattered "
            "most. If the best lie at an end of a range, widen it with --space.",
        )
    )
    return Section("What mattered", text, tuple(figures))


def _along(tuned: Tuned, key: str, metric: str) -> Panel:
    """Return the values of the complete trials along one option."""
    space, known = tuned.spaces[key], [t for t in tuned.trials if t.state == "complete" and key in t.options]
    values = [float(each.value or 0.0) for each in known]
    if isinstance(space, Choice):
        at = [float(space.values.index(each.options[key])) for each in known]
        ticks = tuple((float(number), _shown(value)) for number, value in enumerate(space.values))
        across = Axis(key, -0.5, len(ticks) - 0.5, ticks)
    else:
        assert isinstance(space, Range)
        at = [float(each.options[key]) for each in known]
        ends = [space.low, space.high]
        across = powers_axis(key, ends) if space.scale == "log" else axis(key, ends)
    return Panel(
        across, axis(f"{metric}, validation", values), (Series("trial", plain(at), plain(values), 1, shape="dots"),)
    )


def _trials(tuned: Tuned, metric: str) -> Section:
    complete = [each for each in tuned.trials if each.state == "complete"]
    numbers, values = [each.number for each in complete], [float(each.value or 0.0) for each in complete]
    best = list(accumulate(values, max))
    progress = Panel(
        axis("trial", [0, *numbers], low=0),
        axis(f"{metric}, validation", values),
        (
            Series("a trial", plain(numbers), plain(values), 2, shape="dots"),
            curve(numbers, best, "best so far", (1, "solid")),
        ),
        title="Trials",
    )
    panels, drawn = [progress], [each for each in tuned.trials if len(each.curve) > 1]
    if drawn:
        looks: dict[str, Look] = {"complete": (2, "solid"), "pruned": (7, "dot"), "failed": (7, "dash")}
        series = [_curve(each, each.state, looks[each.state]) for each in drawn if each is not tuned.best]
        if tuned.best in drawn:
            series.append(_curve(tuned.best, "best", (1, "solid")))
        panels.append(
            Panel(
                axis("step", [0, *(step for each in drawn for step, _ in each.curve)], low=0),
                axis(f"{metric}, validation", [value for each in drawn for _, value in each.curve]),
                tuple(series),
                title="Curves",
            )
        )
    ranked = sorted(tuned.trials, key=lambda each: (each.state != "complete", -(each.value or 0.0)))[:LISTED]
    rows = tuple(
        (
            f"{each.number}{' (default)' if each.default else ''}",
            each.state,
            "-" if each.value is None else f"{each.value:.4f}",
            f"{each.seconds:.1f}",
            ", ".join(f"{key.split('.')[-1]} {_shown(value)}" for key, value in each.options.items()),
        )
        for each in ranked
    )
    more = f" The first {LISTED}; trials.csv has all." if len(tuned.trials) > LISTED else ""
    table = Table(("trial", "state", metric, "seconds", "options"), rows, caption=f"The best first.{more}")
    text = (
        "A trial is pruned if the best of its evaluations so far lies below the median of the others at that step. The "
        "curves are of the model in training; what is fitted after the last step is in the final value only."
    )
    figure = Figure(tuple(panels), alt=f"{metric} of the trials in their order, and along each training.")
    return Section("The trials", text, (figure, table))


def _curve(trial: Trial, name: str, look: Look) -> Series:
    """Return the validation curve of a trial."""
    return curve([step for step, _ in trial.curve], [value for _, value in trial.curve], name, look)


def _failures(trials: Sequence[Trial]) -> tuple[Listing, ...]:
    failed = [f"trial {each.number}: {each.reason}" for each in trials if each.state == "failed"]
    return (Listing("Failed trials", "\n".join(failed)),) if failed else ()


def _shown(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.3g}" if isinstance(value, float) else str(value)
