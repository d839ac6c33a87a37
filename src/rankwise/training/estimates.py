"""Compare the running estimates of a loss with the exact values that they estimate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from lightning_fabric.utilities import move_data_to_device
from torch import Tensor, nn

from rankwise.data import Batch
from rankwise.distributed import world_size
from rankwise.estimators import MeanTracker, PairAverages, QuantileTracker, ThresholdTracker
from rankwise.losses import EmbeddingLoss, LateMemoryLoss
from rankwise.training.trainable import Trainable

__all__ = ["EstimateCheck", "check_estimates"]

# The letters of the papers, by which the docs know them.
NAMES: dict[type[nn.Module], str] = {
    QuantileTracker: "V",
    MeanTracker: "mu",
    PairAverages: "u",
    ThresholdTracker: "lambda",
}
PAIRS = 300


class EstimateCheck(NamedTuple):
    """Numbers that a loss remembers of some lists, and what they are in the data under the same weights.

    Attributes:
        name: "V" (quantiles of the positives' scores), "mu" (their mean), "u" (smooth ranks of relevant items) or
            "lambda" (the score that separates the first k); a second memory of one kind has a 2 behind it.
        remembered, true: the numbers, at most 300 of them, evenly spread.
        mean_remembered, mean_true: their means, over all that were checked.
        error: root mean square of remembered - true, over all that were checked.
        spread: standard deviation of the true numbers, to compare the error with.
        known: how many of the `checked` lists (or items, for "u") are remembered at all.
    """

    name: str
    remembered: list[float]
    true: list[float]
    mean_remembered: float
    mean_true: float
    error: float
    spread: float
    known: int
    checked: int

    def plain(self) -> dict[str, Any]:
        """Return the check as plain values for a checkpoint."""
        return self._asdict()


def check_estimates(problem: Trainable, model: nn.Module, loss: nn.Module, batch: Batch) -> list[EstimateCheck]:
    """Compare the running estimates of a loss with their exact values on complete lists.

    Nothing changes by it: model and loss run in evaluation mode, and the random state is restored. A loss without
    state has nothing to compare, and with several processes nothing is compared.

    Args:
        problem: whose `training_step` calls the loss.
        model, loss: as they are in the training.
        batch: complete lists, see `Trainable.probe_batch`.

    Example:
        >>> from rankwise.data import TableSchema, load_eights
        >>> from rankwise.problems import Tabular
        >>> problem, train = Tabular(loss="stable-ap"), load_eights(seed=0).train
        >>> schema = TableSchema.of(train)
        >>> model, loss = problem.build_model(schema), problem.build_loss(schema, train, steps=1)
        >>> check_estimates(problem, model, loss, problem.probe_batch(train))[0].known  # no state yet
        0
    """
    if isinstance(loss, LateMemoryLoss):  # old vectors are no part of the truth
        loss = EmbeddingLoss(loss.loss, loss.similarity)
    trackers = [each for each in loss.modules() if type(each) in NAMES]
    if not trackers or world_size() > 1:
        return []
    seen: list[list[_Numbers]] = [[] for _ in trackers]
    hooks = [
        tracker.register_forward_pre_hook(_watch(into), with_kwargs=True)
        for tracker, into in zip(trackers, seen, strict=True)
    ]
    modes = [(each, each.training) for each in (model, loss)]
    weight = next(model.parameters())
    try:
        for each, _ in modes:
            each.eval()
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            batch = move_data_to_device(batch, weight.device)
            if batch.features.is_floating_point():
                batch = batch._replace(features=batch.features.to(weight.dtype))
            problem.training_step(model, loss, batch)
    finally:
        for hook in hooks:
            hook.remove()
        for each, training in modes:
            each.train(training)
    checks: list[EstimateCheck] = []
    for tracker, numbers in zip(trackers, seen, strict=True):
        if numbers:
            name = NAMES[type(tracker)]
            same = sum(check.name.partition(" ")[0] == name for check in checks)
            checks.append(_compare(name if not same else f"{name} {same + 1}", numbers))
    return checks


# Of some lists: what is remembered and what is true, one row each, and which of them are known.
_Numbers = tuple[Tensor, Tensor, Tensor]
Hook = Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None]


def _watch(into: list[_Numbers]) -> Hook:
    """Return a hook that notes what a tracker is shown of whole lists beside what it remembers; it may be called by
    blocks.
    """

    def seen(tracker: nn.Module, given: tuple[Any, ...], _: dict[str, Any]) -> None:
        if isinstance(tracker, PairAverages):
            ids, observed, *chosen = given
            if chosen and chosen[0] is not None:
                ids, observed = ids[chosen[0]], observed[chosen[0]]
            remembered, known = tracker.table.read(ids)
            into.append((remembered, observed[:, None], known))
        elif isinstance(tracker, ThresholdTracker):
            scores, share, size, ids, *chosen = given
            if ids is not None:
                remembered, known = tracker.table.read(ids)
                truth = tracker(scores, share, size, None, *chosen).value[:, None]
                rows = chosen[0] if chosen and chosen[0] is not None else torch.ones_like(known)
                into.append((remembered[rows, :1], truth[rows], known[rows]))
        elif isinstance(tracker, QuantileTracker | MeanTracker) and given[2] is not None:
            observed, present, ids = given[:3]
            truth, ids = _mean_of_groups(observed.reshape(len(observed), -1)[present], ids[present])
            into.append((tracker.table.read(ids)[0], truth, tracker.table.read(ids)[1]))

    return seen


def _mean_of_groups(observed: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean over the lists of each group, as the memory takes it, and the groups."""
    groups, index, counts = ids.unique(return_inverse=True, return_counts=True)
    total = observed.new_zeros(len(groups), observed.shape[1], dtype=torch.float64)
    return total.index_add_(0, index, observed.double()) / counts[:, None], groups


def _compare(name: str, numbers: list[_Numbers]) -> EstimateCheck:
    remembered, truth, known = (torch.cat([each.double() for each in column]) for column in zip(*numbers, strict=True))
    known = known > 0
    left, right = remembered[known].flatten(), truth[known].flatten()
    if not len(left):
        unknown = float("nan")
        return EstimateCheck(name, [], [], unknown, unknown, unknown, unknown, 0, len(known))
    chosen = torch.linspace(0, len(left) - 1, min(PAIRS, len(left)), dtype=torch.float64).round().long().to(left.device)
    return EstimateCheck(
        name,
        left[chosen].tolist(),
        right[chosen].tolist(),
        float(left.mean()),
        float(right.mean()),
        float((left - right).square().mean().sqrt()),
        float(right.std(correction=0)),
        int(known.sum()),
        len(known),
    )
