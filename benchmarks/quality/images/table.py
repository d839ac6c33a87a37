"""The results as Markdown and as curves: figures over seeds, and differences over seeds and over lists."""

from __future__ import annotations

from statistics import mean, stdev

import torch
from scipy.stats import t as student

from benchmarks.quality.curve_picture import draw_curves
from benchmarks.quality.images.plan import Plan, Row, Trial
from benchmarks.quality.images.results import Results
from rankwise.metrics import compare

__all__ = ["chosen_setting", "draw_plan", "write_table"]


def chosen_setting(plan: Plan, results: Results, row: Row) -> str | None:
    """The best on validation, once all settings were tried; the only one if there is one."""
    if len(row.tries) == 1:
        return next(iter(row.tries))
    tried = results.tried(row.name, plan.variant)
    return tried[0].setting if len(tried) == len(row.tries) else None


def write_table(plan: Plan, results: Results) -> str:
    """The whole page."""
    lines = [
        plan.about,
        "",
        "| method | variant | setting | tried | seeds | " + " | ".join(plan.metrics) + " | validation |",
        "|---|---|---|--:|--:|" + "--:|" * (len(plan.metrics) + 1),
    ]
    finished = _finished(plan, results)
    for row in plan.rows:
        trials = finished.get(row, [])
        setting = chosen_setting(plan, results, row)
        tried = "-" if len(row.tries) == 1 else f"{len(results.tried(row.name, plan.variant))} of {len(row.tries)}"
        if not trials:
            lines.append(
                f"| {row.name} | {row.variant} | {setting or '-'} | {tried} | 0 |{' - |' * (len(plan.metrics) + 1)}"
            )
            continue
        figures = [_mean_and_spread(results, trials, name) for name in (*plan.metrics, "validation")]
        lines.append(f"| {row.name} | {row.variant} | {setting} | {tried} | {len(trials)} | {' | '.join(figures)} |")
    lines += [
        "",
        "In percent, mean and standard deviation over seeds. tried: settings of the method run to choose one on "
        "validation, and how many there are. A dash: not run, nothing to choose.",
        *plan.notes,
    ]
    ours = [row for row in finished if row.ours]
    if ours and len(finished) > 1:
        best = max(ours, key=lambda row: _validation(results, finished[row]))
        lines += ["", *_differences(plan, results, finished, best)]
    return "\n".join([*lines, *_choices(plan, results)]) + "\n"


def draw_plan(plan: Plan, results: Results) -> str | None:
    """Validation along the training of the runs that have a curve, one panel per variant; None if there is none.

    Methods that one of the panels lacks are left out, variants of a single method too.
    """
    panels: dict[str, dict[str, tuple[tuple[int, float], ...]]] = {}
    for row, trials in _finished(plan, results).items():
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


def _finished(plan: Plan, results: Results) -> dict[Row, list[Trial]]:
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


def _differences(plan: Plan, results: Results, finished: dict[Row, list[Trial]], best: Row) -> list[str]:
    metric = plan.metrics[0]
    lines = [
        f"{best.title} (of the library's own losses the best on validation) minus each other, test {metric} in "
        "percent, over the seeds both have. Seeds: the mean difference with Student's 95 % interval over seeds. "
        f"{plan.unit.capitalize()}: bootstrap 95 % interval and paired permutation test over the {plan.unit}, each the "
        f"mean over these seeds; that says whether these trained networks differ on other {plan.unit}, not whether "
        "another training would come out the same, which only more seeds can say.",
        "",
        f"| against | seeds | difference | 95 % over seeds | 95 % over {plan.unit} | p | {plan.unit} better / worse |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for row, trials in finished.items():
        seeds = {trial.seed for trial in trials} & {trial.seed for trial in finished[best]}
        if row == best or not seeds:
            continue
        ours = [trial for trial in finished[best] if trial.seed in seeds]
        theirs = [trial for trial in trials if trial.seed in seeds]
        gaps = torch.tensor(
            [100 * (results[a].figures[metric] - results[b].figures[metric]) for a, b in zip(ours, theirs, strict=True)]
        )
        cells = ["-", "-", "-"]
        own, other = results.per_list(ours), results.per_list(theirs)
        if own is not None and other is not None:
            found = compare(own, other)
            low, high = (100 * end for end in found.interval)
            cells = [f"{low:+.2f} to {high:+.2f}", f"{found.p_value:.2g}", f"{found.wins} / {found.losses}"]
        lines.append(f"| {row.title} | {len(seeds)} | {gaps.mean():+.2f} | {_student(gaps)} | {' | '.join(cells)} |")
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
