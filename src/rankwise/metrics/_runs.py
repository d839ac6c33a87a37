"""Metrics of truncated rankings: relevant documents that a system did not retrieve count as missed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from rankwise.lists import pack
from rankwise.metrics._evaluate import Evaluation, collect
from rankwise.metrics._ndcg import ideal_dcg
from rankwise.metrics.metric import Metric, measure_lists
from rankwise.metrics.names import create_metrics
from rankwise.surrogates import Gain, gain_function

__all__ = ["evaluate_run"]

# Metrics that divide by the number of relevant documents.
_BY_COUNT = ("ap", "recall")
_AS_RETRIEVED = ("precision", "rr", "hit")


def evaluate_run(
    run: Mapping[str, Mapping[str, float]],
    judgements: Mapping[str, Mapping[str, float]],
    metrics: Sequence[str],
    *,
    gain: Gain = "linear",
    bootstrap: int = 1000,
) -> Evaluation:
    """Compute the metrics of a system's retrieved documents, as trec_eval defines them.

    Documents of equal score (in float32) are sorted by name, descending, the gain is the grade, and relevant documents
    that were not retrieved add 0. Judged queries without a relevant document are left out; those without a retrieved
    document count as 0, as in trec_eval with the option -c. The queries are in the order of the judgements.

    Args:
        run: by query, scores by document.
        judgements: by query, grades by document; above 0 is relevant, unjudged documents are irrelevant.
        metrics: "ndcg@k", "map", "recall@k", "mrr", "precision@k", "hit@k", and those without a cutoff.
        gain: "linear" as in trec_eval, "exp2" or a function.
        bootstrap: number of replicates for the intervals; 0 gives none.

    Example:
        >>> run = {"q": {"a": 3.0, "b": 2.0, "c": 1.0}}
        >>> evaluate_run(run, {"q": {"b": 1, "x": 1}}, ["map", "recall@2"], bootstrap=0).means
        {'map': 0.25, 'recall@2': 0.5}
    """
    made = create_metrics(metrics, gain=gain, ties="stable")
    for metric in made:
        if metric.record.name not in (*_BY_COUNT, *_AS_RETRIEVED, "ndcg"):
            raise ValueError(f"metrics: expected one that is defined for retrieved documents, got {metric.name!r}")
    if not any(query in run for query in judgements):
        raise ValueError("run: expected some of the judged queries, got none of them")
    ranked = [_rank(run.get(query, {}), judged) for query, judged in judgements.items()]
    retrieved = _padded(ranked)
    sizes = torch.tensor([len(grades) for grades in ranked])
    mask = torch.arange(retrieved.shape[1]) < sizes[:, None]
    scores = -torch.arange(retrieved.shape[1], dtype=torch.float64).expand_as(retrieved)
    known = _padded([torch.tensor([*judged.values()], dtype=torch.float64) for judged in judgements.values()])
    values = {}
    for metric in made:
        labels = retrieved if metric.record.labels == "grades" else (retrieved > 0).long()
        measured, _ = measure_lists(pack(scores, labels, mask=mask), [metric])
        values[metric.name] = _of_all(metric, measured[metric.name], retrieved, known)
    return collect(made, values, torch.zeros(len(ranked), dtype=torch.bool), bootstrap=bootstrap)


def _rank(scores: Mapping[str, float], judged: Mapping[str, float]) -> Tensor:
    """Return the grades of the retrieved documents of a query, best first."""
    names = sorted(scores, reverse=True)
    order = np.argsort([-np.float32(scores[name]) for name in names], kind="stable")
    return torch.tensor([max(0.0, float(judged.get(names[row], 0))) for row in order], dtype=torch.float64)


def _padded(rows: Sequence[Tensor]) -> Tensor:
    padded = pad_sequence(list(rows), batch_first=True).clamp_min(0)
    return padded if padded.shape[1] else padded.new_zeros(len(rows), 1)


def _of_all(metric: Metric, values: Tensor, retrieved: Tensor, known: Tensor) -> Tensor:
    """Convert values (Q,) of the retrieved documents to values of all documents, NaN where none is relevant."""
    wanted = (known > 0).sum(1).double()
    if metric.record.name == "ndcg":
        assert metric.gain is not None
        gain = gain_function(metric.gain)
        parts = [torch.where(each > 0, gain(each), 0) for each in (retrieved, known)]
        share = ideal_dcg(parts[0], k=metric.k) / ideal_dcg(parts[1], k=metric.k)
    elif metric.record.name in _BY_COUNT:
        share = (retrieved > 0).sum(1) / wanted
    else:
        share = torch.ones_like(wanted)
    return torch.where(wanted > 0, values.nan_to_num(0) * share.nan_to_num(0), float("nan"))
