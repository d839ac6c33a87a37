"""Comparison of two systems by paired tests over queries, or over the items of one list."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rankwise.checks import check_count, check_same_shape, check_share, check_tensor
from rankwise.lists import pack
from rankwise.metrics._evaluate import Evaluation
from rankwise.metrics.bootstrap import draw_items, interval, list_replicates
from rankwise.metrics.metric import measure_lists
from rankwise.metrics.names import create_metrics
from rankwise.registry import nearest
from rankwise.surrogates import Gain

__all__ = ["Comparison", "compare", "compare_items"]

# All sign patterns are tried up to this many pairs: 2^12 of them.
_FEW_PAIRS = 12
_CHUNK = 4_000_000

# The value of a list may differ in the last bits with its index in the batch.
_EQUAL = 1e-12


@dataclass(frozen=True)
class Comparison:
    """Difference of two systems a and b with its interval and test, as `compare` returns it.

    Attributes:
        metric: name of the metric ("" for plain values).
        mean_a, mean_b: means over the paired queries, difference: mean_a - mean_b.
        interval: bootstrap interval of the difference, confidence: its level.
        p_value: two-sided, of the paired permutation test; exact: whether all permutations were tried.
        pairs: number of queries on which both have a value.
        wins, ties, losses: on how many of them a is better, equal (to 12 digits), worse.
        test: name of the test.
    """

    metric: str
    mean_a: float
    mean_b: float
    difference: float
    interval: tuple[float, float]
    confidence: float
    p_value: float
    exact: bool
    pairs: int
    wins: int
    ties: int
    losses: int
    test: str = "paired permutation test"

    def __str__(self) -> str:
        low, high = self.interval
        sampled = "exact" if self.exact else "sampled"
        return (
            f"{self.metric or 'values'}: {self.mean_a:.4f} against {self.mean_b:.4f}, "
            f"difference {self.difference:+.4f} ({self.confidence:.0%} interval {low:+.4f} to {high:+.4f})\n"
            f"p = {self.p_value:.4g} ({sampled} {self.test}, two-sided), {self.pairs} pairs: "
            f"{self.wins} better, {self.ties} equal, {self.losses} worse"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers and strings, ready for JSON."""
        return {**asdict(self), "interval": list(self.interval)}


def compare(
    a: Evaluation | Tensor,
    b: Evaluation | Tensor,
    *,
    metric: str | None = None,
    permutations: int = 10_000,
    confidence: float = 0.95,
    bootstrap: int = 1000,
    seed: int = 0,
) -> Comparison:
    """Compare two systems on the same queries.

    If the systems do not differ, the signs of the per-query differences are random. The p value is the share of sign
    patterns whose mean difference is at least as far from 0 as the observed one (all patterns up to 12 pairs, else a
    sample that includes the observed one). Queries on which either has no value are left out.

    Args:
        a, b: two results of `evaluate`, or two tensors of per-query values (Q,), NaN for queries left out.
        metric: name of the metric to compare; may be omitted if both have exactly one in common.
        permutations: number of sign patterns to sample.
        confidence: level of the interval of the difference, between 0 and 1.
        bootstrap: number of replicates for the interval.
        seed: seed of both samples.

    Example:
        >>> result = compare(torch.tensor([.9, .8, .7, .9]), torch.tensor([.5, .8, .6, .2]))
        >>> result.wins, result.ties, result.losses, result.p_value
        (3, 1, 0, 0.25)
    """
    check_share("confidence", confidence)
    for name, count in (("permutations", permutations), ("bootstrap", bootstrap)):
        check_count(name, count)
    name, values_a, values_b = _paired(a, b, metric)
    both = ~(torch.isnan(values_a) | torch.isnan(values_b))
    values_a, values_b = values_a[both], values_b[both]
    if not len(values_a):
        raise ValueError("a, b: expected at least one query on which both have a value, got none")
    differences = values_a - values_b
    differences[differences.abs() <= _EQUAL * torch.maximum(values_a.abs(), values_b.abs())] = 0
    random = np.random.default_rng(seed)
    p_value, exact = _permutation_test(differences, permutations, random)
    replicates = list_replicates(differences[:, None], torch.ones_like(differences), bootstrap, random)
    return Comparison(
        metric=name,
        mean_a=float(values_a.mean()),
        mean_b=float(values_b.mean()),
        difference=float(differences.mean()),
        interval=interval(replicates[:, 0], confidence),
        confidence=confidence,
        p_value=p_value,
        exact=exact,
        pairs=len(differences),
        wins=int((differences > 0).sum()),
        ties=int((differences == 0).sum()),
        losses=int((differences < 0).sum()),
    )


def _paired(a: Evaluation | Tensor, b: Evaluation | Tensor, metric: str | None) -> tuple[str, Tensor, Tensor]:
    if isinstance(a, Evaluation) and isinstance(b, Evaluation):
        name = _shared_metric(a, b, metric)
        order_a, order_b = torch.argsort(a.query_ids), torch.argsort(b.query_ids)
        ids_a, ids_b = a.query_ids[order_a].cpu(), b.query_ids[order_b].cpu()
        if not torch.equal(ids_a, ids_b):
            only = set(ids_a.tolist()) ^ set(ids_b.tolist())
            raise ValueError(
                f"b: expected the queries of a, got {len(ids_b)} against {len(ids_a)} "
                f"with {len(only)} in one only, such as {sorted(only)[:3]}"
            )
        if a.definitions[name] != b.definitions[name]:
            raise ValueError(f"b: expected {name} as a has it ({a.definitions[name]}), got ({b.definitions[name]})")
        return name, a.per_query[name][order_a].cpu(), b.per_query[name][order_b].cpu()
    if isinstance(a, Evaluation) or isinstance(b, Evaluation):
        raise TypeError(f"b: expected the kind of a ({type(a).__name__}), got {type(b).__name__}")
    values_a, values_b = (check_tensor(n, v).detach().cpu().double() for n, v in (("a", a), ("b", b)))
    if values_a.ndim != 1 or values_a.shape != values_b.shape:
        raise ValueError(f"b: expected the shape of a (Q,), {tuple(values_a.shape)}, got {tuple(values_b.shape)}")
    return metric or "", values_a, values_b


def _shared_metric(a: Evaluation, b: Evaluation, metric: str | None) -> str:
    shared = [name for name in a.per_query if name in b.per_query]
    if metric is None:
        if len(shared) == 1:
            return shared[0]
        raise ValueError(f"metric: expected one of the metrics a and b share ({', '.join(shared) or 'none'}), got None")
    if metric not in shared:
        raise ValueError(f"metric: a and b do not share {metric!r}{nearest(metric, shared)}")
    return metric


def _permutation_test(differences: Tensor, permutations: int, random: np.random.Generator) -> tuple[float, bool]:
    # Sums that are equal in exact arithmetic may differ in the last bits.
    threshold = float(differences.sum().abs()) - 1e-12 * float(differences.abs().sum())
    pairs = len(differences)
    if pairs <= _FEW_PAIRS:
        signs = torch.tensor(list(product((-1.0, 1.0), repeat=pairs)), dtype=torch.float64)
        return float(((signs @ differences).abs() >= threshold).double().mean()), True
    extreme, left = 0, permutations
    while left > 0:
        rows = min(left, max(1, _CHUNK // pairs))
        signs = torch.from_numpy(random.integers(2, size=(rows, pairs), dtype=np.int8)).double().mul_(2).sub_(1)
        extreme += int(((signs @ differences).abs() >= threshold).sum())
        left -= rows
    return (extreme + 1) / (permutations + 1), False


def compare_items(
    scores_a: object,
    scores_b: object,
    labels: object,
    metric: str,
    *,
    gain: Gain = "exp2",
    confidence: float = 0.95,
    bootstrap: int = 1000,
    seed: int = 0,
) -> Comparison:
    """Compare two systems that score the items of a single list, which has no queries to pair.

    In each replicate items are drawn with replacement, the same for both systems, and both get a value of the metric.
    The interval is that of the differences; the p value is twice the share of replicates in which the difference is 0
    or has the opposite sign.

    Args:
        scores_a, scores_b: (N,) scores of the two systems; or (S, N) of S runs of each, with other seeds, say, whose
            values are averaged.
        labels: (N,).
        metric: name of a metric that takes item weights, such as "ap".
        gain: gain of metrics of grades.
        confidence: level of the interval, between 0 and 1.
        bootstrap: number of replicates; fewer, but at least 100, for very long lists.
        seed: seed of the replicates.

    Example:
        >>> labels = torch.arange(200) % 10 == 0
        >>> noise = torch.randn(200, generator=torch.Generator().manual_seed(0))
        >>> result = compare_items(3.0 * labels + noise, noise, labels, "ap")
        >>> result.difference > 0.5, result.p_value < 0.01
        (True, True)
    """
    check_share("confidence", confidence)
    first, second = check_tensor("scores_a", scores_a), check_tensor("scores_b", scores_b)
    check_same_shape("scores_b", second, "scores_a", first.shape)
    if first.ndim not in (1, 2) or not first.numel():
        raise ValueError(f"scores_a: expected one list (N,) or (S, N), got shape {tuple(first.shape)}")
    (made,) = create_metrics([metric], gain=gain)
    given = check_tensor("labels", labels)
    check_same_shape("labels", given, "a list of scores_a", first.shape[-1:])

    def measure(runs: Tensor, weights: Tensor | None = None) -> Tensor:
        rows = 1 if weights is None else len(weights)
        values = []
        for scores in runs.reshape(-1, runs.shape[-1]):
            packed = pack(scores.expand(rows, -1), given.expand(rows, -1), weights=weights)
            values.append(measure_lists(packed, [made])[0][made.name])
        return torch.stack(values).mean(0)

    mean_a, mean_b = (float(measure(scores)) for scores in (first, second))
    if mean_a != mean_a or mean_b != mean_b:
        raise ValueError(f"labels: expected a list on which {metric} is defined, got one with too few relevant items")
    random = np.random.default_rng(seed)
    size = first.shape[-1]
    parts = [measure(first, drawn) - measure(second, drawn) for drawn in draw_items(size, bootstrap, random)]
    differences = torch.cat(parts)
    differences = differences[~torch.isnan(differences)]
    difference = mean_a - mean_b
    against = (differences * (1 if difference > 0 else -1) <= 0).double().mean().item() if difference else 1.0
    return Comparison(
        metric=made.name,
        mean_a=mean_a,
        mean_b=mean_b,
        difference=difference,
        interval=interval(differences, confidence),
        confidence=confidence,
        p_value=min(1.0, max(2 * against, 1 / (len(differences) + 1))),
        exact=False,
        pairs=1,
        wins=int(difference > 0),
        ties=int(difference == 0),
        losses=int(difference < 0),
        test="paired bootstrap over the items of the list",
    )
