"""Choose on validation how a trained model and one in closed form are mixed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from rankwise.metrics import Metric
from rankwise.metrics.names import create_metrics
from rankwise.models import standardise
from rankwise.problems.batches import JudgedRows, measure_grades
from rankwise.problems.inspection import spread_over
from rankwise.problems.problem import Settings

__all__ = ["choose_blend", "judged_rows"]

# Scores of each model that choices are made on.
_CELLS = 2**23


def judged_rows(rows: int, width: int) -> Tensor:
    """Return the indices of the rows on which choices are made: all, or some evenly spread ones."""
    return spread_over(rows, max(1, _CELLS // width))


def choose_blend(
    known: JudgedRows,
    trained: Tensor,
    candidates: Iterable[tuple[Settings, Tensor]],
    shares: Sequence[float],
    metric: str | Metric,
) -> Settings:
    """Return the settings and the share of the trained model with the highest metric, the first of equal ones.

    Args:
        known: labels (B, N) and mask of the rows.
        trained: (B, N) scores of the trained model.
        candidates: settings of the closed form, with its scores (B, N).
        shares: of the trained model in the mean of standardised scores.
        metric: by name, or made.

    Returns:
        The settings with `share`, and `validation`: the metric on these rows.

    Example:
        >>> labels = torch.tensor([[1.0, 0.0, 0.0]])
        >>> right, wrong = torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[1.0, 2.0, 3.0]])
        >>> choose_blend(JudgedRows(labels, labels, None), wrong, [({}, right)], (0.9, 0.1), "ndcg@3")
        {'share': 0.1, 'validation': 1.0}
    """
    made = create_metrics([metric])
    of_trained = standardise(trained)
    best: Settings = {}
    for settings, scores in candidates:
        of_solved = standardise(scores)
        for share in shares:
            values, _ = measure_grades(torch.lerp(of_solved, of_trained, share), known.labels, known.mask, made)
            mean = float(values[made[0].name].nanmean())
            if not best or mean > best["validation"]:
                best = {**settings, "share": share, "validation": mean}
    if not best:
        raise ValueError("candidates: expected at least one closed form, got none")
    return best
