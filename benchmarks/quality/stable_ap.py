"""Which options should stable AP use? `python -m benchmarks.quality.stable_ap [--seeds N] [--tasks digits ...]`.

Two tasks, one option changed at a time from the defaults; the learning rate is chosen on validation for each seed, and
the table shows that validation figure: no option was chosen with the test part in view. A second table shows the test
figures of the defaults beside those of SOPRC and cross entropy, all with the same seeds, steps and learning rates.

- digits: retrieval, `load_digit_retrieval`, mAP, batches of 10 classes x 6.
- mammography: 11,183 rows, 260 positive (the folder of real data is named by RANKWISE_DATA), AP, half of the rows to
  learn from, a quarter for choices, a quarter for the test; batches of 16 positives and 240 negatives.

Prints Markdown and saves it beside this file.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rankwise.data import load_digit_retrieval
from rankwise.data.parts import Split, cut_by_class
from rankwise.tasks import RetrievalTask, TabularTask, Task
from rankwise.training.trials import Contender, Outcome, compete, summarise

STEPS = {"digits": 100, "mammography": 200}
RATES = (0.01, 0.03, 0.1)
METRIC = {"digits": "map", "mammography": "ap"}
RIVALS = {"digits": ("soprc", "classifier"), "mammography": ("soprc", "cross-entropy")}

VARIANTS: dict[str, dict[str, Any]] = {
    "the defaults": {},
    'rho="batch"': {"rho": "batch"},
    "rho=3": {"rho": 3.0},
    "rho=1": {"rho": 1.0},
    "rho=0.3": {"rho": 0.3},
    "rho=0.1": {"rho": 0.1},
    'rho="batch", outer="batch"': {"rho": "batch", "outer": "batch"},
    'rho=1, outer="batch"': {"rho": 1.0, "outer": "batch"},
    'rho=0.1, outer="batch"': {"rho": 0.1, "outer": "batch"},
    "tau=0.03": {"tau": 0.03},
    "tau=0.3": {"tau": 0.3},
    "eps=0.01": {"eps": 0.01},
    "eps=0.5": {"eps": 0.5},
    "t=0 (no weights)": {"t": 0.0},
    "t=1": {"t": 1.0},
    "t=3": {"t": 3.0},
    "a=1": {"a": 1.0},
    "update_rate=1 (mean of the batch)": {"update_rate": 1.0},
    'weighting="rank"': {"weighting": "rank"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tasks", nargs="+", choices=list(STEPS), default=list(STEPS))
    asked = parser.parse_args()
    seeds, tasks = range(asked.seeds), asked.tasks
    lines: list[str] = []

    def say(line: str) -> None:
        lines.append(line)
        print(line, flush=True)

    steps = ", ".join(f"{STEPS[task]} steps on {task}" for task in tasks)
    say(
        f"`python -m benchmarks.quality.stable_ap`: mean +- std of {len(seeds)} seeds, {steps}, AdamW, learning rate "
        f"chosen on validation from {RATES}."
    )
    say("\nValidation, one option changed from the defaults:\n")
    say("| `StableAPLoss` | " + " | ".join(f"{task}, {METRIC[task]}" for task in tasks) + " |")
    say("| --- |" + " --: |" * len(tasks))
    for name, options in VARIANTS.items():
        say(f"| {name} | " + " | ".join(_validation(task, options, seeds) for task in tasks) + " |")
    say("\nTest:\n")
    say("| loss | " + " | ".join(f"{task}, {METRIC[task]}" for task in tasks) + " |")
    say("| --- |" + " --: |" * len(tasks))
    for name, place in (("stable AP, the defaults", None), ("SOPRC, its defaults", 0), ("cross entropy", 1)):
        cells = []
        for task in tasks:
            found = _run(task, "stable-ap" if place is None else RIVALS[task][place], {}, seeds).summary(METRIC[task])
            cells.append(f"{found.mean:.3f} +- {found.std:.3f}")
        say(f"| {name} | " + " | ".join(cells) + " |")
    Path(__file__).with_suffix(".md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _run(task: str, loss: str, options: Mapping[str, Any], seeds: Sequence[int]) -> Outcome:
    return compete(Contender(loss, TASKS[task](loss, options), STEPS[task]), seeds=seeds, rates=RATES)


def _validation(task: str, options: Mapping[str, Any], seeds: Sequence[int]) -> str:
    if task == "mammography" and "outer" in options:
        return "one list"
    trials = _run(task, "stable-ap", options, seeds).trials
    found = summarise([trial.history.curve(METRIC[task])[-1] for trial in trials])
    return f"{found.mean:.3f} +- {found.std:.3f}"


def _digits(loss: str, options: Mapping[str, Any]) -> Callable[[int], Task]:
    return lambda seed: RetrievalTask(load_digit_retrieval(seed), loss=loss, loss_options=options)


def _mammography(loss: str, options: Mapping[str, Any]) -> Callable[[int], Task]:
    return lambda seed: TabularTask(
        _load_mammography(seed), loss=loss, loss_options=options, hidden=(64, 64), batch_size=256, positives=16
    )


TASKS = {"digits": _digits, "mammography": _mammography}


def _load_mammography(seed: int) -> Split:
    named = os.environ.get("RANKWISE_DATA")
    root = Path(named) if named else Path(__file__).resolve().parents[3] / "shared" / "data"
    path = root / "mammography" / "mammography.csv"
    if not path.exists():
        raise SystemExit(f"no {path}: set RANKWISE_DATA to the folder that holds mammography/, or use --tasks digits")
    rows = np.genfromtxt(path, delimiter=",", dtype=str)
    features = torch.from_numpy(rows[:, :-1].astype(np.float32))
    # The rarer class is the positive one; the files in circulation write it as 1 or '1'.
    names, labels, counts = np.unique(rows[:, -1], return_inverse=True, return_counts=True)
    assert len(names) == 2
    labels = torch.from_numpy((labels == counts.argmin()).astype(np.int64))
    many, few = int((labels == 0).sum()), int(labels.sum())
    split = cut_by_class(features, labels, train=[many // 2, few // 2], validation=[many // 4, few // 4], seed=seed)
    mean, std = split.train.features.mean(0), split.train.features.std(0)
    for part in (split.train, split.validation, split.test):
        part.features.sub_(mean).div_(std)
    return split


if __name__ == "__main__":
    main()
