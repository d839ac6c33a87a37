"""`rankwise evaluate`: metrics of a file of scores, or of a trained run on its test part or on other data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rankwise.cli.console import facts, print_paragraph, print_table, record, record_each, share_bar
from rankwise.cli.scores import Columns, judge_lists, judge_run
from rankwise.data.text_files import is_trec_run
from rankwise.extras import require
from rankwise.metrics import Evaluation

if TYPE_CHECKING:
    from rankwise.problems.importance import Importance
    from rankwise.runs import Run

__all__ = ["show_evaluation"]

# Columns whose importance is printed; the file has all.
SHOWN = 20


def show_evaluation(
    what: Path,
    data: Path | None,
    metrics: Sequence[str],
    columns: Columns,
    scores_out: Path | None,
    report: Path | None,
    importance: Path | None,
    judgements: Path | None = None,
) -> None:
    """Print the metrics of `what`; of a run, write scores, a report and the importance of columns where asked."""
    if what.is_dir():
        _show_run(what, data, metrics, scores_out, report, importance)
        return
    if any(each is not None for each in (data, scores_out, report, importance)):
        raise ValueError(
            f"{what}: expected the folder of a run with --data, --scores-out, --report or --importance, got a file"
        )
    if is_trec_run(what):
        _show(str(what), judge_run(what, judgements, metrics))
        return
    _show_scores(what, columns, metrics)


def _show_run(
    folder: Path,
    data: Path | None,
    metrics: Sequence[str],
    scores_out: Path | None,
    report: Path | None,
    importance: Path | None,
) -> None:
    require("evaluating a run", ("lightning_fabric", "pydantic", "yaml"), extra="train")
    from rankwise.runs import load_runs
    from rankwise.runs.folder import write_table

    if report is not None:
        require("the report", ("jinja2",), extra="report")
    runs = load_runs(folder)
    title = f"{folder} on {data}" if data is not None else f"{folder}, test part"
    if len(runs) > 1:
        for option, path in (("--scores-out", scores_out), ("--importance", importance)):
            if path is not None:
                raise ValueError(
                    f"{folder}: expected a run of one seed for {option}, got {len(runs)}; name one, such as "
                    f"{runs[0].folder}"
                )
        _show_seeds(title, runs, [run.inspect(data, metrics=metrics).evaluation for run in runs], data, report)
        return
    (run,) = runs
    shown = run.inspect(data, metrics=metrics)
    _show(title, shown.evaluation)
    drops = None
    if importance is not None:
        drops = run.importance(data, metrics[0] if metrics else None)
        write_table(importance, drops.table())
        _show_importance(f"{folder} on {data or f'the {run.unseen} part'}", drops)
        print_paragraph(f"Importance: {importance}")
    if report is not None:
        run.report(report, inspection=shown, importance=drops, name=title)
        print_paragraph(f"Report: {report}")
    if scores_out is not None:
        if shown.scores is None:
            raise ValueError(f"{folder}: expected a run that scores rows for --scores-out, got {run.problem.kind}")
        run.write_scores(scores_out, shown, data)
        print_paragraph(f"Scores: {scores_out}")


def _show_seeds(
    title: str, runs: Sequence[Run], evaluations: Sequence[Evaluation], data: Path | None, report: Path | None
) -> None:
    """Print the metrics of runs of one problem with different seeds."""
    from rankwise.problems.trials import tabulate_seeds

    seeds = [int(run.record["seed"]) for run in runs]
    columns, rows = tabulate_seeds(
        seeds, {name: [each.means[name] for each in evaluations] for name in evaluations[0].means}
    )
    print_table(f"{title}, mean over {len(runs)} seeds", ("metric", *columns), rows, numbers=True)
    record(what=title)
    for seed, each in zip(seeds, evaluations, strict=True):
        record_each("seeds", {"seed": seed, "metrics": facts(each), "tied": each.tied})
    for name, definition in evaluations[0].definitions.items():
        print_paragraph(f"{name}: {definition}")
    if report is not None:
        from rankwise.report.seeds import write_seeds_report

        write_seeds_report(report, title, runs, evaluations, part="test part" if data is None else str(data))
        print_paragraph(f"Report: {report}")


def _show_scores(path: Path, columns: Columns, metrics: Sequence[str]) -> None:
    with share_bar("evaluate") as on_progress:
        evaluation, groups = judge_lists(path, columns, metrics, on_progress)
    _show(str(path), evaluation)
    if groups:
        record(groups={name: facts(evaluation) for name, evaluation in groups.items()})
        rows = [
            (name, f"{len(evaluation.query_ids)}", *(f"{evaluation.means[metric]:.4f}" for metric in evaluation.means))
            for name, evaluation in groups.items()
        ]
        print_paragraph("")
        print_table("By group", ("group", "lists", *evaluation.means), rows, numbers=True)


def _show(title: str, evaluation: Evaluation) -> None:
    rows = [
        (
            name,
            f"{mean:.4f}",
            _interval(evaluation.intervals.get(name)),
            f"{len(evaluation.query_ids)}",
            f"{evaluation.skipped[name]}",
        )
        for name, mean in evaluation.means.items()
    ]
    print_table(title, ("metric", "mean", "95 % interval", "lists", "left out"), rows, numbers=True)
    record(what=title, metrics=facts(evaluation), tied=evaluation.tied)
    for name, definition in evaluation.definitions.items():
        print_paragraph(f"{name}: {definition}")
    if evaluation.tied:
        print_paragraph(f"Tied scores in {evaluation.tied:.1%} of the lists.")


def _show_importance(title: str, importance: Importance) -> None:
    cells = importance.table()
    rows = [
        (name, *(f"{number:.4f}" for number in numbers))
        for name, *numbers in zip(*(values[:SHOWN] for values in cells.values()), strict=True)
    ]
    print_table(title, ("column", f"drop of {importance.metric}", "smallest", "largest"), rows, numbers=True)
    print_paragraph(importance.definition)
    record(importance={"metric": importance.metric, "value": importance.value, "rows": importance.rows, **cells})


def _interval(bounds: tuple[float, float] | None) -> str:
    return "-" if bounds is None else f"{bounds[0]:.4f} to {bounds[1]:.4f}"
