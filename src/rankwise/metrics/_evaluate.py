"""Evaluation of one set of scores by several metrics, with intervals and per-query values."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rankwise.checks import check_choice, check_count, check_finite, check_share, check_tensor
from rankwise.lists import EMPTY_POLICIES, PackedLists, pack
from rankwise.metrics.bootstrap import interval, item_replicates, list_replicates
from rankwise.metrics.metric import Metric, check_lists, measure_lists, summarise
from rankwise.metrics.names import create_metric, create_metrics
from rankwise.surrogates import Gain

__all__ = ["Evaluation", "collect", "evaluate", "evaluate_grades", "merge_evaluations"]


@dataclass(frozen=True)
class Evaluation:
    """Metrics of one set of scores: means, intervals, values per list, as `evaluate` returns them.

    Attributes:
        means: by metric name, the mean over lists (NaN when every list was left out).
        intervals: by metric name, (low, high); without the metrics for which there is none.
        per_query: by metric name, (Q,) float64, NaN for lists left out.
        query_ids: (Q,) ids of the lists, in the order of `per_query`.
        skipped: by metric name, the number of lists on which it is undefined.
        tied: share of the lists in which scores are tied.
        definitions: by metric name, the full definition.
        confidence: level of the intervals.

    Example:
        >>> result = evaluate([.9, .8, .7, .6], [1, 0, 1, 0], ["ap", "recall@1"], bootstrap=0)
        >>> result.means
        {'ap': 0.8333..., 'recall@1': 0.5}
    """

    means: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    per_query: dict[str, Tensor]
    query_ids: Tensor
    skipped: dict[str, int]
    tied: float
    definitions: dict[str, str]
    confidence: float = 0.95

    def __str__(self) -> str:
        width = max(6, *(len(name) for name in self.means))
        level = f"{self.confidence:.0%} interval"
        lines = [f"{'metric':<{width}}  {'mean':>7}  {level:>16}  {'lists':>7}  {'left out':>8}"]
        for name, mean in self.means.items():
            low_high = self.intervals.get(name)
            bounds = f"{low_high[0]:.4f} - {low_high[1]:.4f}" if low_high else "-"
            counts = f"{len(self.query_ids):>7}  {self.skipped[name]:>8}"
            lines.append(f"{name:<{width}}  {mean:>7.4f}  {bounds:>16}  {counts}")
        lines.append(f"tied scores in {self.tied:.1%} of the lists")
        lines += [f"{name}: {definition}" for name, definition in self.definitions.items()]
        return "\n".join(lines)

    def to_dict(self, *, per_query: bool = False) -> dict[str, Any]:
        """Return plain numbers, strings, lists and dicts, ready for JSON; per-query values on request."""
        plain: dict[str, Any] = {
            "means": dict(self.means),
            "intervals": {name: list(bounds) for name, bounds in self.intervals.items()},
            "skipped": dict(self.skipped),
            "lists": len(self.query_ids),
            "tied": self.tied,
            "confidence": self.confidence,
            "definitions": dict(self.definitions),
        }
        if per_query:
            plain["query_ids"] = self.query_ids.tolist()
            plain["per_query"] = {name: values.tolist() for name, values in self.per_query.items()}
        return plain


def evaluate(
    scores: object,
    labels: object,
    metrics: str | Metric | Iterable[str | Metric],
    *,
    query_ids: object = None,
    mask: object = None,
    weights: object = None,
    query_weights: object = None,
    ties: str | None = None,
    empty: str = "skip",
    gain: Gain = "exp2",
    lists: str = "rows",
    confidence: float = 0.95,
    bootstrap: int = 1000,
    seed: int = 0,
) -> Evaluation:
    """Compute means, intervals and per-query values of several metrics; the scores are sorted once for all of them.

    The intervals are percentiles of the mean over lists drawn with replacement (Poisson bootstrap). For a single list
    its items are drawn instead, relevant and irrelevant ones, as weights of the metric; metrics that take no item
    weights have no interval then. If `bootstrap` replicates need more than 20 million random numbers, there are fewer,
    but at least 100. A million items with many relevant ones take seconds; `bootstrap=0` avoids that.

    Args:
        scores: (N,) one list, or many with `query_ids`; or (Q, L) one list per row. Any real numbers. (N, 1) are N
            lists of one item, which are refused unless a `mask` confirms them.
        labels: the shape of `scores`; 0 or 1, for metrics of grades 0 or more.
        metrics: names such as "ap", "ndcg@10", "pap@8", or metrics from `create_metric`.
        query_ids: (N,) id of the list of each item, or (Q,) ids of the rows.
        mask: the shape of `scores`, False in the padding.
        weights: the shape of `scores`, item weights of 0 or more.
        query_weights: (Q,) weights of the lists in the means; for ragged input (N,), the same for all items of a list.
        ties: "average", "pessimistic" or "stable"; None is each metric's own default.
        empty: treatment of a list on which a metric is undefined: "skip", "zero", "one" or "error".
        gain: "exp2", "linear" or a function, for metrics of grades.
        lists: "rows", or "columns" to take (B, C) as C lists of B items (the classes of a multi-label problem).
        confidence: level of the intervals, between 0 and 1.
        bootstrap: number of replicates; 0 gives no intervals.
        seed: seed of the replicates.

    Returns:
        An `Evaluation`.

    Example:
        >>> result = evaluate([[.9, .8, .7], [.1, .5, .3]], [[1, 0, 0], [1, 0, 2]], ["ndcg@2", "ndcg"], bootstrap=0)
        >>> {name: round(mean, 4) for name, mean in result.means.items()}
        {'ndcg@2': 0.7606, 'ndcg': 0.8295}
    """
    check_choice("empty", empty, EMPTY_POLICIES)
    made = create_metrics(metrics, gain=gain, ties=ties)
    scores = check_lists(scores, mask, lists)
    packed = pack(scores, labels, query_ids=query_ids, mask=mask, weights=weights, lists=lists)
    if query_ids is not None and packed.size > 1 and all(bool((block.size <= 1).all()) for block in packed.blocks):
        warnings.warn(
            f"query_ids: each of the {packed.size} lists holds one item, which no ranking can change; pass the id of "
            "the list of each item, or none if all items are one list",
            stacklevel=2,
        )
    share = None if query_weights is None else _check_query_weights(packed.per_list("query_weights", query_weights))
    values, has_ties = measure_lists(packed, made)
    return collect(
        made,
        values,
        has_ties,
        packed=packed,
        query_ids=packed.ids,
        query_weights=share,
        empty=empty,
        confidence=confidence,
        bootstrap=bootstrap,
        seed=seed,
    )


def collect(
    metrics: Sequence[Metric],
    values: dict[str, Tensor],
    has_ties: Tensor,
    *,
    packed: PackedLists | None = None,
    query_ids: Tensor | None = None,
    query_weights: Tensor | None = None,
    empty: str = "skip",
    confidence: float = 0.95,
    bootstrap: int = 1000,
    seed: int = 0,
) -> Evaluation:
    """Collect per-list values, NaN where undefined, into an `Evaluation`."""
    check_share("confidence", confidence)
    check_count("bootstrap", bootstrap, least=0)
    size = len(has_ties)
    filled = {name: summarise(per_list, empty=empty, reduction="none") for name, per_list in values.items()}
    intervals: dict[str, tuple[float, float]] = {}
    if bootstrap and size:
        random = np.random.default_rng(seed)
        if size > 1:
            replicates = _over_lists(filled, query_weights, bootstrap, random)
        elif packed is not None:
            replicates = item_replicates(packed.blocks[0], metrics, bootstrap, random)
        else:
            replicates = {}
        bounds = {name: interval(replicate, confidence) for name, replicate in replicates.items()}
        intervals = {name: low_high for name, low_high in bounds.items() if low_high[0] == low_high[0]}
    return Evaluation(
        means={name: _mean(per_list, query_weights) for name, per_list in filled.items()},
        intervals=intervals,
        per_query=filled,
        query_ids=torch.arange(size, device=has_ties.device) if query_ids is None else query_ids,
        skipped={name: int(torch.isnan(per_list).sum()) for name, per_list in values.items()},
        tied=float(has_ties.double().mean()) if size else 0.0,
        definitions={metric.name: metric.define(empty) for metric in metrics},
        confidence=confidence,
    )


def merge_evaluations(
    evaluations: Iterable[Evaluation], *, confidence: float = 0.95, bootstrap: int = 1000, seed: int = 0
) -> Evaluation:
    """Return the evaluation of all lists together, from evaluations of some of the lists each.

    So lists that do not fit into memory together, or are on different machines, are evaluated apart. Means and
    intervals are those that `evaluate` gives of all lists at once, if these have equal weights.

    Args:
        evaluations: of the same metrics; each list, known by its id, is in one of them.
        confidence, bootstrap, seed: of the intervals, see `evaluate`.

    Example:
        >>> halves = [evaluate([[.9, .8]], [labels], "ap", query_ids=[id], bootstrap=0)
        ...           for id, labels in ((7, [1, 0]), (3, [0, 1]))]
        >>> merged = merge_evaluations(halves, bootstrap=0)
        >>> merged.query_ids, merged.per_query["ap"]
        (tensor([3, 7]), tensor([0.5000, 1.0000], dtype=torch.float64))
    """
    check_share("confidence", confidence)
    check_count("bootstrap", bootstrap, least=0)
    parts = list(evaluations)
    if not parts:
        raise ValueError("evaluations: expected at least one, got none")
    first = parts[0]
    for part in parts:
        if part.definitions != first.definitions:
            raise ValueError(
                f"evaluations: expected the same metrics in all, got {', '.join(first.means)} and "
                f"{', '.join(part.means)}, or other definitions of them"
            )
    ids, order = torch.cat([part.query_ids for part in parts]).sort()
    if bool((ids[1:] == ids[:-1]).any()):
        twice = ids[1:][ids[1:] == ids[:-1]][0].item()
        raise ValueError(f"evaluations: expected every list in one of them, got the list {twice} in two")
    values = {name: torch.cat([part.per_query[name] for part in parts])[order] for name in first.means}
    intervals = {}
    if bootstrap and len(ids) > 1:
        replicates = _over_lists(values, None, bootstrap, np.random.default_rng(seed))
        bounds = {name: interval(replicate, confidence) for name, replicate in replicates.items()}
        intervals = {name: low_high for name, low_high in bounds.items() if low_high[0] == low_high[0]}
    return Evaluation(
        means={name: _mean(per_list, None) for name, per_list in values.items()},
        intervals=intervals,
        per_query=values,
        query_ids=ids,
        skipped={name: sum(part.skipped[name] for part in parts) for name in first.means},
        tied=sum(part.tied * len(part.query_ids) for part in parts) / max(1, len(ids)),
        definitions=first.definitions,
        confidence=confidence,
    )


def _mean(values: Tensor, weights: Tensor | None) -> float:
    return float(summarise(values, weights=weights)) if len(values) else float("nan")


def _over_lists(
    values: dict[str, Tensor], weights: Tensor | None, replicates: int, random: np.random.Generator
) -> dict[str, Tensor]:
    stacked = torch.stack(list(values.values()), 1).cpu()
    share = torch.ones(len(stacked), dtype=torch.float64) if weights is None else weights.cpu().double()
    drawn = list_replicates(stacked, share, replicates, random)
    return dict(zip(values, drawn.unbind(1), strict=True))


def _check_query_weights(weights: Tensor) -> Tensor:
    check_finite("query_weights", weights)
    if bool((weights < 0).any()) or not bool((weights > 0).any()):
        raise ValueError("query_weights: expected numbers of 0 or more, not all 0, got others")
    return weights


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
