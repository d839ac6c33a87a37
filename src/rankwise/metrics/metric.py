"""Metrics with fixed options, and their computation from arguments to values per list."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from rankwise.checks import (
    check_choice,
    check_k,
    check_labels,
    check_tensor,
    has_single_items,
    refuse_single_items,
    with_float64,
)
from rankwise.lists import EMPTY_POLICIES, Lists, PackedLists, pack, reduce_lists
from rankwise.ranks import TIE_POLICIES, RankedLists, rank
from rankwise.registry import MetricRecord
from rankwise.surrogates import Gain, describe_gain

__all__ = ["Metric", "check_lists", "measure", "measure_lists", "summarise"]


@dataclass(frozen=True)
class Metric:
    """Metric with all its options fixed; created by `create_metric`.

    Attributes:
        name: its name in results ("ndcg@10").
        record: the entry of the registry.
        k: cutoff, or None for the whole list.
        ties: "average", "pessimistic" or "stable".
        options: further options as (name, value) pairs.
    """

    name: str
    record: MetricRecord
    k: int | None = None
    ties: str = "average"
    options: tuple[tuple[str, Any], ...] = ()

    def __post_init__(self) -> None:
        check_k(self.k)
        check_choice("ties", self.ties, TIE_POLICIES)

    @property
    def gain(self) -> Gain | None:
        """Return the gain, or None for a metric of binary labels."""
        return cast("Gain | None", dict(self.options).get("gain"))

    @property
    def definition(self) -> str:
        """Return the full definition, with undefined lists left out."""
        return self.define()

    def define(self, empty: str = "skip") -> str:
        """Return the full definition, with the given policy for lists on which the metric is undefined."""
        options = {name: describe_gain(value) if name == "gain" else value for name, value in self.options}
        size = "the length of the list" if self.k is None else self.k
        ties = {
            "average": self.record.average_words,
            "pessimistic": "the less relevant first",
            "stable": "in the order of the input",
        }[self.ties]
        treatment = {"skip": "left out", "zero": "count as 0", "one": "count as 1", "error": "are refused"}[empty]
        text = self.record.definition.format(k=size, **options)
        return f"{text}; k: {size}; ties: {ties}; {self.record.undefined}: {treatment}"

    def per_list(self, ranked: RankedLists) -> Tensor:
        """Compute one value per ranked list, (Q,) float64, NaN where the metric is undefined."""
        cutoff = {"k": self.k} if self.record.takes_k else {}
        return cast(Tensor, self.record.per_list(ranked, **cutoff, **dict(self.options)))


def measure(
    metric: Metric,
    scores: object,
    labels: object,
    query_ids: object = None,
    mask: object = None,
    weights: object = None,
    empty: str = "skip",
    reduction: str = "mean",
) -> Tensor:
    """Check the arguments and compute the metric: a scalar, or one value per list for `reduction="none"`."""
    check_choice("empty", empty, EMPTY_POLICIES)
    check_choice("reduction", reduction, ("mean", "sum", "none"))
    scores = check_lists(scores, mask)
    packed = pack(scores, labels, query_ids=query_ids, mask=mask, weights=weights)
    values, _ = measure_lists(packed, [metric])
    return summarise(values[metric.name], empty=empty, reduction=reduction)


def check_lists(scores: object, mask: object, lists: str = "rows") -> Tensor:
    """Return the scores, on a device with float64; refuse (N, 1) without a mask: N lists of one item each."""
    tensor = with_float64(check_tensor("scores", scores))
    if has_single_items(tensor, mask, lists):
        refuse_single_items(tensor, "which no ranking can change")
    return tensor


def measure_lists(packed: PackedLists, metrics: Sequence[Metric]) -> tuple[dict[str, Tensor], Tensor]:
    """Compute the values of several metrics, (size,) float64 each by name, and the mask (size,) of lists with ties.

    A block is sorted once for all metrics of one tie policy, and once for all policies if it has no ties.
    """
    parts: dict[str, list[Tensor]] = {metric.name: [] for metric in metrics}
    tied: list[Tensor] = []
    for block in packed.blocks:
        _check(block, metrics)
        ranked = {"average": rank(block)}
        for metric in sorted(metrics, key=_depth, reverse=True):  # later ones reuse results of the first
            policy = metric.ties
            # An item of weight 2 counts as two tied items.
            if policy != "average" and block.weights is None and not bool(ranked["average"].has_ties.any()):
                policy = "average"
            if policy not in ranked:
                ranked[policy] = rank(block, policy)
            parts[metric.name].append(metric.per_list(ranked[policy]))
        tied.append(ranked["average"].has_ties)
    return {name: packed.join(values) for name, values in parts.items()}, packed.join(tied)


def summarise(values: Tensor, *, empty: str = "skip", reduction: str = "mean", weights: Tensor | None = None) -> Tensor:
    """Average values per list under the `empty` policy for undefined (NaN) ones; the mean of no list is NaN."""
    if reduction == "none" and empty == "skip":
        return values
    if reduction == "mean" and weights is None:
        mean = values.mean()
        if mean == mean:  # defined on every list
            return mean
    valid = ~torch.isnan(values)
    if reduction == "mean" and empty in ("skip", "error") and not bool(valid.any()) and len(values):
        reduce_lists(values, valid, empty=empty)
        return values.new_tensor(float("nan"))
    return reduce_lists(values, valid, empty=empty, reduction=reduction, weights=weights)


def _depth(metric: Metric) -> float:
    return math.inf if metric.k is None else metric.k


def _check(block: Lists, metrics: Sequence[Metric]) -> None:
    for kind in {metric.record.labels for metric in metrics}:
        check_labels(block.labels, kind, None)
    whole_only = [metric.name for metric in metrics if not metric.record.takes_item_weights]
    if whole_only and block.weights is not None and not bool((block.weights[block.mask] == 1).all()):
        raise ValueError(f"weights: {whole_only[0]} takes item weights of 0 or 1 only, got others")
