"""`rankwise audit`: read, ask, print, write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from rankwise.cli.console import print_paragraph, print_table, progress_bar, record
from rankwise.data import Scores
from rankwise.extras import require

if TYPE_CHECKING:
    from rankwise.audit import Bias, Bounds, Generalisation, ListStability, Stability

__all__ = ["QUESTIONS", "show_audit", "show_simulation"]

QUESTIONS = ("bias", "stability", "list-stability", "bounds", "generalisation")

# Repeats of bias and of stability, pairs of models and their steps: for a figure to rely on, and for a first look.
THOROUGH, QUICK = (200, 10, 200, 100), (30, 2, 20, 20)


def show_audit(
    data: Scores,
    source: str,
    out: Path,
    *,
    questions: Sequence[str],
    positives: int,
    negatives: int,
    quick: bool,
    seed: int,
) -> None:
    """Run the audits, print their results and write them to the report `out`."""
    require("the report", ("jinja2",), extra="report")
    import torch

    from rankwise.report import write_report
    from rankwise.report.audit import audit_report, describe

    torch.set_num_threads(1)  # the batches are small: a second thread costs more than it brings
    check_binary(data, source)
    findings = []
    for question in questions:
        with progress_bar() as progress:
            bar = progress.add_task(question, total=1)
            answer = ask(
                question,
                data,
                positives=positives,
                negatives=negatives,
                quick=quick,
                seed=seed,
                on_progress=lambda share, bar=bar, progress=progress: progress.update(bar, completed=share),  # type: ignore[misc]
            )
        finding = describe(answer)
        record(**{question: {"sentence": finding.sentence, "found": answer}})
        findings.append(finding)
        for number, table in enumerate(finding.tables):
            title = finding.title if not number else f"{finding.title}, continued"
            print_table(title, table.columns, table.rows, numbers=True, strong=table.strong)
        print_paragraph(f"{finding.sentence}\n")
    facts = (
        ("Rows", f"{len(data)}, {int(data.labels.sum())} of them positive"),
        ("Lists", "one" if data.query_ids is None else f"{len(data.query_ids.unique())}, stability pools them"),
        ("Effort", "quick: to see it work, not to quote" if quick else "thorough"),
        ("Seed", str(seed)),
    )
    record(report=out)
    write_report(out, audit_report(findings, source=source, facts=facts))
    print_paragraph(f"Report: {out}")


def ask(
    question: str,
    data: Scores,
    *,
    positives: int,
    negatives: int,
    quick: bool,
    seed: int,
    on_progress: Callable[[float], None],
) -> Bias | Stability | ListStability | Bounds | Generalisation:
    """Return the answer to one of `QUESTIONS`."""
    from rankwise.audit import bias, bounds, generalisation, list_stability, stability

    batches, lists, models, steps = QUICK if quick else THOROUGH
    if question == "bias":
        return bias(
            data.scores,
            data.labels,
            query_ids=data.query_ids,
            positives=positives,
            negatives=negatives,
            repeats=batches,
            seed=seed,
            on_progress=on_progress,
        )
    if question == "stability":
        return stability(
            data.scores,
            data.labels,
            positives=positives,
            negatives=negatives,
            repeats=lists,
            seed=seed,
            on_progress=on_progress,
        )
    if question == "list-stability":
        labels = None if data.features is None else data.labels
        return list_stability(data.features, labels, models=models, steps=steps, seed=seed, on_progress=on_progress)
    if question == "generalisation":
        return generalisation(data.scores, data.labels, query_ids=data.query_ids, on_progress=on_progress)
    return bounds(data.scores, data.labels, query_ids=data.query_ids, on_progress=on_progress)


def check_binary(data: Scores, source: str) -> None:
    """Refuse what no AP loss can be asked about."""
    if bool(((data.labels != 0) & (data.labels != 1)).any()):
        raise typer.BadParameter(f"{source}: expected labels of 0 and 1, got {data.labels.max().item():g}")
    if bool((data.labels == data.labels[0]).all()):
        raise typer.BadParameter(f"{source}: expected both labels 0 and 1, got {data.labels[0].item():g} only")


def show_simulation(out: Path, csv: Path | None, *, repeats: int, seed: int) -> None:
    """Run the simulation, print its tables, and write its report to `out` and its numbers to `csv`."""
    require("the report", ("jinja2",), extra="report")
    import torch

    from rankwise.audit import simulate
    from rankwise.report import write_report, write_text
    from rankwise.report.simulation import estimates_table, quantiles_table, simulation_report

    torch.set_num_threads(1)  # the batches are small: a second thread costs more than it brings
    with progress_bar() as progress:
        bar = progress.add_task("simulating", total=1)
        result = simulate(repeats=repeats, seed=seed, on_progress=lambda share: progress.update(bar, completed=share))
    for title, table in (
        ("Errors of estimates of 1 - AUPRC", estimates_table(result)),
        ("Errors of the quantiles of positive scores, in their standard deviations", quantiles_table(result)),
    ):
        print_table(title, table.columns, table.rows, numbers=True)
    print_paragraph(result.sentence)
    record(sentence=result.sentence, cases=[case.row() for case in result.cases], report=out)
    write_report(out, simulation_report(result))
    print_paragraph(f"\nReport: {out}")
    if csv is not None:
        write_text(csv, result.to_csv())
        print_paragraph(f"Numbers: {csv}")
