"""LambdaRank and LambdaLoss: pairs weighed by what swapping them would do to NDCG."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from rankwise.checks import check_k, check_positive
from rankwise.gains import Gain, gain_function
from rankwise.lists import Lists, PackedLists
from rankwise.losses.base import ListLoss
from rankwise.losses.rivals.dcg import discounts, normalised_gains
from rankwise.losses.rivals.preferences import Pairs, by_grade, preference_sums
from rankwise.losses.rivals.weighing import grades_differ, relative_weights
from rankwise.ranks import RankedLists, rank
from rankwise.registry import LossRecord
from rankwise.surrogates import Logistic

__all__ = ["LambdaLoss", "LambdaRankLoss"]


class LambdaLoss(ListLoss):
    """NDCG-Loss2++: the sum over pairs with y_i > y_j of `w_ij log2(1 + exp(-sigma (s_i - s_j)))`.

    `w_ij = |G_i - G_j| (|D_i - D_j| + mu |d(r) - d(r + 1)|)`, with gains G over the ideal DCG, discounts
    d(p) = 1 / log2(1 + p), D the discounts at the current ranks and r the distance of the two ranks. No gradient flows
    through w. At least 0. Lists of one grade are left out.

    Of items with equal scores, D is the mean over their orders, |D_i - D_j| within such a group likewise; r is the
    distance of their mean ranks, at least 1. A pair further weighs the product of its items' weights, those of a list
    scaled to a mean of 1. Memory: O(Q L), the pairs are never held together.

    Args:
        sigma: steepness; the scores are multiplied by it.
        mu: what the term in the distance of ranks weighs; 0 is LambdaRank.
        k: train for NDCG@k: discounts beyond position k are 0, and pairs with both items there do not count.
        gain: "exp2" for 2^y - 1, "linear" for y, or a function of grades.
        lists, empty, reduction: see `ListLoss`.

    Example:
        >>> LambdaLoss()(torch.tensor([0.2, 0.1]), torch.tensor([1, 0]))
        tensor(3.7742)

    Paper: Wang et al., The LambdaLoss framework for ranking metric optimization, CIKM 2018.
    """

    label_kind = "grades"

    def __init__(
        self,
        *,
        sigma: float = 1.0,
        mu: float = 10.0,
        k: int | None = None,
        gain: Gain = "exp2",
        lists: str = "rows",
        empty: str = "skip",
        reduction: str = "mean",
    ) -> None:
        super().__init__(lists=lists, empty=empty, reduction=reduction)
        self.surrogate = Logistic(1 / check_positive("sigma", sigma))
        self.mu, self.k, self.gain = check_positive("mu", mu, zero=True), check_k(k), gain_function(gain)

    def per_list(self, packed: PackedLists, group_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        values, valid = packed.map(self._weighted_pairs)
        return values, valid

    def _weighted_pairs(self, lists: Lists) -> tuple[Tensor, Tensor]:
        graded = by_grade(lists)
        gains = normalised_gains(replace(lists, weights=None), self.gain, self.k)
        gains, weights = (t.gather(1, graded.order) for t in (gains, relative_weights(lists)))
        standing = _standing(lists, graded, self.k)
        nearness = self.mu * _nearness(lists)

        def weigh(pairs: Pairs) -> Tensor:
            high, low = pairs.outer(standing.discount)
            swap = (high - low).abs_()
            start, other_start = pairs.outer(standing.start)
            if standing.tied:
                swap += torch.where(start == other_start, standing.spread[pairs.lists, pairs.better, None], 0)
            if self.mu:
                middle, other_middle = pairs.outer(standing.middle)
                distance = (middle - other_middle).abs_().clamp_min_(2)
                near = nearness[distance]
                swap += near if self.k is None else near.mul_((start < self.k) | (other_start < self.k))
            better, worse = pairs.outer(gains)
            swap *= (better - worse).abs_()
            if lists.weights is not None:
                weight, other_weight = pairs.outer(weights)
                swap *= weight * other_weight
            return swap

        sums, _ = preference_sums(lists, graded, self.surrogate, weigh)
        return sums / math.log(2), grades_differ(lists) & (gains > 0).any(1)


class LambdaRankLoss(LambdaLoss):
    """The sum over pairs with y_i > y_j of `c_ij log2(1 + exp(-sigma (s_i - s_j)))`.

    c_ij is by how much NDCG would change if i and j swapped places. This is `LambdaLoss` with mu = 0; see there for
    equal scores and weights. At least 0. Lists of one grade are left out.

    Args:
        sigma: steepness; the scores are multiplied by it.
        k: train for NDCG@k; None is the whole list.
        gain: "exp2" for 2^y - 1, "linear" for y, or a function of grades.
        lists, empty, reduction: see `ListLoss`.

    Example:
        >>> LambdaRankLoss()(torch.tensor([0.2, 0.1]), torch.tensor([1, 0]))
        tensor(0.3431)

    Paper: Burges et al., Learning to rank with nonsmooth cost functions, NeurIPS 2006.
    """

    def __init__(
        self,
        *,
        sigma: float = 1.0,
        k: int | None = None,
        gain: Gain = "exp2",
        lists: str = "rows",
        empty: str = "skip",
        reduction: str = "mean",
    ) -> None:
        super().__init__(sigma=sigma, mu=0, k=k, gain=gain, lists=lists, empty=empty, reduction=reduction)


@dataclass(frozen=True)
class _Standing:
    """Where items stand by score, (Q, L) in order of grade; equal scores stand together.

    Attributes:
        discount: the mean discount over the positions of the group.
        spread: the mean difference between two discounts of the group.
        start: the first position of the group, from 0; it names the group.
        middle: twice the mean position.
        tied: whether any group has several items.
    """

    discount: Tensor
    spread: Tensor
    start: Tensor
    middle: Tensor
    tied: bool


def _standing(lists: Lists, graded: RankedLists, k: int | None) -> _Standing:
    ranked = rank(lists)
    # What was found in order of score, at the place of the item, then in order of grade.
    place = torch.empty_like(ranked.order).scatter_(1, ranked.order, ranked.start).gather(1, graded.order)
    size = torch.empty_like(ranked.order).scatter_(1, ranked.order, ranked.end - ranked.start).gather(1, graded.order)
    worth = discounts(lists.mask.shape[1], k, lists.scores)
    # Sums of d(p) and p d(p) up to each position give those over any group.
    steps = torch.arange(len(worth), device=worth.device)
    sums, moments = (pad(t.cumsum(0), (1, 0)) for t in (worth, worth * steps))
    total, moment = (t[place + size] - t[place] for t in (sums, moments))
    spread = 2 * ((size - 1 + 2 * place) * total - 2 * moment) / (size * (size - 1)).clamp_min(1)
    dtype = lists.scores.dtype
    middle = 2 * place + size
    return _Standing((total / size).to(dtype), spread.to(dtype), place.int(), middle.int(), ranked.tied)


def _nearness(lists: Lists) -> Tensor:
    """|d(r) - d(r + 1)| at half the index, r = 1 at index 2."""
    distance = torch.arange(2 * lists.mask.shape[1] + 1, dtype=torch.float64, device=lists.scores.device).clamp_min_(2)
    return (1 / torch.log2(1 + distance / 2) - 1 / torch.log2(2 + distance / 2)).to(lists.scores.dtype)


RECORDS = (
    LossRecord(
        name="lambdaloss",
        aliases=("ndcg-loss2++",),
        summary="pairs weighed by the change of NDCG and the distance of ranks (NDCG-Loss2++)",
        build=LambdaLoss,
        role="baseline",
        labels="grades",
        paper="Wang et al., CIKM 2018",
    ),
    LossRecord(
        name="lambdarank",
        summary="pairs weighed by the change of NDCG if they swapped places",
        build=LambdaRankLoss,
        role="baseline",
        labels="grades",
        paper="Burges et al., NeurIPS 2006",
    ),
)
