"""Which options should stable AP use? `python -m benchmarks.quality.stable_ap [--seeds N] [--tasks digits ...]`.

One option is changed at a time from BASE; the learning rate is chosen on validation for each seed, and the first table
shows that validation figure: no option was chosen with the test part in view. The second table shows the test figures
of the defaults of the class, beside those of SOPRC and cross entropy, all with the same seeds, steps and rates.

- digits: retrieval, `load_digit_retrieval`, mAP, batches of 10 classes x 6.
- mammography: 11,183 rows, 260 positive (the folder of real data is named by RANKWISE_DATA), AP, half of the rows to
  learn from, a quarter for choices, a quarter for the test; batches of 16 positives and 240 negatives.

Prints Markdown and saves it beside this file, one file per task.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.find import find_data
from rankwise.data import Part, Split, cut_by_class, load_digit_retrieval
from rankwise.problems import Retrieval, Tabular
from rankwise.problems.trials import Contender, Outcome, compete, summarise

STEPS = {"digits": 100, "mammography": 200}
RATES = (0.01, 0.03, 0.1)
METRIC = {"digits": "map", "mammography": "ap"}
RIVALS = {
    "digits": {"SOPRC, its defaults": "soprc", "cross entropy of a classifier": "classifier"},
    "mammography": {"SOPRC, its defaults": "soprc", "cross entropy": "cross-entropy"},
}
# Where a batch is one list, the mean over its lists is that list.
ONE_LIST = ("mammography",)

BASE: dict[str, Any] = {
    "rho": 1.0,
    "outer": "list",
    "tau": 0.1,
    "eps": 0.1,
    "a": 0.1,
    "t": 2.0,
    "update_rate": 0.01,
    "weighting": "mean",
}

VARIANTS: dict[str, dict[str, Any]] = {
    "base": {},
    'rho="batch"': {"rho": "batch"},
    "rho=3": {"rho": 3.0},
    "rho=0.3": {"rho": 0.3},
    "rho=0.1": {"rho": 0.1},
    'rho="batch", outer="batch"': {"rho": "batch", "outer": "batch"},
    'outer="batch"': {"outer": "batch"},
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
    for task in asked.tasks:
        lines: list[str] = []
        for line in _report(task, range(asked.seeds)):
            lines.append(line)
            print(line, flush=True)
        path = Path(__file__).with_name(f"stable_ap_{task}.md")
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _report(task: str, seeds: Sequence[int]) -> Iterator[str]:
    base = ", ".join(f"{name}={value!r}" for name, value in BASE.items())
    yield (
        f"`python -m benchmarks.quality.stable_ap --tasks {task}`: mean +- std of {len(seeds)} seeds, {STEPS[task]} "
        f"steps, AdamW, learning rate chosen on validation from {RATES}. Base: `{base}`."
    )
    yield f"\n| one option changed | {task}, validation {METRIC[task]} |\n| --- | --: |"
    for name, options in VARIANTS.items():
        if task in ONE_LIST and "outer" in options:
            continue
        yield f"| {name} | {_validation(task, options, seeds)} |"
    yield f"\n| loss | {task}, test {METRIC[task]} |\n| --- | --: |"
    for name, loss in (("stable AP, its defaults", "stable-ap"), *RIVALS[task].items()):
        found = _run(task, loss, {}, seeds).summary(METRIC[task])
        yield f"| {name} | {found.mean:.3f} +- {found.std:.3f} |"


def _run(task: str, loss: str, options: Mapping[str, Any], seeds: Sequence[int]) -> Outcome:
    problem, data = PROBLEMS[task]
    chosen = problem.changed(loss={"name": loss, **options})
    return compete(Contender(loss, chosen, data, STEPS[task]), seeds=seeds, rates=RATES)


def _validation(task: str, options: Mapping[str, Any], seeds: Sequence[int]) -> str:
    trials = _run(task, "stable-ap", {**BASE, **options}, seeds).trials
    found = summarise([trial.history.curve(METRIC[task])[-1] for trial in trials])
    return f"{found.mean:.3f} +- {found.std:.3f}"


def _load_mammography(seed: int) -> Split[Part]:
    path = find_data("mammography") / "mammography.csv"
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


# What is trained on each data set, and the split of a seed.
PROBLEMS: dict[str, tuple[Any, Callable[[int], Split[Part]]]] = {
    "digits": (
        Retrieval(
            model={"hidden": (64,), "scaling": "none", "dimensions": 32},
            batches={"classes": 10, "samples_per_class": 6},
        ),
        load_digit_retrieval,
    ),
    "mammography": (
        Tabular(
            model={"scaling": "none", "ensemble": None},
            refit=False,
            optimiser={"weight_decay": 0.0},
            batches={"size": 256, "positives": 16},
            metrics=("ap",),
        ),
        _load_mammography,
    ),
}


if __name__ == "__main__":
    main()
