"""Reports of runs with several seeds: all seeds on one page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rankwise.metrics import Evaluation
from rankwise.problems.load import dump_problem
from rankwise.problems.trials import tabulate_seeds
from rankwise.report.compare import ComparedMetric, difference_section, training_section
from rankwise.report.content import Listing, Report, Section, Table
from rankwise.report.write import versions, write_report
from rankwise.training import History

if TYPE_CHECKING:
    from rankwise.runs import Run

__all__ = ["seeds_comparison_report", "write_seeds_report"]


def write_seeds_report(
    path: Path, title: str, runs: Sequence[Run], evaluations: Sequence[Evaluation], *, part: str = "test part"
) -> None:
    """Write the report of runs of one problem with different seeds.

    Args:
        path: of the HTML file.
        title: what the runs are called together.
        runs: one per seed.
        evaluations: the metrics of each run on the `part`.
        part: what the metrics are of.
    """
    problem, seeds = runs[0].problem, [int(run.record["seed"]) for run in runs]
    means = {name: [each.means[name] for each in evaluations] for name in evaluations[0].means}
    columns, rows = tabulate_seeds(seeds, means)
    metric = next(iter(means))
    low, high = min(means[metric]), max(means[metric])
    by_seed = [
        (str(seed), *(f"{each.means[name]:.4f}" for name in means), str(run.history.best_step), _report_of(run, path))
        for seed, run, each in zip(seeds, runs, evaluations, strict=True)
    ]
    histories = {f"seed {seed}": (problem.metric, run.history) for seed, run in zip(seeds, runs, strict=True)}
    report = Report(
        title=f"rankwise run: {title}",
        headline=f"{metric} {sum(means[metric]) / len(runs):.3f} on the {part}, from {low:.3f} to {high:.3f} over "
        f"{len(runs)} seeds.",
        summary="The seeds differ in the initial weights, the batches and, where the data were cut here, in the cut.",
        sections=(
            Section(
                "Over the seeds",
                "Up to three seeds are listed; more have an interval of their mean (Student's t).",
                (
                    Table(("metric", *columns), tuple(rows)),
                    Table(("seed", *means, "best step", "report"), tuple(by_seed)),
                ),
            ),
            training_section(histories),
        ),
        facts=(("Task", f"{problem.kind}: {problem.summary}"), ("Versions", versions("torch"))),
        details=(Listing("The complete recipe", dump_problem(problem)),),
    )
    write_report(path, report)


def seeds_comparison_report(
    names: Sequence[str],
    seeds: Sequence[int],
    compared: Mapping[int, Sequence[ComparedMetric]],
    tables: Sequence[tuple[str, tuple[str, ...], Sequence[tuple[str, ...]]]],
    histories: Mapping[str, tuple[str, History]],
) -> Report:
    """Return the report of a comparison of runs with the same seeds.

    Args:
        names: of the systems; all are compared with the first.
        seeds: with which each was trained.
        compared: by seed, one or more metrics.
        tables: of each metric its title, columns and rows over the seeds.
        histories: see `comparison_report`.
    """
    first = [each[0].comparisons[0] for each in compared.values()]
    ahead = sum(each.difference > 0 for each in first)
    mean_a, mean_b = (sum(values) / len(seeds) for values in zip(*((f.mean_a, f.mean_b) for f in first), strict=True))
    title = compared[seeds[0]][0].title
    sections = [
        Section(
            f"Difference in {name} over the seeds",
            "Runs of the same seed had the same data, so they are compared pair by pair.",
            (Table(columns, tuple(rows)),),
        )
        for name, columns, rows in tables
    ]
    for seed, metrics in compared.items():
        named = [
            ComparedMetric(f"{each.title}, seed {seed}", each.comparisons, each.values, each.queries)
            for each in metrics
        ]
        sections += [difference_section(names, each) for each in named]
    if histories:
        sections.append(training_section(histories))
    return Report(
        title=f"rankwise compare: {' and '.join(names)}",
        headline=f"{names[1]} is ahead of {names[0]} with {ahead} of {len(seeds)} seeds: {title} {mean_a:.3f} against "
        f"{mean_b:.3f}.",
        summary="",
        sections=tuple(sections),
        facts=(*((f"System {number}", name) for number, name in enumerate(names, 1)), ("Versions", versions("torch"))),
    )


def _report_of(run: Run, page: Path) -> str:
    """Return where the report of one seed is, as seen from the page of all."""
    own = None if run.folder is None else run.folder / "report.html"
    if own is None or not own.is_file():
        return "-"
    return own.relative_to(page.parent).as_posix() if own.is_relative_to(page.parent) else str(own)
