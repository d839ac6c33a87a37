"""Is one system better than another on one list? A paired bootstrap over its items."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rankwise.checks import check_same_shape, check_share, check_tensor
from rankwise.gains import Gain
from rankwise.lists import pack
from rankwise.metrics.bootstrap import draw_items, interval
from rankwise.metrics.compare import Comparison
from rankwise.metrics.metric import measure_lists
from rankwise.metrics.names import create_metrics

__all__ = ["compare_items"]


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
    """Compare two systems that score the items of a single list, where `compare` has no queries to pair.

    Items are drawn with replacement, the same for both systems, and the metric of the two is compared each time. The
    interval is that of the differences; the p value is twice the share of draws in which the difference has the other
    sign or none.

    Args:
        scores_a, scores_b: (N,) the scores of the two systems.
        labels: (N,).
        metric: name of a metric that takes item weights, such as "ap".
        gain: for metrics of grades.
        confidence: of the interval, between 0 and 1.
        bootstrap: number of draws; fewer, but at least 100, for very long lists.
        seed: of the draws.

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
    if first.ndim != 1:
        raise ValueError(f"scores_a: expected one list (N,), got shape {tuple(first.shape)}")
    (made,) = create_metrics([metric], gain=gain)
    given = check_tensor("labels", labels)

    def measure(scores: Tensor, weights: Tensor | None = None) -> Tensor:
        rows = 1 if weights is None else len(weights)
        packed = pack(scores.expand(rows, -1), given.expand(rows, -1), weights=weights)
        return measure_lists(packed, [made])[0][made.name]

    mean_a, mean_b = (float(measure(scores)) for scores in (first, second))
    if mean_a != mean_a or mean_b != mean_b:
        raise ValueError(f"labels: expected a list on which {metric} is defined, got one with too few relevant items")
    random = np.random.default_rng(seed)
    parts = [measure(first, drawn) - measure(second, drawn) for drawn in draw_items(len(first), bootstrap, random)]
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
