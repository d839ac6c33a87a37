"""Rehearse every recipe of the library and write the table, RESULTS.md beside this file.

python -m benchmarks.rehearsals FOLDER

Each recipe is a process of its own, one thread, CPU time; its result is kept in FOLDER as JSON and not measured again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rankwise.problems.kinds import library
from rankwise.problems.load import load_problem

RESULTS = Path(__file__).with_name("RESULTS.md")
# Steps of networks that take minutes for one; 20 for all others.
STEPS = {"resnet50": 2, "resnet18": 4, "neumf": 5, "xml-cnn": 4, "context-aware": 8}
HEAD = (
    "| recipe | memory, GiB | a step, s | steps | an evaluation, s | training between two, s | the final test, s | "
    "the whole run, h |"
)


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for name in library():
        path = folder / f"{name}.json"
        if not path.is_file() or not path.stat().st_size:
            path.write_text(rehearsed(name))
        text = path.read_text()
        rows.append(row(name, json.loads(text)["rehearsal"]) if text.strip() else f"| `{name}` | - |" + " |" * 6)
        RESULTS.write_text("\n".join([HEAD, "|---|" + "--:|" * 7, *rows]) + "\n", encoding="utf-8")


def rehearsed(name: str) -> str:
    """The JSON that `rankwise rehearse` prints."""
    problem: Any = load_problem(name)
    model = getattr(problem, "model", None)
    steps = STEPS.get(str(getattr(model, "backbone", None) or getattr(model, "name", None)), 20)
    command = [sys.executable, "-m", "rankwise", "rehearse", name, "--json", "--clock", "cpu", "--steps", str(steps)]
    single = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "MKL", "OPENBLAS")}
    return subprocess.run(command, env={**os.environ, **single}, check=False, stdout=subprocess.PIPE, text=True).stdout


def row(name: str, costs: Mapping[str, Any]) -> str:
    """The line of one recipe."""
    between = costs["between_seconds"]
    cells = [
        f"{costs['memory_gib']:.1f}" + (" (extrapolated)" if "extrapolated" in costs["made"] else ""),
        f"{costs['step_seconds']:.3g}",
        f"{costs['steps']:,}",
        f"{costs['evaluation_seconds']:,.3g}"
        if costs["evaluation_seconds"] < 1000
        else f"{costs['evaluation_seconds']:,.0f}",
        "-" if between is None else f"{between:,.0f}",
        f"{costs['test_seconds']:,.0f}",
        f"{costs['hours']:,.2f}" if costs["hours"] < 10 else f"{costs['hours']:,.0f}",
    ]
    return f"| `{name}` | " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
