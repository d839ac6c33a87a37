"""One training on CIFAR-10 with a long tail, and the parts of the data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch

from benchmarks.find import find_data
from benchmarks.quality.images.plan import Options, Outcome, Row, Trial
from rankwise.data import ArrayImages, ImagePart, ImageSchema, Split, imbalanced, read_images
from rankwise.losses import ListLoss, SwitchLoss, create_loss
from rankwise.problems import LongTail
from rankwise.training import fit

__all__ = ["METRICS", "runner"]

METRICS = ("ap", "ap head", "ap medium", "ap tail")
RATIO, SEED, HELD_OUT = 100, 0, 100
BATCH, PER_CLASS = 120, 12
KEPT = Path("build", "cifar10lt")
# Options of the training; all others are the loss's.
TRAINING = ("rate", "balanced", "first", "previous_weights")


def runner(size: int) -> Callable[[Row, Options, Trial], Outcome]:
    """Makes runs with images of `size` by `size` pixels."""

    def run(row: Row, options: Options, trial: Trial) -> Outcome:
        loss_options = {name: value for name, value in options.items() if name not in TRAINING}
        split = _parts(size)
        curve_wanted = trial.seed == 0 and trial.part == "test"
        problem = _Problem.model_validate(
            {
                "loss": {"name": row.loss, **_with_steps(loss_options, trial.steps)},
                "batches": {"size": BATCH, "samples_per_class": PER_CLASS if options.get("balanced", True) else None},
                "augmentation": "shift-flip",
                "metrics": ("ap",),
                "first": options.get("first"),
                "gradient": {"previous_weights": options.get("previous_weights", False)},
                "budget": {"steps": trial.steps},
                "optimiser": {"learning_rate": options.get("rate", 0.003), "weight_decay": 0.05},
                "schedule": {"name": "cosine", "warmup": 30},
                "evaluation": {"every": max(1, trial.steps // 6) if curve_wanted else None, "weights": "last"},
            }
        )
        made = fit(problem, ImageSchema.of(split.train), split, seed=trial.seed)
        figures = {"validation": problem.evaluate(made.model, split.part("validation")).means["ap"]}
        if trial.part == "validation":
            return Outcome(figures)
        test = problem.inspect(made.model, split.part("test")).evaluation
        curve = tuple(zip(made.history.steps, made.history.curve("ap"), strict=True))
        return Outcome({**figures, **test.means}, test.per_query["ap"].float(), curve)

    return run


class _Problem(LongTail):
    """With the loss `first` for the first half of the steps, if one is named."""

    first: str | None = None

    def build_loss(self, schema: ImageSchema, train: ImagePart, *, steps: int) -> torch.nn.Module:
        second = super().build_loss(schema, train, steps=steps)
        if self.first is None:
            return second
        assert isinstance(second, ListLoss)
        return SwitchLoss(create_loss(self.first, lists="columns"), second, after=steps // 2)


def _with_steps(options: Mapping[str, Any], steps: int) -> dict[str, Any]:
    """A schedule of the prior takes as long as the training."""
    prior = options.get("prior")
    return {**options, "prior": {**prior, "steps": steps}} if isinstance(prior, Mapping) else dict(options)


@cache
def _parts(size: int) -> Split[ImagePart]:
    """The long tail to learn from; validation images from those it leaves out, as many of each class; the test part."""
    arrays = _arrays()

    def part(name: str) -> ImagePart:
        images = ArrayImages.prepared(arrays[f"{name} images"], channels=3, resize=size, invert=False)
        labels = arrays[f"{name} labels"]
        return ImagePart(images, torch.arange(len(labels)), labels, tuple("0123456789"))

    return Split(part("train"), part("validation"), part("test"))


def _arrays() -> dict[str, torch.Tensor]:
    """Decoded once and kept, because that takes longer than a training."""
    path = KEPT / "images.pt"
    if not path.exists():
        packed = find_data("cifar10-jpg") / "cifar10-images.tar.xz"
        read = {name: ImagePart.of(read_images(packed / name)) for name in ("train", "test")}
        kept = imbalanced(read["train"], RATIO, seed=SEED)
        others = read["train"].take(_not_in(len(read["train"]), kept.rows))
        generator = torch.Generator().manual_seed(SEED)
        chosen = []
        for label in range(10):
            indices = (others.labels == label).nonzero().squeeze(1)
            if len(indices) < HELD_OUT:  # the first class keeps all it has: its share comes out of that
                continue
            chosen.append(indices[torch.randperm(len(indices), generator=generator)[:HELD_OUT]])
        first = (kept.labels == 0).nonzero().squeeze(1)
        held = first[torch.randperm(len(first), generator=generator)[:HELD_OUT]]
        validation = [others.take(torch.cat(chosen)), kept.take(held)]
        parts = {"train": [kept.take(_not_in(len(kept), held))], "validation": validation, "test": [read["test"]]}
        arrays = {}
        for name, pieces in parts.items():
            arrays[f"{name} images"] = torch.cat(
                [torch.stack([piece.source.image(int(row)) for row in piece.rows]) for piece in pieces]
            )
            arrays[f"{name} labels"] = torch.cat([piece.labels for piece in pieces])
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(arrays, path)
    arrays = torch.load(path, weights_only=True)
    return arrays


def _not_in(count: int, rows: torch.Tensor) -> torch.Tensor:
    left = torch.ones(count, dtype=torch.bool)
    left[rows] = False
    return left.nonzero().squeeze(1)
