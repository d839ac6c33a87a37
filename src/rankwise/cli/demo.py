"""`rankwise demo`: run, print, write."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from rankwise.cli.console import print_paragraph, print_table, progress_bar, record, sparkline
from rankwise.extras import require

if TYPE_CHECKING:
    from rankwise.problems.trials import Outcome

__all__ = ["show_demo"]


def show_demo(out: Path, *, seeds: int, quick: bool) -> None:
    """Run the demonstration, print its tables and write its report to `out`."""
    require("the demo", ("lightning_fabric", "sklearn", "jinja2"), extra="demo")
    import torch

    from rankwise.problems.demo import plan_demo, run_demo
    from rankwise.report import Table, write_report
    from rankwise.report.demo import demo_report, demo_sentences, eights_table, retrieval_table
    from rankwise.report.figures import mean_precision_curve

    torch.set_num_threads(1)  # the networks are tiny: a second thread costs more than it brings
    started = perf_counter()
    plan = plan_demo(seeds=seeds, quick=quick)
    with progress_bar() as progress:
        bar = progress.add_task("starting", total=plan.steps)
        result = run_demo(plan, on_step=lambda name: progress.update(bar, advance=1, description=f"{name:<25}"))

    def show(title: str, table: Table) -> None:
        print_table(title, table.columns, table.rows, numbers=True, strong=table.strong)

    show("Finding the eights, 12 among 612 training images (test)", eights_table(result))
    show("Finding the same digit, 20 training images each (test)", retrieval_table(result))
    curves = [(each.contender.name, sparkline(mean_precision_curve(each)[1].tolist())) for each in result.eights]
    print_table("Precision along the ranking, from the first eight to the last", ("loss", ""), curves, numbers=False)
    for sentence in demo_sentences(result):
        print_paragraph(sentence)
    record(eights=_summaries(result.eights, "ap"), retrieval=_summaries(result.retrieval, "map"), report=out)
    write_report(out, demo_report(result))
    print_paragraph(f"\nReport: {out} ({perf_counter() - started:.0f} s in all)")


def _summaries(outcomes: Sequence[Outcome], metric: str) -> list[dict[str, object]]:
    return [
        {
            "name": each.contender.name,
            "steps": each.contender.steps,
            "seconds": each.seconds,
            metric: each.summary(metric),
        }
        for each in outcomes
    ]
