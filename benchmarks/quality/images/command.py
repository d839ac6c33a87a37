"""The command of a comparison: run what is missing, write the page and the curves."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

import torch

from benchmarks.quality.images.plan import Plan, Row, Trial
from benchmarks.quality.images.results import Results
from benchmarks.quality.images.table import chosen_setting, draw_plan, write_table

__all__ = ["run_plans"]


def run_plans(plans: dict[str, Plan], quick: Plan, folder: Path) -> None:
    """Read the arguments of the command line, run one of the plans, write its CSV file, page and curves into `folder`.

    Every run is added to the file as soon as it is over, so a command that was stopped goes on where it was. Seeds come
    one after the other, each with all rows: the table is balanced whenever it is stopped.
    """
    first = next(iter(plans))
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.quality.{folder.name}")
    parser.add_argument("table", nargs="?", choices=list(plans), default=first, help=f"which comparison ({first})")
    parser.add_argument("--quick", action="store_true", help="a few steps of a few rows, into build/: two minutes")
    parser.add_argument("--only", nargs="+", default=None, metavar="NAME", help="only these methods")
    parser.add_argument("--variants", nargs="+", default=None, metavar="VARIANT", help="only these variants")
    parser.add_argument("--stage", choices=("choices", "table"), default=None, help="only one of the two")
    parser.add_argument("--seeds", type=int, default=None, metavar="N", help="only the first N seeds")
    parser.add_argument("--minutes", type=float, default=None, help="begin no further run after so long")
    parser.add_argument("--lists", type=Path, default=Path("build", folder.name), help="for the values of single lists")
    given = parser.parse_args()
    torch.set_num_threads(1)  # the figures do not depend on it, the times do
    plan, target = plans[given.table], folder
    if given.quick:
        plan, target = quick, given.lists / "quick"
    stem = "results" if given.table == first else given.table
    results = Results(target / f"{stem}.csv", given.lists / given.table, plan.metrics)
    if given.seeds is not None:
        plan = replace(plan, seeds=plan.seeds[: given.seeds])
    started = time.perf_counter()
    for row, trial in _trials(plan, results, given.stage):
        named = given.only is None or row.name in given.only
        fits = given.variants is None or row.variant in given.variants
        late = given.minutes is not None and time.perf_counter() - started > 60 * given.minutes
        if trial in results or late or not named or not fits:
            continue
        begun = time.perf_counter()
        outcome = plan.run(row, row.tries[trial.setting], trial)
        seconds = {"seconds": time.perf_counter() - begun}
        results.add(trial, replace(outcome, figures={**outcome.figures, **seconds}))
        shown = "  ".join(f"{name} {value:.4f}" for name, value in outcome.figures.items())
        print(f"{row.title:<32} {trial.setting:<24} seed {trial.seed} {shown}  {seconds['seconds']:.0f} s", flush=True)
    text = write_table(plan, results)
    (target / f"{stem.upper()}.md").write_text(text)
    picture = draw_plan(plan, results)
    if picture is not None:
        (target / f"{stem}.svg").write_text(picture)
    print(text)


def _trials(plan: Plan, results: Results, stage: str | None) -> Iterator[tuple[Row, Trial]]:
    if stage != "table":
        rows = [row for row in plan.rows if row.variant == plan.variant and len(row.tries) > 1]
        for settings in zip_longest(*(row.tries for row in rows)):  # one of each method, then another of each
            for row, setting in zip(rows, settings, strict=True):
                if setting is not None:
                    yield row, Trial(row.name, row.variant, setting, plan.seeds[0], plan.choice_steps, "validation")
    if stage != "choices":
        for seed in plan.seeds:
            for row in plan.rows:
                setting = chosen_setting(plan, results, row)
                if setting is not None:
                    yield row, Trial(row.name, row.variant, setting, seed, plan.steps, "test")
