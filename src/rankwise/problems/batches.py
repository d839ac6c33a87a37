"""Run a model over a part in batches: loaders, outputs for all rows, and lists that are rows of a matrix of scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from rankwise.data import Batch, Part
from rankwise.data.mapped import FeatureRows
from rankwise.distributed import gather_rows, own_share, world_size
from rankwise.lists import pack
from rankwise.metrics import Evaluation
from rankwise.metrics._evaluate import collect
from rankwise.metrics.metric import Metric, measure_lists
from rankwise.metrics.names import create_metrics
from rankwise.problems.inspection import SeenLists
from rankwise.samplers import SeededBatchSampler, ShuffledBatchSampler

__all__ = [
    "ROWS_AT_ONCE",
    "JudgedRows",
    "as_it_is",
    "batches_of",
    "evaluate_rows",
    "measure_grades",
    "predict_all",
    "predict_lists",
    "predict_rows",
    "show_rows",
    "shuffled_batches",
]

ROWS_AT_ONCE = 8192
# Scores held at once.
_CELLS = 2**22


def batches_of(part: Dataset[Batch], sampler: SeededBatchSampler) -> DataLoader[Batch]:
    """Return the batches of a sampler."""
    # A loader draws a seed for its workers: from a generator of its own, so that it leaves the training's alone.
    return DataLoader(part, batch_sampler=sampler, collate_fn=as_it_is, generator=torch.Generator())


def shuffled_batches(part: Part, batch_size: int, seed: int) -> DataLoader[Batch]:
    """Return full batches in random order, each row at most once per epoch."""
    return batches_of(part, ShuffledBatchSampler(part.labels, batch_size=batch_size, drop_last=True, seed=seed))


def predict_all(model: nn.Module, features: FeatureRows) -> Tensor:
    """Return the output of a model for all rows, in evaluation mode and without a graph; the mode is restored.

    Several processes take a share of the rows each and gather the outputs.
    """
    weight = next(model.parameters(), torch.zeros(()))
    dtype = weight.dtype if features.dtype.is_floating_point else features.dtype
    training = model.training
    model.eval()
    own = own_share(torch.arange(len(features)))
    first, last = (int(own[0]), int(own[-1]) + 1) if len(own) else (0, 0)
    with torch.no_grad():
        blocks = (features[start : min(last, start + ROWS_AT_ONCE)] for start in range(first, last, ROWS_AT_ONCE))
        outputs = [model(block.to(weight.device, dtype)) for block in blocks]
        joined = gather_rows(torch.cat(outputs or [model(features[:0].to(weight.device, dtype))]))
    model.train(training)
    return joined.cpu()


def predict_lists(model: nn.Module, features: FeatureRows, query_ids: Tensor) -> Tensor:
    """Return the scores (N,) of all rows by a model that takes whole lists: `model(features, query_ids)`.

    Several processes take a share of the lists each and gather the scores.
    """
    _, list_of_row, lengths = query_ids.unique(return_inverse=True, return_counts=True)
    by_list = list_of_row.argsort(stable=True)
    rows_of = by_list.split(lengths.tolist())
    own = own_share(torch.arange(len(rows_of))).tolist()
    weight = next(model.parameters(), torch.zeros(()))
    training = model.training
    model.eval()
    scores, indices = [weight.new_zeros(0)], [by_list[:0]]
    with torch.no_grad():
        for block in _blocks([rows_of[number] for number in own]):
            rows = torch.cat(block)
            inputs = features[rows].to(weight.device, weight.dtype)
            scores.append(model(inputs, query_ids[rows].to(weight.device)))
            indices.append(rows)
    model.train(training)
    joined = gather_rows(torch.cat(scores)).cpu()
    order = gather_rows(torch.cat(indices).to(weight.device)).cpu()
    return joined[order.argsort()]


def _blocks(lists: list[Tensor]) -> Iterator[list[Tensor]]:
    """Yield lists in blocks of up to `ROWS_AT_ONCE` rows, a longer list alone."""
    block: list[Tensor] = []
    for rows in lists:
        if block and sum(map(len, block)) + len(rows) > ROWS_AT_ONCE:
            yield block
            block = []
        block.append(rows)
    if block:
        yield block


def as_it_is(batch: Any) -> Any:
    # `__getitems__` of a part returns a whole batch.
    return batch


class JudgedRows(NamedTuple):
    """Some rows with their labels.

    Attributes:
        features: the model's input, one entry per row.
        labels: (B, L) 0 or 1, or grades: above 0 is relevant for metrics of binary labels.
        mask: (B, L) False for items that do not count; None if all do.
    """

    features: Tensor
    labels: Tensor
    mask: Tensor | None


Rows = Callable[[Tensor], JudgedRows]


def evaluate_rows(
    model: nn.Module, rows: int, width: int, read: Rows, metrics: Sequence[str | Metric], *, bootstrap: int = 0
) -> Evaluation:
    """Return the metrics of lists that are rows, all items of which the model scores.

    Several processes take a share of the rows each and gather the values. The model is evaluated in evaluation mode;
    its mode is restored.

    Args:
        model: features of B rows to scores (B, L).
        rows: number of rows; width: of a row, which decides the size of blocks.
        read: from the indices of some rows to their features and labels.
        metrics: by name, or made.
        bootstrap: number of replicates for the intervals; 0 gives none.
    """
    made = create_metrics(metrics)

    def values_and_ties(block: Tensor) -> Tensor:
        known = read(block)
        values, tied = measure_grades(_scores(model, known.features), known.labels, known.mask, made)
        return torch.stack([*(values[metric.name] for metric in made), tied.double()], 1)

    *columns, tied = _in_blocks(model, rows, width, values_and_ties).unbind(1)
    values = {metric.name: column for metric, column in zip(made, columns, strict=True)}
    return collect(made, values, tied > 0, bootstrap=bootstrap)


def measure_grades(
    scores: Tensor, labels: Tensor, mask: Tensor | None, metrics: Sequence[Metric]
) -> tuple[dict[str, Tensor], Tensor]:
    """Return values of metrics of both kinds per list, (B,) each by name, and which lists have ties, (B,)."""
    values: dict[str, Tensor] = {}
    for kind, judged in (("grades", labels), ("binary", (labels > 0).long())):
        if chosen := [metric for metric in metrics if metric.record.labels == kind]:
            measured, tied = measure_lists(pack(scores, judged, mask=mask), chosen)
            values |= measured
    return values, tied


def predict_rows(model: nn.Module, rows: int, width: int, features: Callable[[Tensor], Tensor]) -> Tensor:
    """Return all scores (rows, L), computed in blocks of rows.

    Args:
        model, rows, width: see `evaluate_rows`.
        features: from the indices of some rows to the model's input.
    """
    return _in_blocks(model, rows, width, lambda block: _scores(model, features(block)))


def show_rows(model: nn.Module, read: Rows) -> Callable[[Tensor], SeenLists]:
    """Return a function from the indices of some rows to their scores and labels."""

    @torch.no_grad()
    def seen(rows: Tensor) -> SeenLists:
        known, training = read(rows), model.training
        model.eval()
        scores = _scores(model, known.features)
        model.train(training)
        return SeenLists(scores.cpu(), known.labels, known.mask)

    return seen


def _in_blocks(model: nn.Module, rows: int, width: int, result: Callable[[Tensor], Tensor]) -> Tensor:
    """Return the results of all blocks of rows, one row for each."""
    at_once = max(1, _CELLS // max(1, width))
    blocks = list(own_share(torch.arange(rows)).split(at_once))
    # As many blocks in every process: a model with sharded tables is called by all at the same time.
    most = max(1, math.ceil(math.ceil(rows / world_size()) / at_once))
    blocks += [torch.arange(0)] * (most - len(blocks))
    training = model.training
    model.eval()
    with torch.no_grad():
        joined = gather_rows(torch.cat([result(block) for block in blocks])).cpu()
    model.train(training)
    return joined


def _scores(model: nn.Module, features: Tensor) -> Tensor:
    weight = next(model.parameters(), torch.zeros(()))
    scores: Tensor = model(features.to(weight.device, weight.dtype if features.is_floating_point() else features.dtype))
    return scores if scores.dtype == torch.float64 else scores.float()
