"""Rehearse every recipe of the library and write the table, RESULTS.md beside this file.

python -m benchmarks.rehearsals FOLDER
python -m benchmarks.rehearsals FOLDER --table   (of what FOLDER holds)

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
    "the whole run, h | measured |"
)


def main(folder: Path, *, measure: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in library():
        path = folder / f"{name}.json"
        if measure and not path.is_file() and (printed := rehearsed(name)).strip(" {}\n"):
            path.write_text(printed, encoding="utf-8")
    measured = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*.json")}
    rows = [row(name, measured[name]["rehearsal"]) for name in library() if name in measured]
    missing = ", ".join(f"`{name}`" for name in library() if name not in measured)
    lines = [HEAD, "|---|" + "--:|" * 7 + "---|", *rows, *(["", f"Not rehearsed yet: {missing}."] if missing else [])]
    RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")


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
        f"{costs['memory_gib']:.1f}",
        f"{costs['step_seconds']:.3g}",
        f"{costs['steps']:,}",
        f"{costs['evaluation_seconds']:,.3g}"
        if costs["evaluation_seconds"] < 1000
        else f"{costs['evaluation_seconds']:,.0f}",
        "-" if between is None else f"{between:,.0f}",
        f"{costs['test_seconds']:,.0f}",
        f"{costs['hours']:,.2f}" if costs["hours"] < 10 else f"{costs['hours']:,.0f}",
        costs["made"],
    ]
    return f"| `{name}` | " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main(Path(sys.argv[1]), measure="--table" not in sys.argv)
