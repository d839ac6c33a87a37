"""Everything that keeps a state, by name, and what its next steps give: plain numbers, the same in any process."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

import torch
from torch import nn

from rankwise import metrics
from rankwise.estimators import IdTable, MeanTracker, PairAverages, QuantileTracker, RecentRows, ThresholdTracker
from rankwise.losses import (
    LOSSES,
    AUPRCLoss,
    EmbeddingLoss,
    GroupPrior,
    LateMemoryLoss,
    ListStatistics,
    ListwiseCELoss,
    NDCGLoss,
    PriorSchedule,
    SemiVarianceLoss,
    StableAPLoss,
    SumLoss,
    SwitchLoss,
    TopKNDCGLoss,
)
from rankwise.losses.baselines import ALRPLoss, LambdaLoss
from rankwise.losses.baselines.metric_learning import LateMemoryPairs, triplet
from rankwise.metrics import METRICS, create_metric
from rankwise.samplers import create_sampler
from rankwise.samplers.queries import HistoryBatchSampler

STATISTICS = ListStatistics(torch.arange(4).repeat(30 * 15), torch.arange(30).repeat_interleave(60))


def squares(grades: torch.Tensor) -> torch.Tensor:
    """A gain of one's own."""
    return grades.square()


OVER_LISTS: dict[str, Callable[[], nn.Module]] = {
    **{record.name: record.build for record in LOSSES if record.inputs == "scores"},
    "sampled song": lambda: NDCGLoss(STATISTICS),
    "sampled k-song": lambda: TopKNDCGLoss(4, STATISTICS),
    "sampled k-song, full": lambda: TopKNDCGLoss(4, STATISTICS, selector_gradient="full"),
    "sampled solc": lambda: ListwiseCELoss(STATISTICS),
    "sampled song, own gain": lambda: NDCGLoss(STATISTICS, gain=squares),
    "lambdaloss, own gain": lambda: LambdaLoss(gain=squares),
    "switch": lambda: SwitchLoss(ListwiseCELoss(STATISTICS), NDCGLoss(STATISTICS), after=4),
    "schedule": lambda: AUPRCLoss(PriorSchedule(0.5, 0.1, steps=9)),
    "prior of groups": lambda: AUPRCLoss(GroupPrior(torch.linspace(0.1, 0.5, 30))),
    "combined": lambda: SumLoss(AUPRCLoss(), SemiVarianceLoss(3, 15)),
    "stable ap, h of the mean": lambda: StableAPLoss("batch", outer="batch", update_rate=0.2),
}
OVER_VECTORS: dict[str, Callable[[], nn.Module]] = {
    **{record.name: record.build for record in LOSSES if record.inputs == "embeddings"},
    "embedding": lambda: EmbeddingLoss(AUPRCLoss()),
    "late memory": lambda: LateMemoryLoss(AUPRCLoss(), memory=30, after=2),
    "late pairs": lambda: LateMemoryPairs(triplet().loss, memory=30, after=2),
}


def call_loss(name: str, loss: nn.Module, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The scores (or vectors) and the value of a batch of lists seen before and new ones, far from [-1, 1]."""
    generator = torch.Generator().manual_seed(step)
    wanted = not torch.is_inference_mode_enabled()
    if name in OVER_VECTORS:
        vectors = torch.randn(8, 4, generator=generator).requires_grad_(wanted)
        return vectors, loss(vectors, torch.tensor([0, 0, 1, 1, 2, 2, 3, 3]))
    scores = (4 * torch.randn(3, 12, generator=generator)).requires_grad_(wanted)
    labels = (torch.arange(12) % 4).clamp_max(1).repeat(3, 1)
    if name == "alrp":
        return scores, loss(scores, labels, torch.full((3, 12), 0.25))
    ids = (torch.arange(36).view(3, 12) + 20 * step) % 500
    return scores, loss(scores, labels, query_ids=(torch.arange(3) * 7 + step) % 30, sample_ids=ids)


def step_loss(name: str, loss: nn.Module, step: int) -> Any:
    scores, value = call_loss(name, loss, step)
    return value.item(), torch.autograd.grad(value, scores)[0].tolist()


def step_estimator(name: str, estimator: Any, step: int) -> Any:
    generator = torch.Generator().manual_seed(step)
    ids = torch.randint(-5, 5 + 3 * step, (20,), generator=generator)
    observed = torch.randn(20, 4, generator=generator)
    present, share = observed[:, 0] > -1, torch.full((20, 4), 0.25)
    if isinstance(estimator, IdTable):
        return estimator.update(ids, observed[:, :1], 0.3).tolist()
    if isinstance(estimator, PairAverages):
        return estimator(torch.stack([ids, ids.flip(0)], 1), observed[:, 0]).tolist()
    if isinstance(estimator, ThresholdTracker):
        return [part.tolist() for part in estimator(observed, share, torch.full((20,), 9), ids)]
    if isinstance(estimator, RecentRows):
        estimator.add(observed, ids)
        return len(estimator)
    if isinstance(estimator, QuantileTracker):
        return estimator(observed.sort(1).values, present, ids).tolist()
    return estimator(observed[:, 0], present, ids, observed[:, 1] if step % 2 else None).tolist()


def step_metric(name: str, metric: Any, step: int) -> Any:
    generator = torch.Generator().manual_seed(step)
    scores = torch.randn(3, 9, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 2, (3, 9), generator=generator)
    if isinstance(metric, metrics.Metric):
        return metrics.evaluate(scores, labels, metric, bootstrap=0).means[metric.name]
    metric.update(scores, labels, query_ids=torch.arange(3) + step // 2, sample_ids=torch.arange(27).view(3, 9))
    return metric.compute().item()


LOSS_BUILDS = {**OVER_LISTS, **OVER_VECTORS, "alrp": ALRPLoss}
ESTIMATOR_BUILDS: dict[str, Callable[[], nn.Module]] = {
    "table": lambda: IdTable(1),
    "pairs": PairAverages,
    "pairs of logarithms": lambda: PairAverages(space="log"),
    "mean": lambda: MeanTracker(0.2),
    "quantiles": lambda: QuantileTracker(4, 0.2),
    "threshold": lambda: ThresholdTracker(2),
    "recent": lambda: RecentRows(90),
}
CLASS_BUILDS: dict[str, Callable[[], Any]] = {
    "AveragePrecision": metrics.AveragePrecision,
    "NDCG": lambda: metrics.NDCG(5),
    "NDCG, own gain": lambda: metrics.NDCG(gain=squares),
    "PAp": lambda: metrics.PAp(3),
    "Precision": lambda: metrics.Precision(3),
    "Recall": lambda: metrics.Recall(3),
    "HitRate": lambda: metrics.HitRate(3),
    "ReciprocalRank": metrics.ReciprocalRank,
    "AUROC": metrics.AUROC,
    "PartialAUROC": metrics.PartialAUROC,
}
METRIC_BUILDS: dict[str, Callable[[], Any]] = {
    **{record.name: lambda name=record.name: create_metric(name) for record in METRICS},  # type: ignore[misc]
    "ndcg@5 of an own gain": lambda: create_metric("ndcg@5", gain=squares),
}
SAMPLER_BUILDS: dict[str, Callable[[], Any]] = {
    "shuffled": lambda: create_sampler("shuffled", torch.zeros(60), batch_size=7),
    "binary": lambda: create_sampler("binary", torch.arange(60) % 6 == 0, positives=2, negatives=6),
    "classes": lambda: create_sampler("classes", torch.arange(60) % 9, classes=3, samples_per_class=2),
    "queries": lambda: create_sampler(
        "queries", torch.arange(60) % 3, query_ids=torch.arange(60) // 10, queries=2, relevant=2, irrelevant=2
    ),
    "histories": lambda: HistoryBatchSampler(
        torch.arange(60) // 6, torch.arange(60) % 11, items=20, users=3, relevant=2, irrelevant=3
    ),
}

Step = Callable[[str, Any, int], Any]
KINDS: dict[str, tuple[dict[str, Callable[[], Any]], Step | None]] = {
    "loss": (LOSS_BUILDS, step_loss),
    "estimator": (ESTIMATOR_BUILDS, step_estimator),
    "class of torchmetrics": (CLASS_BUILDS, step_metric),
    "metric": (METRIC_BUILDS, step_metric),
    "sampler": (SAMPLER_BUILDS, None),
}


def take_steps(kind: str, name: str, thing: Any, steps: Iterable[int]) -> list[Any]:
    """What each step gives, and the state after the last."""
    step = KINDS[kind][1]
    if step is None:
        return batches(thing, len(list(steps)))
    found = [step(name, thing, number) for number in steps]
    state = thing.state_dict() if isinstance(thing, nn.Module) and kind != "class of torchmetrics" else {}
    return [*found, {key: value.tolist() for key, value in state.items()}]


def batches(sampler: Any, count: int) -> list[list[int]]:
    """So many batches, over the ends of epochs; the last pass is left where it is."""
    found: list[list[int]] = []
    while len(found) < count:
        found += islice(sampler, count - len(found))
    return found


def take_steps_elsewhere(sent: Any, steps: list[int], results: Any) -> None:
    """What `take_steps` gives of things that were sent to this process."""
    results.put({(kind, name): take_steps(kind, name, thing, steps) for (kind, name), thing in sent.get().items()})
