"""Which loss finds blood cells best? `python -m benchmarks.quality.bccd [--quick] [--pictures] [--minutes M]`.

Needs `bccd` under RANKWISE_DATA. `--quick` takes a few steps of everything, to see it work, and writes below `build`.
`--pictures` draws three test images as the best of ours and focal loss see them, once both have been run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.find import find_data
from benchmarks.quality.bccd.frames import draw_frames
from benchmarks.quality.grid.command import run_plan
from benchmarks.quality.grid.plan import Figures, Key, Method, Plan
from rankwise.data import DetectionPart, DetectionSchema, Split, read_boxes
from rankwise.problems import Detection
from rankwise.problems.detection.boxes import draw_boxes, true_boxes
from rankwise.training import fit

STEPS, BATCH, WARMUP = 300, 8, 20
HEIGHT, WIDTH = 144, 192
METRICS = ("ap", "ap50", "ap75")
SETTINGS = ((4e-3, 0.05), (2e-3, 0.05))
SEEDS = (0, 1, 2)
BUILT = Path("build", "bccd")
PICTURES = (0, 20, 40)

STABLE_AP, SOPRC, FOCAL = {"rho": 0.03, "tau": 1.0}, {"prior": 0.5, "tau": 1.0}, {"per": "positive"}
BALANCED = ", balanced"
METHODS = (
    Method("stable AP", "stable-ap", STABLE_AP, ours=True),
    Method("stable AP" + BALANCED, "stable-ap", STABLE_AP, ours=True),
    Method("SOPRC", "soprc", SOPRC, ours=True),
    Method("SOPRC" + BALANCED, "soprc", SOPRC, ours=True),
    Method("focal", "focal", FOCAL),
    Method("focal" + BALANCED, "focal", FOCAL),
    Method("AP-loss", "ap-loss"),
    Method("AP-loss" + BALANCED, "ap-loss"),
    Method("aLRP", "alrp"),
)
DRAWN = ("stable AP" + BALANCED, "focal")

ABOUT = (
    "`python -m benchmarks.quality.bccd`: BCCD (205 + 87 + 72 images of blood cells, its own split; red and white "
    f"cells and platelets), at {WIDTH} x {HEIGHT} pixels. A small RetinaNet from random weights, one anchor in a cell, "
    f"ATSS; {STEPS} steps of {BATCH} images, flipped at random, AdamW with {WARMUP} warm-up steps and a cosine "
    "schedule, the same for all. The learning rate is chosen by AP on validation with the first seed; then everything "
    "is fitted again, to training and validation images together, and judged on the test images. AP is COCO's; train "
    "is AP on 72 of the training images. All rank the pairs of an anchor and a class as one list; that, the anchors "
    "and the options of ours were chosen on half of the validation images in runs of 100 steps. Balanced: in that list "
    "every class counts as the root of its positives; chosen in trials with the first seed on all validation images, "
    "see `trials.py` there."
)


@cache
def load_split(fitted: str) -> Split[DetectionPart]:
    """Return the official parts; for "all" the training part holds the validation images as well."""
    read = read_boxes(find_data("bccd") / "BCCD", bad_boxes="skip")
    whole = DetectionPart.of(read, (HEIGHT, WIDTH), resize=HEIGHT, cache=True)
    which = np.array(read.parts)
    learn = ("train", "validation") if fitted == "all" else ("train",)
    parts = (np.flatnonzero(np.isin(which, names)) for names in (learn, ("validation",), ("test",)))
    return Split(*(whole.take(torch.from_numpy(rows)) for rows in parts))


def make_problem(method: Method, rate: float, decay: float, *, steps: int = STEPS, **changes: Any) -> Detection:
    """Return the problem of a method; `changes` are further options."""
    return Detection.model_validate(
        {
            "loss": {"name": method.loss, **method.options},
            "lists": "balanced" if method.name.endswith(BALANCED) else "all",
            "model": {"channels": 32, "scale": 4},
            "augmentation": "flip-both",
            "batches": {"size": BATCH},
            "metrics": METRICS,
            "optimiser": {"learning_rate": rate, "weight_decay": decay},
            "schedule": {"name": "cosine", "warmup": min(WARMUP, steps // 2)},
            "budget": {"steps": steps},
            "evaluation": {"every": None, "weights": "last"},
            **changes,
        }
    )


def run(key: Key, method: Method | None, *, steps: int = STEPS, keep: bool = True) -> tuple[Figures, Tensor | None]:
    assert method is not None
    split = load_split(key.fitted)
    problem = make_problem(method, key.rate, key.decay, steps=steps)
    fitted = fit(problem, DetectionSchema.of(split.train), split, seed=key.seed)
    model = fitted.model
    some = split.train.take(torch.arange(72))
    figures = {"train": problem.evaluate(model, some).means["ap"], "seconds": fitted.history.seconds}
    if key.fitted == "train":
        return {**figures, "validation": problem.evaluate(model, split.part("validation")).means["ap"]}, None
    if keep and key.seed == SEEDS[0]:
        BUILT.mkdir(parents=True, exist_ok=True)
        torch.save(model.state_dict(), _weights(method))
    test = problem.evaluate(model, split.part("test"))
    return {**figures, **test.means}, test.per_query["ap per image"].float()


def _weights(method: Method) -> Path:
    return BUILT / f"{_file_name(method)}.pt"


def _file_name(method: Method) -> str:
    return method.name.replace(",", "").replace(" ", "-")


def draw() -> None:
    """Write SVG files of the same test images with the boxes of two detectors."""
    split = load_split("all")
    test = split.part("test")
    for method in (method for method in METHODS if method.name in DRAWN):
        # Thresholds come from the validation images, which these models have learned from: a picture, not a figure.
        problem = make_problem(method, *SETTINGS[0])
        model = problem.build_model(DetectionSchema.of(test))
        model.load_state_dict(torch.load(_weights(method), weights_only=True))
        thresholds = problem.calibrate(model, split.part("validation"))["thresholds"]
        drawings = draw_boxes(test, problem.predict(model, test), true_boxes(test), thresholds, PICTURES)
        for number, drawing in enumerate(drawings):
            path = BUILT / f"{_file_name(method)}-{number}.svg"
            path.write_text(draw_frames(drawing))
            print(f"{path}: {drawing.caption}")


PLAN = Plan(ABOUT, scorers=("RetinaNet",), methods=METHODS, settings=SETTINGS, seeds=SEEDS, metrics=METRICS, run=run)


def main() -> None:
    options = {name for name in ("--quick", "--pictures") if name in sys.argv}
    sys.argv = [word for word in sys.argv if word not in options]
    if "--pictures" in options:
        draw()
        return
    plan, folder = PLAN, Path(__file__).parent
    if "--quick" in options:
        quick: Callable[..., tuple[Figures, Tensor | None]] = partial(run, steps=4, keep=False)
        plan = replace(PLAN, settings=SETTINGS[:1], seeds=SEEDS[:1], run=quick)
        folder = Path("build", "bccd-quick")
        folder.mkdir(parents=True, exist_ok=True)
        sys.argv += ["--fresh", "--lists", str(folder / "lists")]
    run_plan(plan, folder)


if __name__ == "__main__":
    main()
