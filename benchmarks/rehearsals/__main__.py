"""Rehearse every recipe of the library and write the table, RESULTS.md beside this file.

python -m benchmarks.rehearsals FOLDER
python -m benchmarks.rehearsals FOLDER --table   (of what FOLDER holds)
python -m benchmarks.rehearsals FOLDER --missing (measure only the recipes that are not in the table yet)

Each recipe is a process of its own, one thread, CPU time; its result is kept in FOLDER as JSON and not measured again.
The row of a recipe whose result FOLDER does not hold stays in the table as it is.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rankwise.problems.load import library, load_problem

RESULTS = Path(__file__).with_name("RESULTS.md")
# Steps of networks that take minutes for one; 20 for all others.
STEPS = {"resnet50": 2, "resnet18": 4, "neumf": 5, "xml-cnn": 4, "context-aware": 8}
HEAD = (
    "| recipe | memory, GiB | a step, s | steps | an evaluation, s | training between two, s | the final test, s | "
    "the whole run, h | measured |"
)


def main(folder: Path, arguments: Sequence[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rows = written_rows()
    for name in library():
        path = folder / f"{name}.json"
        wanted = "--table" not in arguments and not ("--missing" in arguments and name in rows)
        if wanted and not path.is_file() and (printed := rehearsed(name)).strip(" {}\n"):
            path.write_text(printed, encoding="utf-8")
        if path.is_file():
            rows[name] = row(name, json.loads(path.read_text(encoding="utf-8"))["rehearsal"])
        write_table(rows)


def written_rows() -> dict[str, str]:
    """Return the lines of the table on disk by recipe."""
    lines = RESULTS.read_text(encoding="utf-8").splitlines() if RESULTS.is_file() else []
    return {line.split("`")[1]: line for line in lines if line.startswith("| `")}


def write_table(rows: Mapping[str, str]) -> None:
    missing = ", ".join(f"`{name}`" for name in library() if name not in rows)
    lines = [HEAD, "|---|" + "--:|" * 7 + "---|", *(rows[name] for name in library() if name in rows)]
    RESULTS.write_text(
        "\n".join([*lines, *(["", f"Not rehearsed yet: {missing}."] if missing else [])]) + "\n", encoding="utf-8"
    )


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
        figure(costs["step_seconds"]),
        f"{costs['steps']:,}",
        figure(costs["evaluation_seconds"]),
        "-" if between is None else figure(between),
        figure(costs["test_seconds"]),
        figure(costs["hours"]),
        costs["made"],
    ]
    return f"| `{name}` | " + " | ".join(cells) + " |"


def figure(value: float) -> str:
    """Return a number with three significant digits."""
    return f"{value:,.0f}" if value >= 999.5 else f"{value:.3g}"


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
