"""Measure parts of the papers' methods: `python -m benchmarks.quality.papers [--only omniglot] [--minutes M]`.

Equation 6 and feature mixup of stable AP, the prior of SOPRC, the selectors and the threshold of K-SONG: three seeds
each, the same number of steps, nothing chosen by the figures. Needs `omniglot`, `cifar10-jpg` and `letor-mq2008` under
RANKWISE_DATA and the extra `train`. Writes a CSV file and a page for each data set beside this file; a run that is in
the CSV file is not made again.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from benchmarks.quality.cifar10lt.__main__ import LOGITS
from benchmarks.quality.cifar10lt.runs import METRICS as CIFAR_METRICS
from benchmarks.quality.cifar10lt.runs import runner
from benchmarks.quality.images.plan import Options, Plan, Row, Trial
from benchmarks.quality.images.results import Results
from benchmarks.quality.images.table import write_differences, write_figures
from benchmarks.quality.omniglot.__main__ import FLOOR, SCHEDULE
from benchmarks.quality.omniglot.runs import METRICS as OMNIGLOT_METRICS
from benchmarks.quality.omniglot.runs import run_omniglot
from benchmarks.quality.papers.mq2008 import METRICS as MQ2008_METRICS
from benchmarks.quality.papers.mq2008 import run_mq2008

SEEDS = (0, 1, 2)
TO_DATA: Options = {"start": 0.5, "end": "data"}


@dataclass(frozen=True)
class Comparison:
    """The runs of one data set, and the pairs of rows whose differences are of interest, the second subtracted."""

    plan: Plan
    pairs: tuple[tuple[Row, Row], ...]


def row(name: str, variant: str, loss: str, options: Options) -> Row:
    return Row(name, variant, loss, {"fixed": options}, ours=True)


def against(first: Row, others: Sequence[Row]) -> tuple[tuple[Row, Row], ...]:
    return tuple((other, first) for other in others)


def compare_omniglot() -> Comparison:
    moving: Options = {"rho": 0.3, "tau": 0.2}
    variants = ("plain", "equation 6", "feature mixup", "feature mixup and equation 6")
    stable = [row("stable AP", variant, "stable-ap", moving) for variant in variants]
    priors = {"prior .1": 0.1, "prior data": "data", "prior .5 to data": TO_DATA, "prior .5 to .02": SCHEDULE}
    soprc = [row(f"SOPRC, {name}", "plain", "soprc", {"prior": prior, **FLOOR}) for name, prior in priors.items()]
    plan = Plan(
        "Omniglot: 850 characters to learn from, 659 others to be found among each other. The small network, 300 steps "
        "of 28 characters x 4, AdamW at .006. stable AP: rho .3, tau .2, and the paper's rate of .01 for the running "
        "mean. SOPRC: recall floor 1/3. The share of a character in the data is .0011 on average.",
        rows=(*stable, *soprc),
        run=run_omniglot,
        metrics=OMNIGLOT_METRICS,
        steps=300,
        choice_steps=300,
        seeds=SEEDS,
        variant="plain",
        unit="characters",
    )
    return Comparison(plan, (*against(stable[0], stable[1:]), (stable[3], stable[2]), *against(soprc[0], soprc[1:])))


def compare_cifar10lt() -> Comparison:
    sigmoid: Options = {"rho": "batch", "outer": "batch", "link": "sigmoid"}
    stable = [
        row("stable AP", "plain", "stable-ap", sigmoid),
        row("stable AP", "equation 6", "stable-ap", {**sigmoid, "previous_weights": True}),
    ]
    priors = {"prior .1": 0.1, "prior data": "data", "prior .5 to data": TO_DATA}
    soprc = [row(f"SOPRC, {name}", "plain", "soprc", {**LOGITS, "prior": prior}) for name, prior in priors.items()]
    plan = Plan(
        "CIFAR-10, 16 x 16 pixels, 4,900 images of the first class to 50 of the last. The small network, 400 steps of "
        "12 images of every class, AdamW at .003. stable AP with rho and outer of the batch and the link sigmoid. The "
        "share of a class in the data is .40 to .004, in a batch .1.",
        rows=(*stable, *soprc),
        run=runner(16),
        metrics=CIFAR_METRICS,
        steps=400,
        choice_steps=400,
        seeds=SEEDS,
        variant="plain",
        unit="classes",
    )
    return Comparison(plan, (*against(stable[0], stable[1:]), *against(soprc[0], soprc[1:])))


def compare_mq2008() -> Comparison:
    rows: dict[str, list[Row]] = {}
    for variant in ("samples of 2 + 3", "whole lists"):
        selectors = [
            row(f"K-SONG 5, {selector}", variant, "k-song", {"k": 5, "selector": selector})
            for selector in ("sigmoid", "squared-hinge", "rank")
        ]
        rows[variant] = [*selectors, row("SONG", variant, "song", {})]
    plain = [
        row(
            f"K-SONG 5, {selector}, plain step {size:g}",
            "samples of 2 + 3",
            "k-song",
            {"k": 5, "selector": selector, "threshold_unit": "score", "threshold_step": size},
        )
        for selector in ("sigmoid", "squared-hinge")
        for size in (0.25, 0.01)
    ]
    sampled, whole = rows.values()
    plan = Plan(
        "MQ2008, its five folds: learned from the training sections, judged on the test sections. One hidden layer of "
        "256, 120 steps of 32 queries, AdamW at .003. Samples: 2 relevant and 3 irrelevant documents of a list in a "
        "batch, so that lambda is remembered; its step is .25 in units of the spread of the scores, or plain, in "
        "scores. Of whole lists lambda is exact.",
        rows=(*sampled, *plain, *whole),
        run=run_mq2008,
        metrics=MQ2008_METRICS,
        steps=120,
        choice_steps=120,
        seeds=SEEDS,
        variant="plain",
        unit="queries",
    )
    steps = ((plain[0], sampled[0]), (plain[1], sampled[0]), (plain[2], sampled[1]), (plain[3], sampled[1]))
    return Comparison(plan, (*against(sampled[0], sampled[1:]), *steps, *against(whole[0], whole[1:])))


COMPARISONS = {"mq2008": compare_mq2008, "omniglot": compare_omniglot, "cifar10lt": compare_cifar10lt}


def run(name: str, folder: Path, lists: Path, *, stop_at: float) -> None:
    """Make the missing runs of a comparison until `stop_at` and write its page into `folder`."""
    comparison = COMPARISONS[name]()
    plan = comparison.plan
    results = Results(folder / f"{name}.csv", lists / name, plan.metrics)
    for seed in plan.seeds:
        for each in plan.rows:
            trial = Trial(each.name, each.variant, "fixed", seed, plan.steps, "test")
            if trial in results or time.perf_counter() > stop_at:
                continue
            begun = time.process_time()
            outcome = plan.run(each, each.tries["fixed"], trial)
            seconds = {"seconds": time.process_time() - begun}
            results.add(trial, replace(outcome, figures={**outcome.figures, **seconds}))
            shown = "  ".join(f"{key} {value:.4f}" for key, value in outcome.figures.items())
            print(f"{each.title:<56} seed {seed} {shown}  {seconds['seconds']:.0f} s", flush=True)
    lines = [plan.about, "", *write_figures(plan, results), ""]
    lines += write_differences(plan, results, "Differences", comparison.pairs, both=True)
    (folder / f"{name}.md").write_text("\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", nargs="+", choices=list(COMPARISONS), default=list(COMPARISONS), help="data sets")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no further run after so long")
    parser.add_argument("--lists", type=Path, default=Path("build", "papers"), help="for the values of single lists")
    given = parser.parse_args()
    torch.set_num_threads(1)
    stop_at = time.perf_counter() + 60 * given.minutes
    for name in given.only:
        run(name, Path(__file__).parent, given.lists, stop_at=stop_at)


if __name__ == "__main__":
    main()
