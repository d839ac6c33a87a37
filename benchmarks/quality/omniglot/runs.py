"""One training on Omniglot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.find import find_data
from benchmarks.quality.images.plan import Options, Outcome, Row, Trial
from rankwise.data import ImagePart, ImageSchema, Split
from rankwise.losses import LOSSES, EmbeddingLoss, SemiVarianceLoss
from rankwise.problems import ImageRetrieval, load_problem
from rankwise.problems.neighbours import CLASSIFIER
from rankwise.training import fit

__all__ = ["ADD_ONS", "METRICS", "AddOns", "run_omniglot"]

METRICS = ("map", "recall@1")
CLASSES, SAMPLES = 28, 4
SEMI_VARIANCE = {"name": "semi-variance", "positive": 3, "negative": 15}


@dataclass(frozen=True)
class AddOns:
    """Additions to a loss: a weight decay, a memory from 70 % of the steps on, semi-variance, feature mixup, and
    scores under the weights before the last step (equation 6 of stable AP)."""

    decay: float
    memory: int
    semi_variance: bool
    mixup: bool = False
    previous_weights: bool = False


ADD_ONS = {
    "plain": AddOns(0.01, 0, False),
    "add-ons": AddOns(0.1, 2048, True),
    "add-ons but semi-variance": AddOns(0.1, 2048, False),
    "decay": AddOns(0.1, 0, False),
    "semi-variance": AddOns(0.01, 0, True),
    "feature mixup": AddOns(0.01, 0, False, mixup=True),
    "equation 6": AddOns(0.01, 0, False, previous_weights=True),
    "feature mixup and equation 6": AddOns(0.01, 0, False, mixup=True, previous_weights=True),
}


def run_omniglot(row: Row, options: Options, trial: Trial) -> Outcome:
    schema, split = _data()
    curve_wanted = trial.seed == 0 and trial.part == "test"  # one curve is enough
    add_ons = ADD_ONS[trial.variant]
    problem = _problem(row.loss, _with_steps(options, trial.steps), add_ons).changed(
        model={"mixup": add_ons.mixup},
        gradient={"previous_weights": add_ons.previous_weights},
        budget={"steps": trial.steps},
        evaluation={"every": max(1, trial.steps // 5) if curve_wanted else None, "weights": "last"},
    )
    run = fit(problem, schema, split, seed=trial.seed)
    figures = {"validation": problem.evaluate(run.model, split.part("validation")).means["map"]}
    if trial.part == "validation":
        return Outcome(figures)
    test = problem.evaluate(run.model, split.part("test"))
    curve = tuple(zip(run.history.steps, run.history.curve("map"), strict=True))
    return Outcome({**figures, **test.means}, _by_class(test.per_query["map"], split.part("test").labels), curve)


@cache
def _data() -> tuple[ImageSchema, Split[ImagePart]]:
    folder = find_data("omniglot")
    paths = [f"data.train={folder / 'images_background.npz'}", f"data.test={folder / 'images_evaluation.npz'}"]
    problem = load_problem("omniglot", paths)
    schema, split = problem.read({})
    return schema, problem.cut(split, 0)


def _problem(loss: str, options: dict[str, Any], add_ons: AddOns) -> ImageRetrieval:
    kind: type[ImageRetrieval] = ImageRetrieval
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
    return kind.model_validate(
        {
            "loss": {"name": loss, **options},
            "batches": {"classes": classes, "samples_per_class": samples},
            "memory": {"size": memory, "after": 0.7} if memory else None,
            "metrics": METRICS,
            "optimiser": {"learning_rate": 0.006, "weight_decay": add_ons.decay},
            "schedule": {"name": "cosine", "warmup": 30},
        }
    )


class _WithSemiVariance(ImageRetrieval):
    """For losses that take vectors by themselves."""

    def build_loss(self, schema: ImageSchema, train: ImagePart, *, steps: int) -> nn.Module:
        weights = {name: value for name, value in SEMI_VARIANCE.items() if name != "name"}
        return _Sum(super().build_loss(schema, train, steps=steps), EmbeddingLoss(SemiVarianceLoss(**weights)))


class _Sum(nn.Module):
    def __init__(self, *losses: nn.Module) -> None:
        super().__init__()
        self.losses = nn.ModuleList(losses)

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return torch.stack([loss(embeddings, labels) for loss in self.losses]).sum()


def _with_steps(options: Options, steps: int) -> dict[str, Any]:
    """A schedule of the prior takes as long as the training."""
    prior = options.get("prior")
    return {**options, "prior": {**prior, "steps": steps}} if isinstance(prior, Mapping) else dict(options)


def _by_class(values: Tensor, labels: Tensor) -> Tensor:
    """Means over the queries of a class: those are alike, so they are no independent evidence."""
    classes, row, counts = labels.unique(return_inverse=True, return_counts=True)
    totals = torch.zeros(len(classes), dtype=torch.float64).index_add_(0, row, values.double())
    return (totals / counts).float()
