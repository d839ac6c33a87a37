"""SONG, K-SONG and SOLC: losses for NDCG, NDCG@k and listwise cross entropy, from a few items of each list."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rankwise.checks import check_choice, check_positive, first_order_only
from rankwise.estimators.thresholds import ThresholdTracker
from rankwise.lists import Lists, anchors_that_count, surely_all, take
from rankwise.losses.sampled_lists import CompositionalLoss, ListStatistics, Sample
from rankwise.pairs import pair_sums_within
from rankwise.registry import LossRecord
from rankwise.surrogates import Gain, SquaredHinge

__all__ = ["ListwiseCELoss", "NDCGLoss", "TopKNDCGLoss"]

# Keeps sums of squares from becoming infinite.
_WORST_RANK = 1e30
# Of scores in general, and of cosines: these are never more than 2 apart, and rarely 1.
_MARGIN, _COSINE_MARGIN = 1.0, 0.1


class NDCGLoss(CompositionalLoss):
    """Loss for NDCG: 1 - NDCG with a smooth upper bound of each relevant item's rank.

        1 - 1/Z * sum over relevant i of gain_i / log2(1 + r_i + shift),   r_i = sum_j max(0, margin + s_j - s_i)^2

    over all items j of the list, i included; Z is the ideal DCG. In [0, 1] for whole lists, and with a margin of 1 or
    more never less than 1 - NDCG.

    With whole lists in the batch, r is exact and the loss has no state. With a few items of each list, pass
    `statistics`: then r is estimated from the relevant and irrelevant items of the batch, each weighted by the number
    of list items it represents, and smoothed by a moving average for each (query, item) pair. That value is an
    estimate, unbiased over the draws of relevant items; if those are few, it can leave [0, 1].

    Args:
        statistics: statistics of the lists of the training data. None: every batch holds whole lists.
        margin: c; below 1 the value is no longer a bound. None: 1, or .1 where the scores are known to be cosines
            (`EmbeddingLoss`), of which a lead of 1 is out of reach. Cosines times 20 take a margin of 2.
        gain: "exp2", "linear" or a function of grades, as in the metric.
        discount_shift: 0 is NDCG's own discount. A larger one puts less weight on the first positions, which overfits
            less if lists are long and labels few (recommendation, a whole corpus: about 30). Values then start nearer
            to 1.
        update_rate: weight of the new estimate in the moving average, in (0, 1]; 1 keeps no average. Only with
            `statistics`.
        self_weight: weight of an item in its own estimated rank. "exact": as one item of the whole list, without bias.
            "sample": as one item of the batch, which avoids ranks that are too good when few items of a long list are
            drawn, and trained better. "naive": the plain mean over the batch, for any share of relevant items. Only
            with `statistics`.
        lists, empty, reduction: see `ListLoss`.

    Example:
        >>> loss = NDCGLoss()
        >>> scores = torch.tensor([0.2, 0.9, 0.1], requires_grad=True)
        >>> value = loss(scores, torch.tensor([2, 0, 1]))
        >>> value.backward()
        >>> bool(0 < value < 1), bool(scores.grad[0] < 0 < scores.grad[1])
        (True, True)

    Paper: Qiu et al., Large-scale Stochastic Optimization of NDCG Surrogates for Deep Learning with Provable
    Convergence, ICML 2022 (SONG), with its misprints corrected.
    """

    remembers = ("surrogate.margin", "gain", "self_weight")

    def __init__(
        self,
        statistics: ListStatistics | None = None,
        *,
        margin: float | None = None,
        gain: Gain = "exp2",
        discount_shift: float = 0.0,
        update_rate: float = 0.1,
        self_weight: str = "sample",
        lists: str = "rows",
        empty: str = "skip",
        reduction: str = "mean",
    ) -> None:
        super().__init__(
            statistics,
            gain=gain,
            update_rate=update_rate,
            self_weight=self_weight,
            lists=lists,
            empty=empty,
            reduction=reduction,
        )
        self.surrogate, self.of_cosines = _surrogates(margin)
        self.discount_shift = check_positive("discount_shift", discount_shift, zero=True)

    def inner(self, lists: Lists, sample: Sample) -> Tensor:
        return surrogate_ranks(lists, sample, self.of_cosines if lists.cosines else self.surrogate)

    def outer(self, lists: Lists, sample: Sample, inner: Tensor, group_ids: Tensor | None) -> Tensor:
        return 1 - discounted(sample.gains, inner + self.discount_shift).sum(1) / sample.ideal


def _surrogates(margin: float | None) -> tuple[SquaredHinge, SquaredHinge]:
    """Return the surrogate for scores in general, and that for cosines."""
    if margin is None:
        return SquaredHinge(_MARGIN), SquaredHinge(_COSINE_MARGIN)
    given = SquaredHinge(check_positive("margin", margin))
    return given, given


def discounted(gains: Tensor, ranks: Tensor) -> Tensor:
    """Compute gains / log2(1 + ranks); log1p keeps the precision of ranks near 0, which tiny weights cause."""
    return gains * math.log(2) / torch.log1p(ranks)


def surrogate_ranks(lists: Lists, sample: Sample, surrogate: SquaredHinge) -> Tensor:
    """Compute the surrogate rank r of each relevant item, (Q, A); finite and above 0 in the padding."""
    ranks = pair_sums_within(
        lists.scores,
        sample.index,
        surrogate,
        weights=sample.represented,
        anchor_mask=anchors_that_count(sample.index, sample.padding),
        other_mask=None if lists.full else lists.mask,
    )
    own = surrogate.margin**2
    if sample.self_correction is not None:
        ranks = torch.add(ranks, sample.self_correction, alpha=own)
    elif sample.represented is not None and sample.padding is not None:
        return torch.where(sample.padding, ranks, own).clamp_max(_WORST_RANK)
    return ranks.clamp(own, _WORST_RANK)


class TopKNDCGLoss(CompositionalLoss):
    """Loss for NDCG@k: as `NDCGLoss`, with each relevant item weighted by a smooth indicator of rank <= k.

        1 - 1/Z_k * sum over relevant i of psi(s_i - lambda) gain_i / log2(1 + r_i + shift)

    with psi(x) = 1 / (1 + exp(-x / temperature)) and lambda the score that separates the first k items from the rest.
    Lists of at most k items need no such selection: psi is 1 there. About in [0, 1], except with `selector=
    "squared-hinge"`, whose psi has no upper bound.

    Args:
        k: the cutoff of the metric, 1 or more.
        statistics: statistics of the lists of the training data. None: every batch holds whole lists, and lambda is
            exact.
        selector: the smooth indicator. "sigmoid" is the psi above. "squared-hinge" is max(0, x / temperature)^2, which
            is 0 for items below lambda, as the paper's proof needs. "rank" is psi(k - r_i) with the surrogate rank r_i
            and no lambda: the earlier formulation, for comparison.
        selector_gradient: "stopped" treats psi as a constant weight (the paper's practical estimator); "full" also
            differentiates psi and lambda (the theoretical one).
        temperature: width of psi.
        threshold_tau, threshold_norm: smoothness of lambda, see `ThresholdTracker`.
        threshold_step: step size of the running lambda in the unit `threshold_unit`: "spread" measures it in the spread
            of the scores, "score" in scores (the paper's plain gradient step); threshold_rate: update rate of its
            curvature. Only with `statistics`.
        margin, gain, discount_shift, update_rate, self_weight: see `NDCGLoss`.
        lists, empty, reduction: see `ListLoss`.

    Example:
        >>> loss = TopKNDCGLoss(k=2)
        >>> scores = torch.tensor([0.2, 0.9, 0.1, 0.3], requires_grad=True)
        >>> loss(scores, torch.tensor([2, 0, 1, 0])).backward()
        >>> bool(scores.grad[0] < 0 < scores.grad[1])
        True

    Paper: Qiu et al., ICML 2022 (K-SONG), with its misprints corrected.
    """

    remembers = ("k", "surrogate.margin", "gain", "self_weight")

    def __init__(
        self,
        k: int = 10,
        statistics: ListStatistics | None = None,
        *,
        selector: str = "sigmoid",
        selector_gradient: str = "stopped",
        temperature: float = 0.5,
        threshold_tau: float = 0.01,
        threshold_norm: float = 1e-6,
        threshold_step: float = 0.25,
        threshold_unit: str = "spread",
        threshold_rate: float = 0.1,
        margin: float | None = None,
        gain: Gain = "exp2",
        discount_shift: float = 0.0,
        update_rate: float = 0.1,
        self_weight: str = "sample",
        lists: str = "rows",
        empty: str = "skip",
        reduction: str = "mean",
    ) -> None:
        super().__init__(
            statistics,
            gain=gain,
            update_rate=update_rate,
            self_weight=self_weight,
            lists=lists,
            empty=empty,
            reduction=reduction,
            k=k,
        )
        self.surrogate, self.of_cosines = _surrogates(margin)
        self.discount_shift = check_positive("discount_shift", discount_shift, zero=True)
        self.selector = check_choice("selector", selector, ("sigmoid", "squared-hinge", "rank"))
        self.selector_gradient = check_choice("selector_gradient", selector_gradient, ("stopped", "full"))
        self.temperature = check_positive("temperature", temperature)
        self.thresholds = ThresholdTracker(
            k,
            tau=threshold_tau,
            tau_norm=threshold_norm,
            step_size=threshold_step,
            step_unit=threshold_unit,
            update_rate=threshold_rate,
        )

    def inner(self, lists: Lists, sample: Sample) -> Tensor:
        return surrogate_ranks(lists, sample, self.of_cosines if lists.cosines else self.surrogate)

    def outer(self, lists: Lists, sample: Sample, inner: Tensor, group_ids: Tensor | None) -> Tensor:
        gained = sample.gains * self._selected(lists, sample, inner, group_ids)
        value = 1 - discounted(gained, inner + self.discount_shift).sum(1) / sample.ideal
        return first_order_only(value, type(self).__name__, "its gradient holds the threshold of the top k fixed")

    def _selected(self, lists: Lists, sample: Sample, ranks: Tensor, group_ids: Tensor | None) -> Tensor:
        """Compute psi of each relevant item, (Q, A), from its surrogate rank (Q, A) or from the threshold."""
        long = sample.valid & (sample.size > self.thresholds.k)
        if self.selector == "rank":
            ranks = ranks.detach() if self.selector_gradient == "stopped" else ranks
            inside = torch.sigmoid((self.thresholds.k - ranks) / self.temperature)
            return torch.where(long[:, None], inside, 1)
        scores = take(lists.scores, sample.index)
        share = lists.mask.to(scores.dtype) if sample.represented is None else sample.represented
        share = share / share.sum(1, keepdim=True).clamp_min(torch.finfo(share.dtype).tiny)
        chosen = None if surely_all(long) else long
        above = self._above(scores, lists.scores, share, sample.size, group_ids, chosen)
        return above if chosen is None else torch.where(long[:, None], above, 1)

    def _above(
        self,
        relevant: Tensor,
        scores: Tensor,
        share: Tensor,
        size: Tensor,
        group_ids: Tensor | None,
        chosen: Tensor | None,
    ) -> Tensor:
        """Compute psi of the relevant items (Q, A) of the chosen lists, from the scores (Q, L) of all items."""
        stopped = self.selector_gradient == "stopped"
        groups = None if self.totals is None else group_ids
        threshold = self.thresholds(scores, share, size, groups, chosen, pulled=not stopped)
        if stopped:
            above = relevant.detach() - threshold.value[:, None]
        else:
            moves = (self.thresholds.pull(scores, share, threshold) * (scores - scores.detach())).sum(1)
            above = relevant - (threshold.value + moves)[:, None]
        above = above / self.temperature
        return torch.sigmoid(above) if self.selector == "sigmoid" else above.clamp_min(0).square()


class ListwiseCELoss(CompositionalLoss):
    """Cross entropy between the gains of a list and the softmax of its scores; a warm-up for NDCG losses.

        sum over relevant i of gain_i / G * log sum_j exp(s_j - s_i),   G the sum of the gains,

    over all items j of the list. At least 0. With one grade of relevance this is the mean over the relevant items. From
    sampled lists the inner sum is estimated and smoothed as in `NDCGLoss`, in logarithms, so no score is too large.

    Args:
        item_weights: "gains" weighs relevant items by their gains; "equal" weighs all alike.
        statistics, gain, update_rate, self_weight: see `NDCGLoss`.
        lists, empty, reduction: see `ListLoss`.

    Example:
        >>> ListwiseCELoss()(torch.tensor([0.0, 0.0]), torch.tensor([1, 0]))
        tensor(0.6931)

    Paper: Qiu et al., ICML 2022, appendix B (SOLC).
    """

    remembers = ("gain", "self_weight")
    divides = False

    def __init__(
        self,
        statistics: ListStatistics | None = None,
        *,
        item_weights: str = "gains",
        gain: Gain = "exp2",
        update_rate: float = 0.1,
        self_weight: str = "exact",
        lists: str = "rows",
        empty: str = "skip",
        reduction: str = "mean",
    ) -> None:
        super().__init__(
            statistics,
            gain=gain,
            update_rate=update_rate,
            self_weight=self_weight,
            lists=lists,
            empty=empty,
            reduction=reduction,
            space="log",
        )
        self.item_weights = check_choice("item_weights", item_weights, ("gains", "equal"))

    def inner(self, lists: Lists, sample: Sample) -> Tensor:
        terms = lists.scores if sample.represented is None else lists.scores + sample.represented.log()
        if not lists.full:
            # An empty list is computed as zeros, which gives a gradient of 0 instead of NaN.
            terms = torch.where(lists.mask, terms, -torch.inf).masked_fill(~lists.mask.any(1, keepdim=True), 0)
        above = torch.logsumexp(terms, 1)[:, None] - take(lists.scores, sample.index)
        if sample.padding is not None:
            above = torch.where(sample.padding, above, 0)
        if sample.self_correction is None:
            return above
        return torch.where(
            sample.mask, above + torch.log1p((sample.self_correction * torch.exp(-above)).clamp_min(-1 + 1e-6)), 0
        )

    def outer(self, lists: Lists, sample: Sample, inner: Tensor, group_ids: Tensor | None) -> Tensor:
        gains = sample.gains
        if self.item_weights == "equal":
            weights = lists.mask if lists.weights is None else lists.weights
            gains = take(weights, sample.index) * (gains > 0).to(gains.dtype)
        total = gains.sum(1, keepdim=True).clamp_min(torch.finfo(gains.dtype).tiny)
        return (gains / total * inner).sum(1)

    def attach(self, mean: Tensor, observed: Tensor) -> Tensor:
        # d log u = du / u, and du of the estimate u is u times the change of its logarithm.
        ratio = torch.exp(observed.detach() - mean)
        return mean + ratio * (observed - observed.detach())


RECORDS = (
    LossRecord(
        name="ndcg",
        aliases=("song",),
        summary="NDCG of graded lists, whole or sampled",
        build=NDCGLoss,
        role="paper",
        labels="grades",
        paper="Qiu et al., ICML 2022 (SONG)",
    ),
    LossRecord(
        name="top-k-ndcg",
        aliases=("k-song",),
        summary="NDCG@k of graded lists, whole or sampled",
        build=TopKNDCGLoss,
        role="paper",
        labels="grades",
        paper="Qiu et al., ICML 2022 (K-SONG)",
    ),
    LossRecord(
        name="listwise-cross-entropy",
        aliases=("solc",),
        summary="softmax cross entropy of graded lists, whole or sampled: a warm-up for NDCG",
        build=ListwiseCELoss,
        role="paper",
        labels="grades",
        paper="Qiu et al., ICML 2022, appendix B (SOLC)",
    ),
)
