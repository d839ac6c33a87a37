"""Pairwise baselines: RankNet, BPR, LambdaRank, LambdaLoss, pairwise AUROC."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from rankwise.checks import check_choice, check_k, check_positive, on_host, wide_dtype
from rankwise.estimators.groups import Link
from rankwise.lists import Lists, PackedLists, split_sides
from rankwise.losses.base import ListLoss
from rankwise.losses.baselines.shared import (
    by_grade,
    discounts,
    grades_differ,
    item_weights,
    normalised_gains,
    relative_weights,
)
from rankwise.pairs import mean_over_negatives
from rankwise.pairs.sums import DEVICE_CHUNK
from rankwise.ranks import RankedLists, rank
from rankwise.registry import LossRecord
from rankwise.sorting import once_on_device
from rankwise.surrogates import Gain, Logistic, OneSidedHuber, Sigmoid, Surrogate, gain_function

__all__ = ["BPRLoss", "LambdaLoss", "LambdaRankLoss", "Pairs", "PairwiseAUROCLoss", "RankNetLoss", "preference_sums"]

SURROGATES = ("sigmoid", "huber")

# Pairs of one chunk: 1 MiB in float32.
_CHUNK = 2**18

# Better items of one list in a chunk. With fewer, more pairs of equal grade are skipped.
_BETTER = 64


class RankNetLoss(ListLoss):
    """Logistic loss of pairs: the mean over all pairs of items with y_i > y_j of `log(1 + exp(-sigma (s_i - s_j)))`.

    At least 0; log 2 for constant scores. The weight of a pair is the product of its items' weights. Lists of one grade
    have no pair and are left out. Memory is O(Q L), because pairs are computed in chunks.

    Args:
        sigma: steepness; the scores are multiplied by it.
        lists, empty, reduction: see `ListLoss`.

    Example:
        >>> RankNetLoss()(torch.tensor([0.0, 0.0, 0.0]), torch.tensor([2, 0, 1]))
        tensor(0.6931)

    Paper: Burges et al., Learning to rank using gradient descent, ICML 2005.
    """

    label_kind = "grades"

    def __init__(
        self, *, sigma: float = 1.0, lists: str = "rows", empty: str = "skip", reduction: str = "mean"
    ) -> None:
        super().__init__(lists=lists, empty=empty, reduction=reduction)
        self.surrogate = Logistic(1 / check_positive("sigma", sigma))

    def per_list(self, packed: PackedLists, group_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        values, valid = packed.map(self._mean_over_pairs)
        return values, valid

    def _mean_over_pairs(self, lists: Lists) -> tuple[Tensor, Tensor]:
        graded = by_grade_on_host(lists)
        weights = graded.sort(item_weights(lists))

        def weigh(pairs: Pairs) -> Tensor:
            better, worse = pairs.outer(weights)
            return better * worse

        totals = lists.scores.new_zeros(len(lists.scores))
        sums = preference_sums(lists, graded, self.surrogate, weigh, totals=totals)
        return sums / totals.clamp_min(torch.finfo(sums.dtype).tiny), totals > 0


class BPRLoss(RankNetLoss):
    """Bayesian personalised ranking: `-log sigmoid(s_i - s_j)`, i relevant, j not, on average over all such pairs.

    This is `RankNetLoss` for labels of 0 and 1: all relevant items of a list against all its irrelevant ones. Use a
    sampler for the paper's single random negative per positive, and weight decay for its L2 penalty.

    Example:
        >>> import torch
        >>> BPRLoss()(torch.tensor([0.0, 0.0, 0.0]), torch.tensor([1, 0, 0]))
        tensor(0.6931)

    Paper: Rendle et al., BPR: Bayesian personalized ranking from implicit feedback, UAI 2009.
    """

    label_kind = "binary"


class LambdaLoss(ListLoss):
    """NDCG-Loss2++, the sum over pairs with y_i > y_j of `w_ij log2(1 + exp(-sigma (s_i - s_j)))`.

    `w_ij = |G_i - G_j| (|D_i - D_j| + mu |d(r) - d(r + 1)|)`, with gains G divided by the ideal DCG, discounts
    d(p) = 1 / log2(1 + p), D the discounts at the current ranks and r the distance of the two ranks. No gradient flows
    through w. At least 0. Lists of one grade are left out.

    In a tie group, D and |D_i - D_j| are means over its permutations; r is the distance of mean ranks, at least 1. Each
    pair is also multiplied by the weights of its two items, scaled to a mean of 1 per list. Memory is O(Q L), because
    pairs are computed in chunks.

    Args:
        sigma: steepness; the scores are multiplied by it.
        mu: weight of the term in the distance of ranks; 0 is LambdaRank.
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
        self._rising = isinstance(gain, str)

    def per_list(self, packed: PackedLists, group_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        values, valid = packed.map(self._weighted_pairs)
        return values, valid

    def _weighted_pairs(self, lists: Lists) -> tuple[Tensor, Tensor]:
        graded = by_grade_on_host(lists)
        gains = graded.sort(normalised_gains(lists, self.gain, self.k, weighted=False))
        weights = None if lists.weights is None else graded.sort(relative_weights(lists))
        groups = _tie_groups(lists, graded, self.k)
        dtype, device = lists.scores.dtype, lists.scores.device
        # Without padding and with a gain that rises with the grade, the better item is the one of larger gain.
        signed = self._rising and lists.full and lists.mask.shape[1] > 0
        nearness: Tensor | None = None
        if self.mu:
            nearness = (self.mu * _nearness(lists.mask.shape[1], wide_dtype(device), device)).to(dtype)

        def weigh(pairs: Pairs) -> Tensor:
            high, low = pairs.outer(groups.discount)
            swap = (high - low).abs_()
            start, other_start = pairs.outer(groups.start)
            if groups.tied:
                swap = torch.where(start == other_start, groups.spread[pairs.lists, pairs.better, None], swap)
            if nearness is not None:
                middle, other_middle = pairs.outer(groups.middle)
                distance = (middle - other_middle).abs_().clamp_min_(2)
                near = nearness[distance]
                swap += near if self.k is None else near.mul_((start < self.k) | (other_start < self.k))
            better, worse = pairs.outer(gains)
            swap *= (better - worse).clamp_min_(0) if signed else (better - worse).abs_()
            if weights is not None:
                weight, other_weight = pairs.outer(weights)
                swap *= weight * other_weight
            return swap

        sums = preference_sums(lists, graded, self.surrogate, weigh, signed=signed)
        if signed:
            lowest, highest = torch.aminmax(gains, dim=1)
            return sums, lowest < highest
        return sums, grades_differ(lists) & (gains > 0).any(1)


class LambdaRankLoss(LambdaLoss):
    """Weighted logistic loss of pairs: the sum over y_i > y_j of `c_ij log2(1 + exp(-sigma (s_i - s_j)))`.

    c_ij is the change of NDCG if i and j swapped ranks. This is `LambdaLoss` with mu = 0; see there for equal scores
    and weights. At least 0. Lists of one grade are left out.

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
class _TieGroups:
    """Ranks and discounts of items by score, shared within tie groups; (Q, L) each, sorted by grade.

    Attributes:
        discount: the mean discount over the positions of the group.
        spread: the mean difference between two discounts of the group.
        start: index of the first item of the group; it identifies the group.
        middle: twice the mean position.
        tied: whether any group has several items.
    """

    discount: Tensor
    spread: Tensor
    start: Tensor
    middle: Tensor
    tied: bool


def _tie_groups(lists: Lists, graded: GradeOrder, k: int | None) -> _TieGroups:
    if graded.ranked is None:
        tied = True
        falling = -lists.scores.detach()
        if not lists.full:
            falling = falling.masked_fill(~lists.mask, torch.inf)
        ascending = falling.sort(1).values
        start, end = (torch.searchsorted(ascending, falling, right=right) for right in (False, True))
    else:
        ranked = rank(lists)
        tied = ranked.tied
        # From the order by score back to that of the input (scatter), then to the order by grade.
        start, end = (graded.sort(torch.empty_like(t).scatter_(1, ranked.order, t)) for t in (ranked.start, ranked.end))
    wide, device, width = wide_dtype(lists.scores.device), lists.scores.device, lists.mask.shape[1]
    middle = start + end
    sums = _discount_sums(width, k, wide, device)
    total, moment = sums_of_groups = sums[:, end] - sums[:, start]
    moment += middle * total
    means = (sums_of_groups * _shares(width, wide, device)[:, end - start]).to(lists.scores.dtype)
    index = torch.int64 if graded.ranked is None else torch.int32  # half as much to compare on the CPU
    return _TieGroups(means[0], means[1], start.to(index), middle.to(index), tied)


# The discounts of pairs are d(p) / log 2 = 1 / log(p + 1), because log2(1 + exp(-x)) is log(1 + exp(-x)) / log 2.


@once_on_device
def _discount_sums(length: int, k: int | None, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return the sums of d(p) and of -(2 p - 1) d(p) up to each position p, (2, length + 1); they give those of any
    group. For a group from `start` to `end` the second, plus (start + end) times the first, is the sum of |d(p) - d(q)|
    over its pairs.
    """
    discount = discounts(length, k, dtype, device) / math.log(2)
    odd = 2 * torch.arange(length, dtype=dtype, device=device) + 1
    return pad(torch.stack([discount, -odd * discount]).cumsum(1), (1, 0))


@once_on_device
def _shares(length: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return the shares of an item and of a pair in a group of n = 0, 1, ... items, 1 / n and 2 / (n (n - 1)); the
    latter is 0 below 2: (2, length + 1).
    """
    n = torch.arange(length + 1, dtype=dtype, device=device)
    return torch.stack([1 / n.clamp_min(1), 2 / (n * (n - 1)).clamp_min(1) * (n > 1)])


@once_on_device
def _nearness(length: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return |d(r) - d(r + 1)| for r = index / 2, at least 1, up to the length of a list."""
    distance = torch.arange(2 * length + 1, dtype=dtype, device=device).clamp_min_(2)
    return 1 / torch.log1p(distance / 2) - 1 / torch.log1p(1 + distance / 2)


class PairwiseAUROCLoss(ListLoss):
    """Smooth loss for AUROC: the mean of a surrogate of s_i - s_j over all positives i and negatives j of a list.

    Args:
        surrogate: "sigmoid", 1 / (1 + exp(x / tau)), or "huber", the one-sided Huber of width tau. Long lists take
            O(n) or O(n log n), see `rankwise.pairs`.
        tau: width of the surrogate.
        link: map of scores to about [-1, 1], see `AUPRCLoss`.
        lists, empty, reduction: see `ListLoss`.

    Example:
        >>> import torch
        >>> PairwiseAUROCLoss()(torch.tensor([0.9, -0.4, 0.6, -0.9]), torch.tensor([1, 1, 0, 0]))
        tensor(0.2635)

    Paper: Yan et al., Optimizing Classifier Performance via an Approximation to the Wilcoxon-Mann-Whitney Statistic,
    ICML 2003.
    """

    remembers = ()

    def __init__(
        self,
        surrogate: str = "sigmoid",
        tau: float = 0.1,
        *,
        link: str = "scale",
        lists: str = "rows",
        empty: str = "skip",
        reduction: str = "mean",
    ) -> None:
        super().__init__(lists=lists, empty=empty, reduction=reduction)
        check_choice("surrogate", surrogate, SURROGATES)
        check_positive("tau", tau)
        self.surrogate: Surrogate = Sigmoid(tau) if surrogate == "sigmoid" else OneSidedHuber(tau)
        self.link = Link(link)

    def per_list(self, packed: PackedLists, group_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        values, valid = self.link(packed, group_ids).map(self._block_values)
        return values, valid

    def _block_values(self, lists: Lists) -> tuple[Tensor, Tensor]:
        sides = split_sides(lists)
        wrong = mean_over_negatives(lists, sides, self.surrogate)
        return (wrong * sides.share).sum(1), sides.valid


@dataclass(frozen=True)
class Pairs:
    """Chunk of pairs: slices of lists, of their better items and of their worse items, sorted by grade."""

    lists: slice
    better: slice
    worse: slice

    def outer(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return (Q, L) values of the better (q, b, 1) and of the worse items (q, 1, w), to broadcast."""
        return values[self.lists, self.better, None], values[self.lists, None, self.worse]

    def difference(self, values: Tensor) -> Tensor:
        """Return better minus worse, (q, b, w), of (Q, L) values."""
        better, worse = self.outer(values)
        return better - worse

    def add(self, totals: Tensor, slopes: Tensor) -> None:
        """Add slopes (q, b, w) in the differences to the slopes (Q, L) in the values."""
        totals[self.lists, self.better].add_(slopes.sum(2))
        totals[self.lists, self.worse].sub_(slopes.sum(1))


@dataclass(frozen=True)
class GradeOrder:
    """Order of the items of lists in pairs: by grade on the CPU, where it saves most pairs that do not count.

    On an accelerator the order is that of the input, and all pairs are computed.

    Attributes:
        lists: the lists; ranked: their items sorted by grade, best first, or None.
    """

    lists: Lists
    ranked: RankedLists | None

    def sort(self, values: Tensor) -> Tensor:
        """Return values (Q, L) of the items in this order."""
        return values if self.ranked is None else values.gather(1, self.ranked.order)

    def differ(self) -> Callable[[Pairs], Tensor]:
        """Return a function that returns the mask (q, b, w) of those pairs of a chunk that differ in grade."""
        if self.ranked is None:
            labels, mask = self.lists.labels, self.lists.mask

            def higher(pairs: Pairs) -> Tensor:
                better, worse = pairs.outer(labels)
                return better > worse if self.lists.full else (better > worse) & pairs.outer(mask)[1]

            return higher
        index = torch.arange(self.lists.mask.shape[1], dtype=torch.int32)
        end, size = self.ranked.end.int(), self.ranked.size.int()

        def behind(pairs: Pairs) -> Tensor:
            below = index[pairs.worse] >= end[pairs.lists, pairs.better, None]
            return below & (index[pairs.worse] < size[pairs.lists, None, None])

        return behind

    @property
    def one_chunk(self) -> bool:
        """Return whether all pairs are one chunk."""
        lists, length = self.lists.mask.shape
        return self.ranked is None and 0 < lists * length**2 <= DEVICE_CHUNK

    def chunks(self) -> Iterator[Pairs]:
        """Yield chunks that cover all pairs of a better and a worse item, and on the CPU few others."""
        lists, length = self.lists.mask.shape
        if not lists or not length:
            return
        ranked = self.ranked
        if ranked is None:
            yield from _all_chunks(lists, length)
            return
        anchors = (ranked.end < ranked.size[:, None]).sum(1)
        items = max(1, min(int(anchors.max()), _BETTER, _CHUNK // length))
        rows = max(1, _CHUNK // (items * length))
        for row in range(0, lists, rows):
            some = slice(row, row + rows)
            last = int(anchors[some].max())
            for first in range(0, last, items):
                # No item before the end of the first item's tie group is worse than any of these better items.
                worse = slice(int(ranked.end[some, first].min()), length)
                yield Pairs(some, slice(first, min(first + items, last)), worse)


def by_grade_on_host(lists: Lists) -> GradeOrder:
    """Return the order of the items in pairs."""
    return GradeOrder(lists, by_grade(lists) if on_host(lists.labels) else None)


PairWeights = Callable[[Pairs], Tensor]


def preference_sums(
    lists: Lists,
    graded: GradeOrder,
    surrogate: Logistic,
    weigh: PairWeights,
    *,
    signed: bool = False,
    totals: Tensor | None = None,
) -> Tensor:
    """Compute sum_{i, j: y_i > y_j} w_ij l(s_i - s_j) of each list, (Q,).

    Value and slope of each pair are computed together, in chunks, so memory is O(Q L). Twice differentiable.

    Args:
        lists: the lists with the scores.
        graded: the order of their items in pairs.
        surrogate: the function l.
        weigh: function that returns the weights w (q, b, w) of a chunk of pairs, as a new tensor, in that order.
        signed: whether these weights are 0 already unless y_i > y_j.
        totals: (Q,) zeros, to which the sums of w_ij are added; None if they are not needed.
    """
    scores = graded.sort(lists.scores)
    differ = graded.differ()

    def weighted_pairs() -> Iterator[tuple[Pairs, Tensor]]:
        for pairs in graded.chunks():
            weights = weigh(pairs)
            yield pairs, weights if signed else weights.mul_(differ(pairs))

    def evaluated(scores: Tensor) -> Iterator[tuple[Pairs, Tensor, Tensor]]:
        for pairs, weights in weighted_pairs():
            if totals is not None:
                totals[pairs.lists].add_(weights.sum((1, 2)))
            value, slope = surrogate.value_and_slope(pairs.difference(scores))
            yield pairs, value.mul_(weights).sum((1, 2)), slope.mul_(weights)

    def values_and_slopes(scores: Tensor) -> tuple[Tensor, Tensor]:
        if graded.one_chunk:
            ((_, value, slope),) = evaluated(scores)
            return value, slope.sum(2) - slope.sum(1)
        values, slopes = scores.new_zeros(len(scores)), torch.zeros_like(scores)
        for pairs, value, slope in evaluated(scores):
            values[pairs.lists].add_(value)
            pairs.add(slopes, slope)
        return values, slopes

    def slopes_along(scores: Tensor, direction: Tensor) -> Tensor:
        changes = torch.zeros_like(scores)
        for pairs, weights in weighted_pairs():
            curvature = surrogate.curvature(pairs.difference(scores)).mul_(weights)
            pairs.add(changes, curvature.mul_(pairs.difference(direction)))
        return changes

    values: Tensor = _OnePass.apply(scores, values_and_slopes, slopes_along)
    return values


def _all_chunks(lists: int, length: int) -> Iterator[Pairs]:
    """Yield chunks of all pairs of two items, so that the host does not synchronise to read the grades."""
    rows, items = max(1, DEVICE_CHUNK // length**2), max(1, min(length, DEVICE_CHUNK // length))
    for row in range(0, lists, rows):
        for first in range(0, length, items):
            yield Pairs(slice(row, row + rows), slice(first, min(first + items, length)), slice(0, length))


class _OnePass(torch.autograd.Function):
    """Compute values (Q,) of scores (Q, L) and their gradient in one pass, so that no (Q, L, L) tensor is saved."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, values_and_slopes: Any, slopes_along: Any) -> Tensor:
        values, slopes = values_and_slopes(scores.detach())
        ctx.save_for_backward(scores, slopes)
        ctx.slopes_along = slopes_along
        return values  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        scores, slopes = ctx.saved_tensors
        if torch.is_grad_enabled():
            slopes = _Slopes.apply(scores, slopes, ctx.slopes_along)
        return grad[:, None] * slopes, None, None


class _Slopes(torch.autograd.Function):
    """Return precomputed slopes (Q, L) as a differentiable function of the scores (Q, L)."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, slopes: Tensor, slopes_along: Any) -> Tensor:
        ctx.save_for_backward(scores)
        ctx.slopes_along = slopes_along
        return slopes.clone()

    @staticmethod
    def backward(ctx: Any, direction: Tensor) -> tuple[Tensor, None, None]:
        if torch.is_grad_enabled():
            raise RuntimeError("scores: third derivatives are not supported")
        (scores,) = ctx.saved_tensors
        return ctx.slopes_along(scores, direction), None, None


RECORDS = (
    LossRecord(
        name="ranknet",
        summary="logistic loss of all pairs of different grades",
        build=RankNetLoss,
        role="baseline",
        labels="grades",
        paper="Burges et al., ICML 2005",
    ),
    LossRecord(
        name="bpr",
        summary="logistic loss of all pairs of a relevant and an irrelevant item",
        build=BPRLoss,
        role="baseline",
        paper="Rendle et al., UAI 2009",
    ),
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
        summary="pairs weighed by the change of NDCG if they swapped ranks",
        build=LambdaRankLoss,
        role="baseline",
        labels="grades",
        paper="Burges et al., NeurIPS 2006",
    ),
    LossRecord(
        name="pairwise-auroc",
        aliases=("auroc",),
        summary="area under the ROC curve, over all pairs",
        build=PairwiseAUROCLoss,
        role="baseline",
        paper="Yan et al., ICML 2003",
        advice="all thresholds matter alike, not the top of the ranking",
    ),
)
