"""`rankwise report`: the report of a run, from its folder and its data."""

from __future__ import annotations

from pathlib import Path

from rankwise.cli.console import print_paragraph
from rankwise.extras import require

__all__ = ["write_reports"]


def write_reports(folder: Path, out: Path | None) -> None:
    """Write the report of a run; with several seeds that of each and one of all."""
    require("the report of a run", ("lightning_fabric", "pydantic", "yaml", "jinja2"), extra="train,report")
    from rankwise.runs import load_runs

    runs = load_runs(folder)
    part = "test" if all(run.finished for run in runs) else "validation"
    if len(runs) == 1:
        print_paragraph(f"Report: {runs[0].report(out, part=part)}")
        return
    from rankwise.report.seeds import write_seeds_report

    results = []
    for run in runs:
        shown = run.inspect(part=part)
        results.append(shown.evaluation)
        page = run.report(inspection=shown, importance=run.quick_importance(), part=part)
        print_paragraph(f"Seed {run.record['seed']}: {page}")
    target = out or folder / "report.html"
    write_seeds_report(target, folder.resolve().name, runs, results, part=f"{part} part")
    print_paragraph(f"Report: {target}")
