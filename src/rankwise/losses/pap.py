"""pAp@k: losses that rank the best positives of a list above its k best negatives."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from rankwise.checks import check_choice, check_k, check_labels, check_positive
from rankwise.lists import Lists, PackedLists, pack
from rankwise.losses.base import ListLoss
from rankwise.losses.sides import Side, best, pair_mean, sort_by_score, two_sides
from rankwise.pairs import pair_sums
from rankwise.registry import LossRecord
from rankwise.surrogates import Hinge

__all__ = ["SHORT_LISTS", "PApLoss", "PApMargins", "pap_margins", "top_negatives"]

SHORT_LISTS = ("skip", "clip")

# (1 - x)_+ for pairs that need a margin, (-x)_+ for pairs that need only the right order.
_APART, _IN_ORDER = Hinge(1.0), Hinge(0.0)


class PApLoss(ListLoss):
    """Loss for pAp@k: 1 - pAp@k with hinge losses of pairs; 0 if the top positives lead all negatives by a margin.

    With p_(1) >= p_(2) >= ... the scores of the n positives of a list, z_1 >= ... >= z_k those of its k best negatives,
    b = min(n, k), and scores in units of `margin`:

        risk = 1/(b k) sum_{i<=b, j<=k} 1[p_(i) <= z_j]                    the metric: 1 - pAp@k
        ramp = 1/(b k) sum_{i<=b, j<=k} (1 + z_j - p_(i))_+
        max  = the same with the b lowest positives
        avg  = 1/k sum_j (1 + z_j - mean of all positives)_+
        avg+ = 1/(n k) sum_{all i, j<=k} (1 + z_j - p_i)_+
        ts   = ramp + 1/(b k) sum_{i>b, j<=k} (z_j - p_(i))_+
        ts*  = 1/(b k) sum_j max( sum_{i>b} (z_j - p_(i))_+ , sum_{i>b} (z_j - p_(i)) + sum_{i<=b} (1 + z_j - p_(i))_+ )

    risk <= ramp <= avg+ <= max, ramp <= ts and risk <= ts* <= ts always hold, and all but avg are equal if n <= k. avg
    is below max, but it is no upper bound of risk as the paper states: it can be 0 with half of the pairs wrong. avg,
    avg+, max and ts* are convex in the scores; ramp and ts are not if n > k. Convex losses of a linear model often have
    their minimum at weights of 0: start from a cross-entropy solution, and choose the weights by a validation metric,
    not by the loss.

    Args:
        k: number of negatives, the k of the metric; None for all of the list.
        surrogate: "ramp", "avg", "avg+", "max", "ts" or "ts*", as above.
        margin: score difference at which the loss of a pair is 0. A hinge is linear, so the margin only sets the unit:
            scores and margin times c give the same value. Choose about the spread of your scores: 1 for logits and
            linear models, .1 to .3 for cosines and probabilities, which are never 1 apart.
        short_lists: treatment of lists with fewer than k negatives: "skip" leaves them out and counts them in
            `skipped`, as the metric does; "clip" takes all their negatives.
        lists, empty, reduction: see `ListLoss`. A list without positives or negatives is left out as well.

    Item weights multiply the losses of pairs; k and b are numbers of items, not sums of weights.

    Example:
        >>> scores = torch.tensor([2.5, 0.0, 1.0, -1.0], requires_grad=True)
        >>> value = PApLoss(k=2)(scores, torch.tensor([1, 1, 0, 0]))  # hinge losses 0, 0, 2 and 0
        >>> value.backward()
        >>> value.item(), scores.grad
        (0.5, tensor([ 0.0000, -0.2500,  0.2500,  0.0000]))

    Paper: Hiranandani et al., Optimization and Analysis of the pAp@k Metric for Recommender Systems, ICML 2020; avg+
    and ts* are repairs of its avg and TS.
    """

    def __init__(
        self,
        k: int | None = None,
        *,
        surrogate: str = "ramp",
        margin: float = 1.0,
        short_lists: str = "skip",
        lists: str = "rows",
        empty: str = "skip",
        reduction: str = "mean",
    ) -> None:
        super().__init__(lists=lists, empty=empty, reduction=reduction)
        self.k = check_k(k)
        self.surrogate = check_choice("surrogate", surrogate, _SURROGATES)
        self.margin = check_positive("margin", margin)
        self.short_lists = check_choice("short_lists", short_lists, SHORT_LISTS)

    def per_list(self, packed: PackedLists, group_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        values, valid = packed.map(self._block_values)
        return values, valid

    def _block_values(self, lists: Lists) -> tuple[Tensor, Tensor]:
        positives, negatives = two_sides(lists)
        top, valid = top_negatives(negatives, self.k, self.short_lists)
        valid = valid & (positives.size > 0)
        # Only differences count. Relative to the best negative, scores with a large offset keep their precision.
        highest = top.highest()[:, None]
        positives, top = (side.with_scores(self._in_margins(side.scores - highest)) for side in (positives, top))
        return _SURROGATES[self.surrogate](_Case(positives, top, self.k)), valid

    def _in_margins(self, leads: Tensor) -> Tensor:
        return leads if self.margin == 1 else leads / self.margin


def top_negatives(negatives: Side, k: int | None, short_lists: str) -> tuple[Side, Tensor]:
    """Return the k best negatives of each list, and the mask (Q,) of lists that have enough of them."""
    size = negatives.size
    if k is None:
        return negatives, size > 0
    return best(negatives, k), size >= (k if short_lists == "skip" else 1)


@dataclass(frozen=True)
class _Case:
    """Positives and the top k negatives of lists, with scores in units of the margin."""

    positives: Side
    negatives: Side
    k: int | None

    @cached_property
    def count(self) -> Tensor:
        """Return b, (Q,)."""
        return torch.minimum(self.positives.size, self.negatives.size)


def _ramp(case: _Case) -> Tensor:
    top = sort_by_score(case.positives, best_first=True, counts=case.count, most=case.k)
    return pair_mean(top, case.negatives, _APART)


def _max(case: _Case) -> Tensor:
    bottom = sort_by_score(case.positives, best_first=False, counts=case.count, most=case.k)
    return pair_mean(bottom, case.negatives, _APART)


def _avg(case: _Case) -> Tensor:
    mean = case.positives.mean()[:, None]
    middle = Side(mean, torch.ones_like(mean, dtype=torch.bool))
    return pair_mean(middle, case.negatives, _APART)


def _avg_plus(case: _Case) -> Tensor:
    return pair_mean(case.positives, case.negatives, _APART)


def _ts(case: _Case) -> Tensor:
    top, rest = _top_and_rest(case)
    share = rest.weights.sum(1) / top.weight
    return pair_mean(top, case.negatives, _APART) + share * pair_mean(rest, case.negatives, _IN_ORDER)


def _ts_star(case: _Case) -> Tensor:
    top, rest = _top_and_rest(case)
    negatives = case.negatives

    def over(positives: Side, surrogate: Hinge) -> Tensor:
        """Sum over the positives for every negative; negated scores exchange anchors and others."""
        return pair_sums(
            -negatives.scores,
            -positives.scores,
            surrogate,
            weights=positives.weights,
            anchor_mask=negatives.mask,
            other_mask=positives.mask,
        )

    weight, total = rest.weights.sum(1, keepdim=True), (rest.scores * rest.weights).sum(1, keepdim=True)
    all_of_rest = negatives.scores * weight - total
    larger = torch.maximum(over(rest, _IN_ORDER), all_of_rest + over(top, _APART))
    return (larger * negatives.weights).sum(1) / (top.weight * negatives.weight)


def _top_and_rest(case: _Case) -> tuple[Side, Side]:
    """Split the positives into the b best and the rest; each of tied items is in exactly one of the two."""
    positives = sort_by_score(case.positives, best_first=True)
    index = torch.arange(positives.scores.shape[1], device=positives.scores.device)
    return positives.first(case.count), positives.only(index >= case.count[:, None])


_SURROGATES = {"ramp": _ramp, "avg": _avg, "avg+": _avg_plus, "max": _max, "ts": _ts, "ts*": _ts_star}


@dataclass(frozen=True)
class PApMargins:
    """Score leads of positives over the best negative of each list, (Q,), in units of the margin; NaN if left out.

    A surrogate is 0 where its lead is at least 1.

    Attributes:
        weak: p_(b) - z_1, the lead of the b-th best positive over the best negative: "ramp".
        beta: mean(p) - z_1, the lead of the mean positive over the best negative: "avg".
        moderate: the smaller of `weak` and 1 + `strong`, so at least 1 if `weak` is and no positive scores below a
            negative: "ts", "ts*".
        strong: p_(n) - z_1, the lead of the lowest positive over the best negative: "max", "avg+", and all others.
    """

    weak: Tensor
    beta: Tensor
    moderate: Tensor
    strong: Tensor


def pap_margins(
    scores: object,
    labels: object,
    *,
    k: int | None = None,
    margin: float = 1.0,
    query_ids: object = None,
    mask: object = None,
    short_lists: str = "skip",
) -> PApMargins:
    """Compute the score leads of positives over the best negative of each list.

    Args:
        scores: (N,) one list, or many with `query_ids`; or (Q, L) one list per row.
        labels: the shape of `scores`, 0 or 1.
        k: largest number of positives that count, as in `PApLoss`; None for the number of negatives.
        margin: the unit, as in `PApLoss`.
        query_ids: (N,) id of the list of each item, or (Q,) ids of the rows.
        mask: the shape of `scores`, False in the padding.
        short_lists: treatment of lists with fewer than k negatives: "skip" leaves them out, "clip" takes all their
            negatives.

    Example:
        >>> pap_margins([3.0, 1.5, 1.0, 0.0], [1, 1, 0, 0], k=1).weak
        tensor([2.], dtype=torch.float64)
    """
    k, margin = check_k(k), check_positive("margin", margin)
    check_choice("short_lists", short_lists, SHORT_LISTS)
    packed = pack(scores, labels, query_ids=query_ids, mask=mask)

    def block_margins(lists: Lists) -> tuple[Tensor, ...]:
        check_labels(lists.labels, "binary", lists.mask)
        return tuple(_margins(lists, k, margin, short_lists))

    with torch.no_grad():
        return PApMargins(*packed.map(block_margins))


def _margins(lists: Lists, k: int | None, margin: float, short_lists: str) -> list[Tensor]:
    positives, negatives = two_sides(lists)
    top, valid = top_negatives(negatives, k, short_lists)
    valid = valid & (positives.size > 0)
    if not bool(valid.any()):
        return [torch.full(valid.shape, torch.nan, dtype=lists.scores.dtype, device=valid.device)] * 4
    positives = sort_by_score(positives, best_first=True)
    count = torch.minimum(positives.size, top.size)
    highest = top.highest()
    weak, strong = (
        (positives.scores.gather(1, (position - 1).clamp_min(0)[:, None])[:, 0] - highest) / margin
        for position in (count, positives.size)
    )
    beta = (positives.mean() - highest) / margin
    return [torch.where(valid, lead, torch.nan) for lead in (weak, beta, torch.minimum(weak, 1 + strong), strong)]


RECORDS = (
    LossRecord(
        name="pap",
        summary="pAp@k: the best positives of a list above its k best negatives",
        build=PApLoss,
        role="paper",
        paper="Hiranandani et al., ICML 2020",
    ),
)
