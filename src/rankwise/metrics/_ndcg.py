"""Normalised discounted cumulative gain."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from rankwise.checks import wide_dtype, widen
from rankwise.lists import surely_all
from rankwise.metrics.metric import Metric, measure
from rankwise.ranks import RankedLists, narrow
from rankwise.registry import MetricRecord
from rankwise.sorting import once_on_device, sort_values
from rankwise.surrogates import Gain, gain_function

__all__ = ["NDCG", "ideal_dcg", "ndcg"]

# Discounts are summed up to this many positions and integrated beyond: weights may be too large for a tensor.
_SUMMED_POSITIONS = 2**16


def ndcg(
    scores: object,
    labels: object,
    *,
    k: int | None = None,
    gain: Gain = "exp2",
    query_ids: object = None,
    mask: object = None,
    weights: object = None,
    ties: str = "average",
    empty: str = "skip",
    reduction: str = "mean",
) -> Tensor:
    """Compute NDCG@k: the discounted gain of the k items of highest score, divided by that of the k highest grades.

    `NDCG@k = sum_{r<=k} g(y_(r)) / log2(r + 1)`, divided by the same sum with the grades in descending order; ties are
    averaged over all their orders, as in scikit-learn. An item of weight w takes w positions: the cumulative
    discount is extended linearly between whole positions.

    Args:
        labels: the shape of `scores`, grades of 0 or more.
        k: cutoff, or None for the whole list.
        gain: "exp2" for 2^y - 1, "linear" for y, or a function of a float64 tensor of grades.
        ties: "average" is the mean over the orders of tied items; "pessimistic" puts the lower grades first; "stable"
            keeps the order of the input.
        empty: treatment of a list in which nothing gains: "skip", "zero", "one" or "error".
        scores, query_ids, mask, weights, reduction: see `average_precision`.

    Example:
        >>> ndcg([.9, .8, .7, .6], [0, 3, 1, 0], k=2)
        tensor(0.5788, dtype=torch.float64)
    """
    metric = Metric("ndcg", NDCG, k=k, ties=ties, options=(("gain", gain),))
    return measure(metric, scores, labels, query_ids, mask, weights, empty, reduction)


def ideal_dcg(gains: Tensor, *, weights: Tensor | None = None, k: int | None = None) -> Tensor:
    """Compute the DCG@k of the best order of each list, the divisor of NDCG.

    Args:
        gains: (Q, L) float64, 0 in the padding.
        weights: (Q, L) number of positions of each item; None is one each.
        k: cutoff, or None for the whole list.

    Returns:
        (Q,) float64.

    Example:
        >>> ideal_dcg(torch.tensor([[0.0, 1.0, 3.0]], dtype=torch.float64), k=1)
        tensor([3.], dtype=torch.float64)
    """
    if weights is None:
        width = gains.shape[1] if k is None else min(k, gains.shape[1])
        return sort_values(gains)[:, gains.shape[1] - width :] @ _reversed_discounts(
            width, wide_dtype(gains.device), gains.device
        )
    order = torch.argsort(gains, dim=1, descending=True)
    return _weighted_dcg(gains.gather(1, order), widen(weights).gather(1, order), k)


def _ndcg(ranked: RankedLists, *, k: int | None, gain: Gain) -> Tensor:
    weights, length = ranked.weights, ranked.lists.mask.shape[1]
    if weights is None:
        width = length if k is None else min(k, length)
        index, valid = ranked.first(width)
        depth = index.shape[1]
        first = ranked.once(("first", gain, depth), lambda: _expected_gains(ranked, gain, index, valid))
        best = ranked.once(("best", gain, depth), lambda: _best_gains(ranked, gain, depth))
        discounts = ranked.once(
            ("discounts", depth), lambda: _discounts(depth, wide_dtype(first.device), first.device)
        )[:width]
        dcg, ideal = first[:, :width] @ discounts, best[:, depth - width :] @ discounts.flip(0)
    else:
        dcg = _weighted_dcg(ranked.once(("expected gains", gain), lambda: _weighted_gains(ranked, gain)), weights, k)
        ideal = _weighted_dcg(*ranked.once(("best", gain), lambda: _best(ranked, gain)), k)
    return torch.where(ideal > 0, dcg / ideal, float("nan"))


@once_on_device
def _discounts(width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return 1 / torch.log2(torch.arange(2, width + 2, dtype=dtype, device=device))


@once_on_device
def _reversed_discounts(width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return _discounts(width, dtype, device).flip(0)


def _expected_gains(ranked: RankedLists, gain: Gain, index: Tensor, valid: Tensor) -> Tensor:
    """Compute the expected gains of the first items over the orders of ties, (Q, W): the means of tie groups."""
    gains = gain_function(gain)(ranked.lists.labels.gather(1, index))
    if not surely_all(valid):
        gains = gains.masked_fill(~valid, 0)
    if not ranked.tied:
        return gains
    joined = ranked.joined(gains.shape[1])
    return _average_runs(gains, joined) if len(joined) else gains


def _average_runs(values: Tensor, joined: np.ndarray) -> Tensor:
    """Replace every value by the mean of its tie group; `joined` are flat indices of items tied with the one before.

    Numpy takes half of torch's time for a dozen passes over a few numbers.
    """
    starts = np.flatnonzero(np.diff(joined, prepend=-1) > 1)
    sizes = np.diff(starts, append=len(joined))
    first, flat = joined[starts] - 1, values.cpu().numpy().flatten()
    means = (flat[first] + np.add.reduceat(flat[joined], starts)) / (sizes + 1)
    flat[first], flat[joined] = means, np.repeat(means, sizes)
    return torch.from_numpy(flat).view(values.shape).to(values.device)


def _best_gains(ranked: RankedLists, gain: Gain, width: int) -> Tensor:
    """Return the largest gains, (Q, width), ascending."""
    grades = ranked.lists.labels
    if isinstance(gain, str):  # it grows with the grade, from 0
        # float32 represents all integer grades that exp2 accepts.
        narrowed = grades.float() if gain == "exp2" and not grades.is_floating_point() else narrow(grades)
        ascending = sort_values(narrowed, in_place=narrowed is not grades)
        return gain_function(gain)(ascending[:, ascending.shape[1] - width :])
    ascending = sort_values(_gains(ranked, gain))
    return ascending[:, ascending.shape[1] - width :]


def _gains(ranked: RankedLists, gain: Gain) -> Tensor:
    gains = gain_function(gain)(ranked.lists.labels)
    return gains if ranked.full else gains.masked_fill(~ranked.lists.mask, 0)


def _weighted_gains(ranked: RankedLists, gain: Gain) -> Tensor:
    """Compute the expected gain of each ranked item over the orders of ties, (Q, L)."""
    ordered = _shared_gains(ranked, gain).gather(1, ranked.order)
    weights = ranked.weights
    if not ranked.tied or weights is None:
        return ordered
    group = ranked.group.flatten()
    total = torch.bincount(group, (ordered * weights).flatten())
    return (total / torch.bincount(group, weights.flatten())).nan_to_num()[ranked.group]


def _best(ranked: RankedLists, gain: Gain) -> tuple[Tensor, Tensor]:
    """Return gains and weights (Q, L) of the items, the largest gain first."""
    base, gains, weights = ranked.base or ranked, _shared_gains(ranked, gain), ranked.lists.weights
    assert weights is not None
    order = base.once(("best first", gain), lambda: torch.argsort(gains[: len(base.size)], dim=1, descending=True))
    order = order.expand(gains.shape)
    return gains.gather(1, order), weights.double().gather(1, order)


def _shared_gains(ranked: RankedLists, gain: Gain) -> Tensor:
    base = ranked.base or ranked
    return base.once(("gains", gain), lambda: _gains(base, gain)).expand(ranked.lists.mask.shape)


def _weighted_dcg(gains: Tensor, weights: Tensor, k: int | None) -> Tensor:
    """Compute the DCG of items that each take as many positions as their weight, a real number."""
    ends = pad(weights.cumsum(1), (1, 0)).clamp_max(_most_positions(weights.dtype) if k is None else k)
    return (gains * _summed_discounts(ends).diff(dim=1)).sum(1)


def _most_positions(dtype: torch.dtype) -> float:
    """Return a number of positions far beyond any list, whose sums do not overflow."""
    return 1e280 if dtype == torch.float64 else 1e30


def _summed_discounts(positions: Tensor) -> Tensor:
    """Compute the sum of the discounts of the first n positions, for each element n."""
    near = positions.clamp_max(_SUMMED_POSITIONS)
    whole = near.floor()
    most = int(whole.max()) + 1 if whole.numel() else 1
    discounts = _discounts(most, wide_dtype(positions.device), positions.device)
    index = whole.long()
    sums = pad(discounts.cumsum(0), (1, 0))[index] + (near - whole) * discounts[index]
    far = positions > _SUMMED_POSITIONS
    if bool(far.any()):
        sums[far] += _integrated_discounts(positions[far])
    return sums


def _integrated_discounts(positions: Tensor) -> Tensor:
    """Integrate the discounts ln 2 / ln x of the positions (N,) beyond `_SUMMED_POSITIONS`.

    The integral is from x = 3/2 + the first position to 3/2 + the last. With x = end exp(-u) the integrand is
    end exp(-u) / (ln(end) - u), which is smooth, and negligible beyond u = 40.
    """
    nodes, weights = (torch.from_numpy(each).to(positions.device) for each in np.polynomial.legendre.leggauss(40))
    end = positions + 1.5
    half = (end.log() - math.log(_SUMMED_POSITIONS + 1.5)).clamp_max(40) / 2
    u = half[:, None] * (1 + nodes)
    return math.log(2) * end * half * (((-u).exp() / (end.log()[:, None] - u)) @ weights)


NDCG = MetricRecord(
    name="ndcg",
    summary="normalised discounted cumulative gain",
    per_list=_ndcg,
    labels="grades",
    takes_k=True,
    options=("gain",),
    definition="DCG / ideal DCG of the first {k} positions, gain {gain}, discount 1/log2(rank + 1)",
    undefined="lists in which nothing gains",
)
