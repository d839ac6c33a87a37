"""Lists that are the rows of one large matrix of scores, evaluated in blocks of rows: the matrix never exists whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from rankwise.distributed import gather_rows, own_share
from rankwise.lists import pack
from rankwise.metrics import Evaluation
from rankwise.metrics._evaluate import collect
from rankwise.metrics.metric import Metric, measure_lists
from rankwise.metrics.names import create_metrics
from rankwise.problems.inspection import SeenLists

__all__ = ["JudgedRows", "evaluate_rows", "measure_grades", "predict_rows", "show_rows"]

# Scores held at once.
_CELLS = 2**22


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
    blocks = own_share(torch.arange(rows)).split(max(1, _CELLS // max(1, width)))
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
