"""One training on Omniglot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.find import find_data
from benchmarks.quality.images.plan import Options, Outcome, Row, Trial
from rankwise.losses import LOSSES, EmbeddingLoss, SemiVariance, class_prior
from rankwise.recipes import load_recipe
from rankwise.tasks import ImageRetrievalTask
from rankwise.tasks.retrieval import CLASSIFIER
from rankwise.training import adamw, fit, warmed_up

__all__ = ["ADD_ONS", "METRICS", "AddOns", "run_omniglot"]

METRICS = ("map", "recall@1")
CLASSES, SAMPLES = 28, 4
SEMI_VARIANCE = {"name": "semi-variance", "positive": 3, "negative": 15}


@dataclass(frozen=True)
class AddOns:
    """What is added to a loss: a weight decay, a memory from 70 % of the steps on, semi-variance."""

    decay: float
    memory: int
    semi_variance: bool


ADD_ONS = {
    "plain": AddOns(0.01, 0, False),
    "add-ons": AddOns(0.1, 2048, True),
    "add-ons but semi-variance": AddOns(0.1, 2048, False),
    "decay": AddOns(0.1, 0, False),
    "semi-variance": AddOns(0.01, 0, True),
    "feature mixup": AddOns(0.01, 0, False),
}


def run_omniglot(row: Row, options: Options, trial: Trial) -> Outcome:
    add_ons = ADD_ONS[trial.variant]
    task = _task(row.loss, _with_steps(options, trial.steps), add_ons, trial.steps)
    if trial.variant == "feature mixup":
        task = replace(task, model=replace(task.model, mixup=True))
    first = trial.seed == 0 and trial.part == "test"
    run = fit(
        task,
        steps=trial.steps,
        optimiser=adamw(0.006, weight_decay=add_ons.decay),
        schedule=warmed_up(30),
        eval_every=max(1, trial.steps // 5) if first else None,  # one curve is enough
        seed=trial.seed,
    )
    figures = {"validation": task.evaluate(run.model, "validation")["map"]}
    if trial.part == "validation":
        return Outcome(figures)
    test = task.judge(run.model, "test")
    curve = tuple(zip(run.history.steps, run.history.curve("map"), strict=True))
    return Outcome({**figures, **test.means}, _by_class(test.per_query["map"], task.data.test.labels), curve)


@cache
def _base() -> ImageRetrievalTask:
    folder = find_data("omniglot")
    paths = [f"data.train={folder / 'images_background.npz'}", f"data.test={folder / 'images_evaluation.npz'}"]
    task = load_recipe("omniglot", paths).build_task(0)
    assert isinstance(task, ImageRetrievalTask)
    return replace(task, metrics=METRICS)


def _task(loss: str, options: dict[str, Any], add_ons: AddOns, steps: int) -> ImageRetrievalTask:
    kind: type[ImageRetrievalTask] = ImageRetrievalTask
    memory, classes, samples = add_ons.memory, CLASSES, SAMPLES
    if loss == CLASSIFIER:
        memory = 0  # it compares images with classes, not with images
        # Batches of few classes would teach it that all others have become rare.
        classes, samples = CLASSES * SAMPLES, 1
    elif add_ons.semi_variance:
        if LOSSES.get(loss).inputs == "scores":
            options = {**options, "add": [SEMI_VARIANCE]}
        else:
            kind = _WithSemiVariance
    base = _base()
    return kind(
        base.data,
        loss,
        options,
        base.model,
        classes=classes,
        samples_per_class=samples,
        memory=memory,
        memory_after=round(0.7 * steps),
        metrics=METRICS,
    )


class _WithSemiVariance(ImageRetrievalTask):
    """For losses that take vectors by themselves."""

    def build_loss(self) -> nn.Module:
        weights = {name: value for name, value in SEMI_VARIANCE.items() if name != "name"}
        return _Sum(super().build_loss(), EmbeddingLoss(SemiVariance(**weights)))


class _Sum(nn.Module):
    def __init__(self, *losses: nn.Module) -> None:
        super().__init__()
        self.losses = nn.ModuleList(losses)

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return torch.stack([loss(embeddings, labels) for loss in self.losses]).sum()


def _with_steps(options: Options, steps: int) -> dict[str, Any]:
    """A schedule of the prior takes as long as the training; "data" is the share of each class in the training part."""
    prior = options.get("prior")
    if prior == "data":
        return {**options, "prior": class_prior(_base().data.train.labels)}
    return {**options, "prior": {**prior, "steps": steps}} if isinstance(prior, Mapping) else dict(options)


def _by_class(values: Tensor, labels: Tensor) -> Tensor:
    """Means over the queries of a class: those are alike, so they are no independent evidence."""
    totals = torch.zeros(int(labels.max()) + 1, dtype=torch.float64).index_add_(0, labels, values.double())
    return (totals / torch.bincount(labels)).float()
