"""Evaluation of graded labels by metrics of grades and of binary labels together."""

from __future__ import annotations

from collections.abc import Sequence

from rankwise.checks import check_tensor
from rankwise.metrics._evaluate import Evaluation, evaluate
from rankwise.metrics.names import create_metric
from rankwise.surrogates import Gain

__all__ = ["evaluate_grades"]


def evaluate_grades(
    scores: object,
    grades: object,
    metrics: Sequence[str],
    *,
    query_ids: object = None,
    gain: Gain = "exp2",
    bootstrap: int = 1000,
) -> Evaluation:
    """Evaluate scores by graded labels; for metrics of binary labels, items of a grade above 0 are relevant.

    Args:
        scores, grades, query_ids: see `evaluate`.
        metrics: names of either kind, in any order.
        gain: "exp2", "linear" or a function, for metrics of grades.
        bootstrap: number of replicates for the intervals; 0 gives none.

    Example:
        >>> result = evaluate_grades([0.9, 0.5, 0.1], [2, 0, 1], ["ndcg", "ap"], bootstrap=0)
        >>> {name: round(mean, 3) for name, mean in result.means.items()}
        {'ndcg': 0.964, 'ap': 0.833}
    """
    labels = check_tensor("grades", grades)
    kinds = {name: create_metric(name).record.labels for name in metrics}
    results = [
        evaluate(scores, values, names, query_ids=query_ids, gain=gain, bootstrap=bootstrap)
        for kind, values in (("grades", labels), ("binary", (labels > 0).long()))
        if (names := [name for name in metrics if kinds[name] == kind])
    ]
    if len(results) == 1:
        return results[0]
    first, second = results
    order = {create_metric(name).name: None for name in metrics}
    return Evaluation(
        means={name: {**first.means, **second.means}[name] for name in order},
        intervals={**first.intervals, **second.intervals},
        per_query={name: {**first.per_query, **second.per_query}[name] for name in order},
        query_ids=first.query_ids,
        skipped={**first.skipped, **second.skipped},
        tied=first.tied,
        definitions={name: {**first.definitions, **second.definitions}[name] for name in order},
        confidence=first.confidence,
    )
