"""The results as Markdown and as curves: figures over seeds, and differences over seeds and over lists."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean, stdev

import torch
from scipy.stats import t as student

from benchmarks.quality.curve_picture import draw_curves
from benchmarks.quality.images.plan import Plan, Row, Trial
from benchmarks.quality.images.results import Results
from rankwise.metrics import compare

__all__ = ["chosen_setting", "draw_plan", "finished_runs", "write_differences", "write_figures", "write_table"]


def chosen_setting(plan: Plan, results: Results, row: Row) -> str | None:
    """The best on validation, once all settings were tried; the only one if there is one."""
    if len(row.tries) == 1:
        return next(iter(row.tries))
    tried = results.tried(row.name, plan.variant)
    return tried[0].setting if len(tried) == len(row.tries) else None


def write_table(plan: Plan, results: Results) -> str:
    """Return the whole page."""
    lines = [plan.about, "", *write_figures(plan, results), *plan.notes]
    finished = finished_runs(plan, results)
    ours = [row for row in finished if row.ours]
    if ours and len(finished) > 1:
        best = max(ours, key=lambda row: _validation(results, finished[row]))
        title = f"{best.title} (of the library's own losses the best on validation) minus each other"
        others = [row for row in finished if row != best]
        lines += ["", *write_differences(plan, results, title, [(best, row) for row in others])]
    return "\n".join([*lines, *_choices(plan, results)]) + "\n"


def write_figures(plan: Plan, results: Results) -> list[str]:
    """Return the table of figures, mean and spread over seeds; settings are named where there was a choice."""
    choices = any(len(row.tries) > 1 for row in plan.rows)
    heads = ["method", "variant", *(("setting", "tried") if choices else ()), "seeds", *plan.metrics, "validation"]
    lines = [
        f"| {' | '.join(heads)} |",
        "|---|---|" + ("---|--:|" if choices else "") + "--:|" * (len(plan.metrics) + 2),
    ]
    finished = finished_runs(plan, results)
    for row in plan.rows:
        trials = finished.get(row, [])
        cells = [row.name, row.variant]
        if choices:
            alone = len(row.tries) == 1
            tried = "-" if alone else f"{len(results.tried(row.name, plan.variant))} of {len(row.tries)}"
            cells += [chosen_setting(plan, results, row) or "-", tried]
        figures = [_mean_and_spread(results, trials, name) if trials else "-" for name in (*plan.metrics, "validation")]
        lines.append(f"| {' | '.join([*cells, str(len(trials)), *figures])} |")
    note = "In percent, mean and standard deviation over seeds."
    if choices:
        note += (
            " tried: settings of the method run to choose one on validation, and how many there are. A dash: not run, "
            "nothing to choose."
        )
    return [*lines, "", note]


def draw_plan(plan: Plan, results: Results) -> str | None:
    """Validation along the training of the runs that have a curve, one panel per variant; None if there is none.

    Methods that one of the panels lacks are left out, variants of a single method too.
    """
    panels: dict[str, dict[str, tuple[tuple[int, float], ...]]] = {}
    for row, trials in finished_runs(plan, results).items():
        for trial in trials:
            if results[trial].curve:  # without the untrained network, next to which all differences are small
                panels.setdefault(row.variant, {})[row.name] = results[trial].curve[1:]
    shown = {variant: curves for variant, curves in panels.items() if len(curves) > 1}
    names = [name for name in next(iter(shown.values()), {}) if all(name in curves for curves in shown.values())]
    if not names:
        return None
    return draw_curves(
        {variant: {name: curves[name] for name in names} for variant, curves in shown.items()}, across="training steps"
    )


def finished_runs(plan: Plan, results: Results) -> dict[Row, list[Trial]]:
    """Return the runs that stand in the table, of each row that has some."""
    found = {}
    for row in plan.rows:
        setting = chosen_setting(plan, results, row)
        trials = [] if setting is None else results.final(row, setting, plan.steps)
        if trials:
            found[row] = trials
    return found


def _validation(results: Results, trials: list[Trial]) -> float:
    return mean(results[trial].figures["validation"] for trial in trials)


def _mean_and_spread(results: Results, trials: list[Trial], name: str) -> str:
    values = [100 * results[trial].figures[name] for trial in trials]
    return f"{mean(values):.2f}" + (f" ± {stdev(values):.2f}" if len(values) > 1 else "")


def write_differences(
    plan: Plan, results: Results, title: str, pairs: Sequence[tuple[Row, Row]], *, both: bool = False
) -> list[str]:
    """Return a table of paired differences.

    Args:
        plan: of the runs; results: of them.
        title: what is subtracted from what.
        pairs: of rows, the second is subtracted from the first.
        both: name both rows of a pair, not the second alone.
    """
    metric, finished = plan.metrics[0], finished_runs(plan, results)
    lines = [
        f"{title}, test {metric} in percent, over the seeds both have. Seeds: the mean difference with Student's 95 % "
        "interval over seeds. "
        f"{plan.unit.capitalize()}: bootstrap 95 % interval and paired permutation test over the {plan.unit}, each the "
        f"mean over these seeds; that says whether these trained networks differ on other {plan.unit}, not whether "
        "another training would come out the same, which only more seeds can say.",
        "",
        f"| {'rows' if both else 'against'} | seeds | difference | 95 % over seeds | 95 % over {plan.unit} | p | "
        f"{plan.unit} better / worse |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for first, second in pairs:
        seeds = {trial.seed for trial in finished.get(first, [])} & {trial.seed for trial in finished.get(second, [])}
        if not seeds:
            continue
        ours = [trial for trial in finished[first] if trial.seed in seeds]
        theirs = [trial for trial in finished[second] if trial.seed in seeds]
        gaps = torch.tensor(
            [100 * (results[a].figures[metric] - results[b].figures[metric]) for a, b in zip(ours, theirs, strict=True)]
        )
        cells = ["-", "-", "-"]
        own, other = results.per_list(ours), results.per_list(theirs)
        if own is not None and other is not None:
            found = compare(own, other)
            low, high = (100 * end for end in found.interval)
            cells = [f"{low:+.2f} to {high:+.2f}", f"{found.p_value:.2g}", f"{found.wins} / {found.losses}"]
        name = f"{first.title} minus {second.title}" if both else second.title
        lines.append(f"| {name} | {len(seeds)} | {gaps.mean():+.2f} | {_student(gaps)} | {' | '.join(cells)} |")
    return lines


def _choices(plan: Plan, results: Results) -> list[str]:
    lines = []
    for row in plan.rows:
        trials = results.tried(row.name, row.variant) if row.variant == plan.variant else []
        values = [f"{trial.setting}: {100 * results[trial].figures['validation']:.2f}" for trial in trials]
        if values:
            lines.append(f"| {row.name} | {'; '.join(values)} |")
    if not lines:
        return []
    head = f"What settings were chosen from: {plan.metrics[0]} on validation after {plan.choice_steps} steps, one seed."
    return ["", head, "", f"| method, {plan.variant} | settings, the best first |", "|---|---|", *lines]


def _student(gaps: torch.Tensor) -> str:
    if len(gaps) < 2:
        return "-"
    half = float(student.ppf(0.975, len(gaps) - 1)) * float(gaps.std()) / len(gaps) ** 0.5
    return f"{gaps.mean() - half:+.2f} to {gaps.mean() + half:+.2f}"
