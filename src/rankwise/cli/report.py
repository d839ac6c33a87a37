"""`rankwise report`: the report of a run, from its folder and its data."""

from __future__ import annotations

from pathlib import Path

import typer

from rankwise.cli.console import print_paragraph
from rankwise.extras import require

__all__ = ["write_reports"]


def write_reports(folder: Path, out: Path | None) -> None:
    """Write the report of a run, or of each of the runs (one per seed) that a folder holds."""
    require("the report of a run", ("lightning_fabric", "pydantic", "yaml", "jinja2"), extra="train,report")
    from rankwise.runs import load_runs

    runs = load_runs(folder)
    if out is not None and len(runs) > 1:
        raise typer.BadParameter(f"{folder} holds {len(runs)} runs, one per seed; name one of them", param_hint="RUN")
    for run in runs:
        print_paragraph(f"Report: {run.report(out, part='test' if run.finished else 'validation')}")
