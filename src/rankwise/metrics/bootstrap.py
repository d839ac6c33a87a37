"""Confidence intervals of means: percentile bootstrap over lists, or over the items of a single list.

Each list or item counts a Poisson(1) number of times in a replicate, independently of the others. The total is thus not
fixed, and the mean is divided by the number drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from rankwise.lists import Lists
from rankwise.metrics.metric import Metric
from rankwise.ranks import Positives, rank

__all__ = ["draw_items", "interval", "item_replicates", "list_replicates"]

# Beyond this many random numbers there are fewer replicates, but never fewer than an interval needs.
_DRAWS = 20_000_000
_FEWEST = 100
_CHUNK = 2_000_000


def list_replicates(values: Tensor, weights: Tensor, replicates: int, random: np.random.Generator) -> Tensor:
    """Compute means over lists drawn with replacement: (R, M) from values (Q, M), NaN for lists left out.

    Args:
        values: (Q, M) per-list values of M metrics.
        weights: (Q,) weights of the lists.
        replicates: number of replicates; fewer for very many lists.
        random: source of randomness.
    """
    size = len(values)
    counted = torch.isfinite(values).double() * weights[:, None]
    summed = values.nan_to_num() * counted
    means = []
    for rows in _chunks(replicates, size):
        counts = _poisson_ones(rows, size, random)
        means.append((counts @ summed) / (counts @ counted))
    return torch.cat(means)


def item_replicates(
    lists: Lists, metrics: Sequence[Metric], replicates: int, random: np.random.Generator
) -> dict[str, Tensor]:
    """Compute values of a single list whose items are drawn with replacement: (R,) by name.

    For binary labels the irrelevant items between two relevant ones are drawn together, so that the time depends on the
    number of relevant items. Metrics that take no item weights are missing from the result.
    """
    families: dict[tuple[str, str], list[Metric]] = {}
    for metric in metrics:
        if metric.record.takes_item_weights:
            families.setdefault((metric.ties, metric.record.labels), []).append(metric)
    result: dict[str, Tensor] = {}
    for (ties, labels), family in families.items():
        ranked = rank(lists, ties)
        merged = labels == "binary" and lists.weights is None
        if merged:
            ranked = rank(_merged(ranked.positives), ties)
        size = ranked.mask.shape[1]
        rates = torch.ones(size) if ranked.weights is None else ranked.weights[0]
        parts: dict[str, list[Tensor]] = {metric.name: [] for metric in family}
        for rows in _chunks(replicates, size):
            drawn = _poisson(rates, rows, random) if merged else _poisson_ones(rows, size, random)
            weights = drawn.to(lists.scores.device)
            again = ranked.reweighted(weights if merged or ranked.weights is None else weights * ranked.weights)
            for metric in family:
                parts[metric.name].append(metric.per_list(again))
        result.update({name: torch.cat(values) for name, values in parts.items()})
    return result


def draw_items(size: int, replicates: int, random: np.random.Generator) -> Iterator[Tensor]:
    """Yield the number of draws of each of `size` items, in chunks (R, size) of the replicates."""
    for rows in _chunks(replicates, size):
        yield _poisson_ones(rows, size, random)


def interval(replicates: Tensor, confidence: float) -> tuple[float, float]:
    """Return the percentile interval that contains the share `confidence` of the replicates."""
    tail = (1 - confidence) / 2
    bounds = torch.nanquantile(replicates.double().cpu(), torch.tensor([tail, 1 - tail], dtype=torch.float64))
    low, high = bounds.tolist()
    return low, high


def _chunks(replicates: int, size: int) -> Iterator[int]:
    """Yield numbers of replicates per chunk, bounded in memory and in the total of random numbers."""
    left = min(replicates, max(_FEWEST, _DRAWS // max(size, 1)))
    while left > 0:
        rows = min(left, max(1, _CHUNK // max(size, 1)))
        yield rows
        left -= rows


def _poisson_ones(rows: int, size: int, random: np.random.Generator) -> Tensor:
    """Draw (rows, size) float64 numbers of Poisson(1) from a table of 2^16 equally likely values."""
    chances = torch.exp(-1 - torch.lgamma(torch.arange(1.0, 13, dtype=torch.float64))).cumsum(0).numpy()
    table = np.searchsorted(chances, (np.arange(2**16) + 0.5) / 2**16).astype(np.float64)
    return torch.from_numpy(table[random.integers(2**16, size=(rows, size), dtype=np.uint16)])


def _poisson(rates: Tensor, rows: int, random: np.random.Generator) -> Tensor:
    return torch.from_numpy(random.poisson(rates.cpu().numpy(), (rows, len(rates))).astype(np.float64))


def _merged(positives: Positives) -> Lists:
    """Merge equivalent items into one item of their summed weight, three for each tie group with a relevant item.

    These are the irrelevant items since the previous such group, the irrelevant ones of the group and the relevant ones
    of the group; the last item is that of the irrelevant items below them all.
    """
    begin, last = torch.unique_consecutive(positives.begin[0], return_counts=True)
    index = last.cumsum(0) - 1
    end, hits = positives.end[0, index], positives.hits_end[0, index] - positives.hits_begin[0, index]
    above = begin - torch.cat([begin.new_zeros(1), end[:-1]])
    below = positives.size - (end[-1:] if len(end) else positives.size.new_zeros(1))
    weights = torch.cat([torch.stack([above, end - begin - hits, hits], 1).flatten(), below])
    steps = torch.arange(len(begin), dtype=begin.dtype, device=begin.device).repeat_interleave(3) * -2
    scores = torch.cat([steps - begin.new_tensor([0, 1, 1]).repeat(len(begin)), steps[-1:] - 3])
    scores = scores if len(begin) else below.new_zeros(1)
    labels = torch.zeros_like(weights)
    labels[2::3] = 1
    kept = weights > 0
    scores, labels, weights = (values[kept][None] for values in (scores, labels, weights))
    return Lists(scores, labels, torch.ones_like(weights, dtype=torch.bool), weights, scores.new_zeros(1).long())
