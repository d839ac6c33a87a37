"""`rankwise simulate`: run, print, write."""

from __future__ import annotations

from pathlib import Path

from rankwise.cli.console import print_paragraph, print_table, progress_bar
from rankwise.cli.extras import require
from rankwise.cli.machine import record

__all__ = ["show_simulation"]


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
