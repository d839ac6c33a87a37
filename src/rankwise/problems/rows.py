"""Lists that are the rows of one large matrix of scores: judged some rows at a time, so that it never exists whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from rankwise.distributed import gather_rows, own_share
from rankwise.lists import pack
from rankwise.metrics import Evaluation
from rankwise.metrics.evaluate import collect
from rankwise.metrics.metric import measure_lists
from rankwise.metrics.names import create_metrics
from rankwise.problems.inspection import SeenLists

__all__ = ["JudgedRows", "judge_rows", "look_at_rows", "predict_rows"]

# Scores held at once.
_CELLS = 2**22


class JudgedRows(NamedTuple):
    """What is known of some rows.

    Attributes:
        features: what the model takes, one entry per row.
        labels: (B, L) 0 or 1.
        mask: (B, L) False for items that do not count; None if all do.
    """

    features: Tensor
    labels: Tensor
    mask: Tensor | None


Look = Callable[[Tensor], JudgedRows]


def judge_rows(
    model: nn.Module, rows: int, width: int, look: Look, metrics: Sequence[str], *, bootstrap: int = 0
) -> Evaluation:
    """Every row is a list, all items of which the model scores.

    Several processes take a share of the rows each and give each other the values. The model is judged in evaluation
    mode; its mode is left as it was.

    Args:
        model: features of B rows to scores (B, width).
        rows: how many rows there are; width: items in each.
        look: from the numbers of some rows to what is known of them.
        metrics: by name.
        bootstrap: number of replicates for the intervals; 0 gives none.
    """
    made = create_metrics(metrics)

    def values_and_ties(scores: Tensor, known: JudgedRows) -> Tensor:
        values, tied = measure_lists(pack(scores, known.labels, mask=known.mask), made)
        return torch.stack([*values.values(), tied.double()], 1)

    *columns, tied = _over_blocks(model, rows, width, look, values_and_ties, len(made) + 1).unbind(1)
    values = {metric.name: column for metric, column in zip(made, columns, strict=True)}
    return collect(made, values, tied > 0, bootstrap=bootstrap)


def predict_rows(model: nn.Module, rows: int, width: int, look: Look) -> Tensor:
    """All scores (rows, width) float64, for metrics that need them together."""
    return _over_blocks(model, rows, width, look, lambda scores, known: scores.double(), width)


def look_at_rows(model: nn.Module, look: Look) -> Callable[[Tensor], SeenLists]:
    """What the model makes of any of the rows, one process at a time."""

    @torch.no_grad()
    def seen(rows: Tensor) -> SeenLists:
        known, training = look(rows), model.training
        model.eval()
        scores = _scores(model, known)
        model.train(training)
        return SeenLists(scores.cpu(), known.labels, known.mask)

    return seen


def _over_blocks(
    model: nn.Module,
    rows: int,
    width: int,
    look: Look,
    result: Callable[[Tensor, JudgedRows], Tensor],
    columns: int,
) -> Tensor:
    """What `result` makes of the scores of each block of rows, one row for each: (rows, columns) float64."""
    weight = next(model.parameters(), torch.zeros(()))
    blocks = own_share(torch.arange(rows)).split(max(1, _CELLS // max(1, width)))
    training = model.training
    model.eval()
    with torch.no_grad():
        found = []
        for block in blocks:
            known = look(block)
            found.append(result(_scores(model, known), known))
        empty = torch.zeros(0, columns, dtype=torch.float64, device=weight.device)
        joined = gather_rows(torch.cat([empty, *found])).cpu()
    model.train(training)
    return joined


def _scores(model: nn.Module, known: JudgedRows) -> Tensor:
    weight, features = next(model.parameters(), torch.zeros(())), known.features
    scores: Tensor = model(features.to(weight.device, weight.dtype if features.is_floating_point() else features.dtype))
    return scores if scores.dtype == torch.float64 else scores.float()
