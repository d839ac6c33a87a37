"""Which loss ranks frequent and rare classes best? `python -m benchmarks.quality.cifar10lt [full] [--minutes M]`.

Needs `cifar10-jpg` under RANKWISE_DATA and the extras `train` and `vision`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from benchmarks.quality.cifar10lt.runs import METRICS, runner
from benchmarks.quality.images.command import run_plans
from benchmarks.quality.images.plan import Options, Plan, Row

LOGITS: Options = {"tau": 1.0, "recall_floor": 1 / 3}


def row(name: str, loss: str, tries: dict[str, Options], *, ours: bool = False) -> Row:
    return Row(name, "alone", loss, tries, ours)


def both_ways(options: Options) -> dict[str, Options]:
    """With batches drawn like the data, and with as many images of every class."""
    return {"random batches": {**options, "balanced": False}, "balanced batches": dict(options)}


ROWS = (
    row("SOPRC", "soprc", {"prior .5": {**LOGITS, "prior": 0.5}, "prior .1": {**LOGITS, "prior": 0.1}}, ours=True),
    row("softmax cross entropy", "softmax", both_ways({"lists": "rows"})),
    row("cross entropy", "cross-entropy", both_ways({})),
    row(
        "SOPRC + cross entropy",
        "soprc",
        {
            f"prior {prior:g}": {**LOGITS, "prior": prior, "add": [{"name": "cross-entropy", "lists": "columns"}]}
            for prior in (0.5, 0.1)
        },
        ours=True,
    ),
    row(
        "stable AP",
        "stable-ap",
        {"rho 1, tau 1": {"rho": 1.0, "tau": 1.0}, "sigmoid": {"rho": "batch", "outer": "batch", "link": "sigmoid"}},
        ours=True,
    ),
    row(
        "balanced cross entropy",
        "balanced-cross-entropy",
        {"beta .99": {"beta": 0.99, "balanced": False}, "beta 1": {"beta": 1.0, "balanced": False}},
    ),
    row("focal", "focal", both_ways({"gamma": 2.0, "alpha": 0.5})),
    row("LDAM", "ldam", both_ways({"scale": 10.0})),
    row("SOAP", "soap", {"margin 1": {"margin": 1.0}, "margin .5": {"margin": 0.5}}),
    row("Smooth-AP", "smooth-ap", {"1": {"temperature": 1.0}, ".2": {"temperature": 0.2}}),
    row(
        "cross entropy, then SOPRC",
        "soprc",
        {f"prior {prior:g}": {**LOGITS, "prior": prior, "first": "cross-entropy"} for prior in (0.5, 0.1)},
        ours=True,
    ),
)


def about(size: int, steps: int) -> str:
    return (
        f"`python -m benchmarks.quality.cifar10lt`: CIFAR-10, {size} x {size} pixels, with a long tail: 4,900 "
        "images of the first class to 50 of the last. 100 images of each class, which the tail leaves out, are for "
        "choices; the 10,000 test images are as they are. ap: the mean over the ten classes of the average "
        f"precision of finding its images among all. The small network, {steps} steps of 120 images (12 of every "
        "class where batches are balanced, which they are for losses over lists), shifted and mirrored, AdamW at "
        ".003, decay .05, 30 steps of warm-up and a cosine. Every loss has two settings, the better on validation "
        "(half the steps, seed 0) is taken."
    )


PLAN = Plan(
    about(16, 600),
    rows=ROWS,
    run=runner(16),
    metrics=METRICS,
    steps=600,
    choice_steps=300,
    seeds=(0, 1, 2),
    variant="alone",
    unit="classes",
)
FULL = replace(PLAN, about=about(32, 2000), run=runner(32), steps=2000, choice_steps=1000)
QUICK = replace(
    PLAN,
    rows=tuple(replace(row, tries=dict([next(iter(row.tries.items()))])) for row in ROWS[:3]),
    steps=60,
    seeds=(0,),
)

if __name__ == "__main__":
    run_plans({"table": PLAN, "full": FULL}, QUICK, Path(__file__).parent)
