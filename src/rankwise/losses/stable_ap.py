"""Stable AP: average precision as one weighted pairwise loss, in which each example has a bounded influence."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rankwise.checks import check_choice, check_positive, check_range, first_order_only, widen
from rankwise.estimators import MeanTracker
from rankwise.estimators.groups import COSINES, RANGES, BatchPrior, Link, Prior, as_prior
from rankwise.lists import PackedLists, Sides, split_sides, take
from rankwise.losses.base import ListLoss
from rankwise.pairs import mean_over_negatives
from rankwise.registry import LossRecord
from rankwise.sorting import argsort
from rankwise.surrogates import OneSidedHuber

__all__ = ["StableAPLoss"]


class StableAPLoss(ListLoss):
    """Upper bound of 1 - AP in which the ranks of the positives are constant weights.

        h(x) = sqrt(eps^2 + x / (1 + x)),   x = rho * mean over positives i of  w_i * l_i,

    where l_i is the mean of the one-sided Huber surrogate l of s_i - s_j over the negatives j. The weight of a positive
    grows with its score, because a negative at the top of the ranking lowers AP most:

        w_i = ((1 + a) / (r_i + a))^t,   r_i = l(s_i - mu) / B,

    where mu is the running mean of the group's positive scores and B the largest l within the range of the scores. No
    gradient flows through w_i: it would lower the score of a positive to lower its weight. In [eps, sqrt(1 + eps^2));
    eps is perfect.

    Replacing one of n examples changes the value by O(1/n), while smooth forms of AP itself can jump by O(1). The
    training value therefore generalises better to new data.

    Args:
        rho: negatives per positive. A number; "batch" takes those of the list in the batch; "dataset" takes `prior`.
            The true ratio makes the value a bound of 1 - AP. But with very many negatives x is large for nearly every
            ranking, h is flat there and training stalls: then use a number, or `outer="batch"`.
        prior: with rho="dataset" the share of positives in the data, rho = (1 - prior) / prior; all types that
            `AUPRCLoss` accepts, including `data_prior(labels)` and `PriorSchedule`.
        outer: "list" applies h to each list and takes the mean; "batch" applies h once, to the mean of x over the lists
            of the batch (with `reduction="none"` h is applied to each list).
        tau: margin of the Huber surrogate; a pair this far apart has a loss of 0.
        eps: keeps the slope of h finite near the minimum, where it is 1 / (2 eps).
        a, t: shape of the weights: from ((1 + a) / a)^t far above mu down to 1.
        weighting: "mean" weighs by the distance from mu; "rank" by the exact rank among the list's positives, with the
            weights for which the bound is proved. These are ranks in the batch, so it needs whole lists; it keeps no
            state.
        score_range: lowest and highest score; only the difference counts, B = 1 + 2 (highest - lowest) / tau. None is
            (0, 1) with `link="sigmoid"`, else (-1, 1). Scores may leave it: r_i is clamped to 1, so a positive further
            below mu than the width of the range has weight 1. Only the proof needs scores in the range.
        update_rate: weight of the new batch in mu; 1 takes the batch's mean.
        link: map of scores to that range, see `AUPRCLoss`.
        lists, empty, reduction: see `ListLoss`; `lists="columns"` takes (B, C) outputs as one list per class.

    The defaults were chosen on the validation parts of two tasks, see `benchmarks/quality/stable_ap.py`; a, t and
    `update_rate` are the paper's.

    With `previous_scores` (see `rankwise.training.PreviousWeights`) mu does not lag behind the weights, see
    `MeanTracker`.

    Example:
        >>> loss = StableAPLoss()
        >>> scores = torch.tensor([0.9, 0.2, 0.4, 0.1], requires_grad=True)
        >>> value = loss(scores, torch.tensor([1, 1, 0, 0]))
        >>> value.backward()
        >>> bool(scores.grad[1] < 0 < scores.grad[2]), loss.skipped
        (True, 0)

    Paper: Wen et al., Generalizable Stochastic Average Precision Learning via Stable Surrogate Loss, Chinese Journal of
    Computers 2025, with its misprints corrected.
    """

    remembers = ("link.kind",)

    def __init__(
        self,
        rho: float | str = 1.0,
        *,
        prior: float | Tensor | Prior | None = None,
        outer: str = "list",
        tau: float = 0.3,
        eps: float = 0.1,
        a: float = 0.1,
        t: float = 2.0,
        weighting: str = "mean",
        score_range: Sequence[float] | None = None,
        update_rate: float = 0.01,
        link: str = "scale",
        lists: str = "rows",
        empty: str = "skip",
        reduction: str = "mean",
    ) -> None:
        super().__init__(lists=lists, empty=empty, reduction=reduction)
        self.rho, self.prior = _checked_rho(rho, prior)
        self.outer = check_choice("outer", outer, ("list", "batch"))
        self.surrogate = OneSidedHuber(check_positive("tau", tau))
        self.eps, self.a, self.t = check_positive("eps", eps), check_positive("a", a), check_positive("t", t, zero=True)
        self.weighting = check_choice("weighting", weighting, ("mean", "rank"))
        self.tracker = MeanTracker(update_rate) if weighting == "mean" else None
        self.link = Link(link)
        self.largest = 1 + 2 * _width(score_range, link) / tau

    def per_list(self, packed: PackedLists, group_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        sides = [split_sides(lists) for lists in packed.blocks]
        valid = packed.join([side.valid for side in sides])
        rho: Tensor | float = self.rho
        if self.prior is not None:
            rho = self.prior.odds(lambda: packed.join([side.rate for side in sides]), group_ids)
        linked, scale = self.link.with_scale(packed, group_ids)
        positives = [take(lists.scores.detach(), side.index) for lists, side in zip(linked.blocks, sides, strict=True)]
        weights = (
            self._weights_by_mean(linked, sides, positives, scale, group_ids)
            if self.tracker is not None
            else self._weights_by_rank(linked, sides, positives, rho)
        )
        sums = [
            (side.share * weight * mean_over_negatives(lists, side, self.surrogate)).sum(1)
            for lists, side, weight in zip(linked.blocks, sides, weights, strict=True)
        ]
        # Keeps x / (1 + x) from becoming inf / inf.
        x = (rho * packed.join(sums)).clamp_max(1e30)
        if self.tracker is not None:
            first_order_only(x, type(self).__name__, "its gradient holds the weights of the positives fixed")
        if self.outer == "list" or self.reduction == "none":
            return self._h(x), valid
        x = x.where(valid, 0)
        mean = x.sum() / valid.sum().clamp_min(1)
        # Values on the tangent of h at the mean: their mean over the lists is h(mean), in value and gradient.
        slope = 0.5 / (self._h(mean) * (1 + mean).square()).detach()
        return self._h(mean) + slope * (x - mean), valid

    def _h(self, x: Tensor) -> Tensor:
        return torch.sqrt(x / (1 + x) + self.eps**2)

    @torch.no_grad()
    def _weights_by_mean(
        self,
        linked: PackedLists,
        sides: Sequence[Sides],
        positives: Sequence[Tensor],
        scale: Tensor | None,
        group_ids: Tensor | None,
    ) -> list[Tensor]:
        """Compute the weights ((1 + a) / (r + a))^t from the distance to the running mean, (Q, A) for each block."""
        assert self.tracker is not None
        # The mean is stored in units of the raw scores, so that it stays valid when the scale changes.
        unit: Tensor | float = 1.0 if scale is None else scale.to(positives[0].dtype)
        pairs = list(zip(linked.blocks, sides, positives, strict=True))
        observed = linked.join([(scores * side.share).sum(1) for _, side, scores in pairs]) * unit
        before = [
            (take(lists.previous_scores, side.index) * side.share).sum(1)
            for lists, side, _ in pairs
            if lists.previous_scores is not None
        ]
        valid = linked.join([side.valid for side in sides])
        previous = linked.join(before) * unit if before else None
        mean = self.tracker(observed, valid, group_ids, previous) / unit
        weights = []
        for lists, _, scores in pairs:
            relative = self.surrogate.value(scores - linked.column(mean, lists)) / self.largest
            weights.append(((1 + self.a) / (relative.clamp_max(1) + self.a)) ** self.t)
        return weights

    @torch.no_grad()
    def _weights_by_rank(
        self, linked: PackedLists, sides: Sequence[Sides], positives: Sequence[Tensor], rho: Tensor | float
    ) -> list[Tensor]:
        """Compute w(r) of Theorem 1, r the share of positives at or above each one, (Q, A) for each block."""
        weights = []
        for lists, side, scores in zip(linked.blocks, sides, positives, strict=True):
            rank = _share_at_or_above(scores, side)
            most = self.largest * linked.column(rho, lists)
            # w jumps at 1/2, and 3 * (1/6) may round to slightly more.
            upper = rank <= 0.5 + 1e-6
            head = 0.5 / (rank * (1 - rank)).where(upper, 0.25).clamp_min(torch.finfo(rank.dtype).tiny).sqrt()
            weights.append(head.where(upper, (1 + most) / (rank + most)))
        return weights


def _share_at_or_above(scores: Tensor, side: Sides) -> Tensor:
    """Compute the share of a list's positives that score at least as high as each of them, (Q, A)."""
    order = argsort(-scores, side.mask)
    # Padding sorts last and ties with no item.
    depths = (-scores).masked_fill(~side.mask, torch.inf)
    end = torch.searchsorted(depths.gather(1, order), depths, right=True)
    share = widen(side.share.gather(1, order)).cumsum(1)
    return share.gather(1, (end - 1).clamp_min(0)).to(scores.dtype)


def _checked_rho(rho: object, prior: object) -> tuple[float, Prior | None]:
    """Return rho as a number, or the prior from which it is computed."""
    if isinstance(rho, str):
        check_choice("rho", rho, ("batch", "dataset"))
        if rho == "dataset":
            if prior is None:
                raise ValueError(
                    'prior: expected the share of positives in the data set, because rho="dataset", got None; '
                    "`data_prior(labels)` computes it"
                )
            return 1.0, as_prior(prior)
    if prior is not None:
        raise ValueError(f'prior: expected None unless rho="dataset", got {prior!r} with rho={rho!r}')
    if isinstance(rho, str):
        return 1.0, BatchPrior()
    return check_positive("rho", rho), None  # type: ignore[arg-type]


def _width(score_range: Sequence[float] | None, link: str) -> float:
    """Return the width of the range of the scores."""
    low, high = RANGES.get(link, COSINES) if score_range is None else check_range("score_range", score_range)
    return high - low


RECORDS = (
    LossRecord(
        name="stable-ap",
        summary="average precision, as a bound that no single example can move far",
        build=StableAPLoss,
        role="paper",
        paper="Wen et al., Chinese Journal of Computers 2025",
    ),
)
