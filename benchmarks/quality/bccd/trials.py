"""What decides how well blood cells are found? `python -m benchmarks.quality.bccd.trials [NAME ...]`.

Single runs with the first seed, judged on the validation images class by class; the test images are not touched. Every
run is added to `trials.csv` as soon as it is over, one that is already there is not made again. Without names: all.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.quality.bccd.__main__ import FOCAL, SOPRC, STEPS, load_split, make_problem
from benchmarks.quality.grid.plan import Method
from rankwise.data import DetectionSchema
from rankwise.training import fit

FILE = Path(__file__).parent / "trials.csv"


@dataclass(frozen=True)
class Trial:
    """A run: a loss with its learning rate, and what else differs from the benchmark's setting."""

    loss: str
    options: Mapping[str, Any]
    rate: float
    changes: Mapping[str, Any] = field(default_factory=dict)


LOWERED = {"tau": 1.0, "prior": {"start": 0.5, "end": 0.03, "steps": STEPS}}
TRIALS = {
    "focal": Trial("focal", FOCAL, 4e-3),
    "focal, anchors half as wide": Trial("focal", FOCAL, 4e-3, {"model": {"channels": 32, "scale": 2.0}}),
    "SOPRC": Trial("soprc", SOPRC, 2e-3),
    "SOPRC, a list per class": Trial("soprc", SOPRC, 2e-3, {"lists": "classes"}),
    "SOPRC, prior lowered from .5 to .03": Trial("soprc", LOWERED, 2e-3),
    "SOPRC + focal": Trial("soprc", {**SOPRC, "add": [{"name": "focal", **FOCAL}]}, 4e-3),
    "SOPRC, balanced": Trial("soprc", SOPRC, 2e-3, {"lists": "balanced"}),
    "focal, balanced": Trial("focal", FOCAL, 4e-3, {"lists": "balanced"}),
}


def run(trial: Trial) -> dict[str, float]:
    split = load_split("train")
    problem = make_problem(Method("", trial.loss, trial.options), trial.rate, 0.05, **trial.changes)
    model = fit(problem, DetectionSchema.of(split.train), split).model
    means = problem.inspect(model, split.part("validation")).evaluation.means
    return {name: value for name, value in means.items() if name != "ap per image"}


def main() -> None:
    rows = list(csv.DictReader(FILE.open())) if FILE.exists() else []
    known = {row["trial"] for row in rows}
    for name in sys.argv[1:] or TRIALS:
        if name in known:
            continue
        figures = {key: f"{value:.4f}" for key, value in run(TRIALS[name]).items()}
        print(f"{name:<40} {figures}", flush=True)
        rows.append({"trial": name, **figures})
        with FILE.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
