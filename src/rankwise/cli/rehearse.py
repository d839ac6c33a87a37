"""`rankwise rehearse` and `rankwise plan`: say what a recipe costs on this machine, and on many ranks."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rankwise.cli.console import print_paragraph, print_table, progress_bar, record, say, shows_progress
from rankwise.cli.main import sigterm_like_ctrl_c
from rankwise.extras import require

__all__ = ["read_network", "show_plan", "show_rehearsal"]


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

        costs = rehearse(recipe, changes, steps=steps, clock=clock, tell=tell)
    record(rehearsal=costs)
    between = "-" if costs.between_seconds is None else _span(costs.between_seconds)
    rows = [
        ("memory", f"{costs.memory_gib:.1f} GiB" + ("" if costs.free_gib is None else f" of {costs.free_gib:.1f} GiB")),
        ("a step", f"{costs.step_seconds:.3g} s"),
        ("steps", f"{costs.steps:,}"),
        ("an evaluation", _span(costs.evaluation_seconds)),
        ("training between two", between),
        ("evaluations", f"{costs.evaluations:,}"),
        ("the final test", _span(costs.test_seconds)),
        ("reading the data", _span(costs.read_seconds)),
        ("the whole run", _span(costs.hours * 3600)),
    ]
    print_table(f"{recipe} on this machine", ("", ""), rows, numbers=True)
    print_paragraph(f"Extrapolated from made data of the true shape: {costs.made}, one evaluation.")
    for problem in costs.problems:
        print_paragraph(f"Cannot finish: {problem}")
    return 1 if costs.problems else 0


def _span(seconds: float) -> str:
    """Return a time in a unit that reads well."""
    if seconds < 100:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:,.0f} min" if seconds < 6000 else f"{seconds / 3600:,.1f} h"


def read_network(text: str) -> float:
    """Return the gigabits per second of text such as `100Gb`.

    Example:
        >>> read_network("100Gb"), read_network("2.5 Gbit/s"), read_network("800Mb")
        (100.0, 2.5, 0.8)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(G|M)b(?:it)?(?:/s|ps)?\s*", text)
    if match is None or float(match[1]) == 0:
        raise ValueError(f"network: expected gigabits per second, such as 100Gb, got {text!r}")
    return float(match[1]) * (1.0 if match[2] == "G" else 1e-3)


def show_plan(recipe: str, changes: Sequence[str], *, ranks: int, network: str, latency: float) -> None:
    """Measure one rank's work and print the costs of a step on one rank and on many."""
    require("training", ("lightning_fabric", "pydantic", "yaml"), extra="train")
    from rankwise.rehearsal import plan

    with sigterm_like_ctrl_c():
        made = plan(recipe, changes, ranks=ranks, gigabits=read_network(network), latency=latency * 1e-6, tell=say)
    record(plan=made, speed_up=made.speed_up)
    each = (made.alone, made.many)
    rows = [
        ("rows of a batch on a rank", *(f"{cost.rows:,.0f}" for cost in each)),
        ("model and loss (measured)", *(f"{1000 * cost.compute_seconds:,.3g} ms" for cost in each)),
        ("bytes sent by a rank", *(f"{cost.network_bytes / 2**20:,.3g} MiB" for cost in each)),
        ("collectives", *(f"{cost.collectives}" for cost in each)),
        ("network (computed)", *(f"{1000 * cost.network_seconds:,.3g} ms" for cost in each)),
        ("a step", *(f"{1000 * cost.step_seconds:,.3g} ms" for cost in each)),
        (f"{made.steps:,} steps", *(f"{made.steps * cost.step_seconds / 3600:,.3g} h" for cost in each)),
        ("weights, gradients, optimiser", *(f"{cost.weights_bytes / 2**20:,.3g} MiB" for cost in each)),
        ("state of the loss, an epoch", *(f"{cost.state_bytes / 2**20:,.3g} MiB" for cost in each)),
    ]
    title, header = f"{recipe}: a step on one rank and on each of {ranks}", ("", "1 rank", f"{ranks} ranks")
    print_table(title, header, rows, numbers=True)
    way = "Lists live on one rank; nothing is gathered." if made.lists_local else "The batch is gathered on every rank."
    data = " Data were made in the shape that the recipe states." if made.made else ""
    print_paragraph(
        f"{made.speed_up:.1f} times as fast on {ranks} ranks. {way}{data} Model and loss: CPU time of one thread here, "
        "on the share of one rank. Network: bytes and collectives one after the other, reading and evaluations not "
        "counted. docs/scale.md has the formulas."
    )
