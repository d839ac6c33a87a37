"""`rankwise report`: the report of a run, from its folder and its data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from rankwise.cli.console import print_paragraph
from rankwise.cli.extras import require

if TYPE_CHECKING:
    from rankwise.metrics import Evaluation
    from rankwise.recipes.run import OpenRun

__all__ = ["write_page", "write_reports"]


def write_reports(folder: Path, out: Path | None) -> None:
    """Write the report of a run, or of each of the runs (one per seed) that a folder holds."""
    require("the report of a run", ("lightning_fabric", "pydantic", "yaml", "jinja2"), extra="train,report")
    from rankwise.recipes.pages import REPORT
    from rankwise.recipes.run import RunFolder, open_run

    seeds = sorted(each for each in folder.glob("seed-*") if RunFolder(each).exists)
    folders = seeds if seeds and not RunFolder(folder).exists else [folder]
    if out is not None and len(folders) > 1:
        raise typer.BadParameter(
            f"{folder} holds {len(folders)} runs, one per seed; name one of them", param_hint="RUN"
        )
    for each in folders:
        run = open_run(each)
        target = out or each / REPORT
        write_page(run, each.resolve().name, target, part="test" if run.over else "validation")
        print_paragraph(f"Report: {target}")


def write_page(run: OpenRun, name: str, target: Path, *, part: str) -> Evaluation:
    """Judge a run on a part of its data, write its report, and give what was found."""
    from rankwise.recipes.pages import page_of
    from rankwise.report import write_report
    from rankwise.tasks import InspectableTask

    if not isinstance(run.task, InspectableTask):
        raise ValueError(f"{name}: there is no report of a task of the kind {run.recipe.task!r}")
    shown = run.task.inspect(run.model, part, bootstrap=1000)
    write_report(target, page_of(name, run.recipe, run.record, shown, run.history, steps=run.steps, part=part))
    return shown.evaluation
