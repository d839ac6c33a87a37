"""The command of a comparison: run what is missing, write the page."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from benchmarks.quality.grid.plan import Key, Method, Plan
from benchmarks.quality.grid.results import Results
from benchmarks.quality.grid.table import write_table

__all__ = ["run_plan"]


def run_plan(plan: Plan, folder: Path, write: Callable[[Plan, Results], str] = write_table) -> None:
    """Read the arguments of the command line, run, write `results.csv` and `RESULTS.md` (by `write`) into `folder`.

    Every run is added to the file as soon as it is over, so a command that was stopped goes on where it was.
    """
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.quality.{folder.name}")
    parser.add_argument("--slow", action="store_true", help="also the losses that look at every pair")
    parser.add_argument("--only", nargs="+", default=None, metavar="METHOD", help="only these methods, by name")
    parser.add_argument("--scorers", nargs="+", default=None, metavar="SCORER", help="only these scorers, by name")
    parser.add_argument("--settings", type=int, default=None, metavar="N", help="only the first N settings")
    parser.add_argument("--minutes", type=float, default=None, help="begin no further run after so long")
    parser.add_argument("--lists", type=Path, default=Path("build", folder.name), help="for the values of single lists")
    parser.add_argument("--fresh", action="store_true", help="forget the runs that are already there")
    given = parser.parse_args()
    results = Results(folder / "results.csv", given.lists, plan.metrics, fresh=given.fresh)
    started = time.perf_counter()

    def wanted(key: Key) -> bool:
        late = given.minutes is not None and time.perf_counter() - started > 60 * given.minutes
        named = given.only is None or key.method in given.only
        return key not in results and not late and named and (given.scorers is None or key.scorer in given.scorers)

    def run(key: Key, method: Method | None) -> None:
        if not wanted(key):
            return
        figures, lists = plan.run(key, method)
        results.add(key, figures, lists)
        shown = "  ".join(f"{name} {value:.4f}" for name, value in figures.items() if name != "seconds")
        setting = f"{key.rate:g}, {key.decay:g}, seed {key.seed}, {key.fitted}"
        print(f"{key.scorer:<21} {key.method:<20} {setting:<26} {shown}  {figures['seconds']:.0f} s", flush=True)

    for key, method in plan.first_runs(slow=given.slow, settings=given.settings):
        run(key, method)
    methods = {method.name: method for method in plan.methods}
    for seed in plan.seeds:
        for row in plan.rows:
            for best in results.tried(*row)[:1]:
                if best.rate or seed == plan.seeds[0]:
                    run(replace(best, seed=seed, fitted="all"), methods.get(best.method))
    text = write(plan, results)
    (folder / "RESULTS.md").write_text(text)
    print(text)
