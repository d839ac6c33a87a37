"""`rankwise rehearse`: what a recipe costs, before there are data."""

from __future__ import annotations

from collections.abc import Sequence

from rankwise.cli.console import print_paragraph, print_table, progress_bar, say, shows_progress
from rankwise.cli.machine import record
from rankwise.cli.stop import sigterm_like_ctrl_c
from rankwise.extras import require

__all__ = ["show_rehearsal"]


def show_rehearsal(recipe: str, changes: Sequence[str], *, steps: int, clock: str) -> int:
    """Rehearse a recipe and print its costs; return 1 if it cannot be run as it is, else 0."""
    require("training", ("lightning_fabric", "pydantic", "yaml"), extra="train")
    from rankwise.rehearsal import rehearse

    with sigterm_like_ctrl_c(), progress_bar() as progress:
        bar = progress.add_task("making data", total=None)
        told: list[str] = []

        def tell(text: str) -> None:
            progress.update(bar, description=text)
            phase = text.split()[0]
            if not shows_progress() and phase not in told:
                told.append(phase)
                say(text)

        found = rehearse(recipe, changes, steps=steps, clock=clock, tell=tell)
    record(rehearsal=found)
    between = "-" if found.between_seconds is None else _span(found.between_seconds)
    rows = [
        ("memory", f"{found.memory_gib:.1f} GiB" + ("" if found.free_gib is None else f" of {found.free_gib:.1f} GiB")),
        ("a step", f"{found.step_seconds:.3g} s"),
        ("steps", f"{found.steps:,}"),
        ("an evaluation", _span(found.evaluation_seconds)),
        ("training between two", between),
        ("evaluations", f"{found.evaluations:,}"),
        ("the final test", _span(found.test_seconds)),
        ("reading the data", _span(found.read_seconds)),
        ("the whole run", _span(found.hours * 3600)),
    ]
    print_table(f"{recipe} on this machine", ("", ""), rows, numbers=True)
    print_paragraph(f"Extrapolated from made data of the true shape: {found.made}, one evaluation.")
    for problem in found.problems:
        print_paragraph(f"Cannot finish: {problem}")
    return 1 if found.problems else 0


def _span(seconds: float) -> str:
    """Return a time in a unit that reads well."""
    if seconds < 100:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:,.0f} min" if seconds < 6000 else f"{seconds / 3600:,.1f} h"
