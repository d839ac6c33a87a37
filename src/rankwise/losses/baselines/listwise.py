"""Listwise baselines: softmax, ListNet, ListMLE, ApproxNDCG."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import pad, softplus

from rankwise.checks import check_count, check_positive, on_host, widen
from rankwise.lists import Lists, PackedLists, anchors_that_count, find_chosen, take
from rankwise.losses.base import ListLoss
from rankwise.losses.baselines.shared import (
    by_grade,
    grades_differ,
    item_weights,
    log_shares,
    log_weights,
    normalised_gains,
    relative_weights,
    weighted_mean,
)
from rankwise.pairs import pair_sums_within
from rankwise.ranks import RankedLists, rank
from rankwise.registry import LossRecord
from rankwise.surrogates import Gain, Sigmoid, gain_function

__all__ = [
    "ApproxNDCGLoss",
    "GumbelApproxNDCGLoss",
    "ListMLELoss",
    "ListNetLoss",
    "SampledSoftmaxLoss",
    "SoftmaxLoss",
    "counted_uniform",
]

# exp(-500) is far from underflow in float64. The least sum replaces that of an empty set.
_SAFE_SPREAD, _LEAST_SUM = 500.0, 1e-300

# The increment and the two factors of splitmix64 (Steele et al., 2014), as signed 64-bit numbers.
_INCREMENT, _FIRST, _SECOND = (n - 2**64 for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


class ListNetLoss(ListLoss):
    """Cross entropy of top-one probabilities: `-sum_i p_i log q_i`, p = softmax(grades), q = softmax(scores).

    At least the entropy of p, and unbounded above. An item of weight w counts as w equal items, with the weights of a
    list scaled to a mean of 1. Lists of one grade have nothing to rank and are left out.

    Example:
        >>> ListNetLoss()(torch.tensor([0.0, 0.0]), torch.tensor([1, 0]))
        tensor(0.6931)

    Paper: Cao et al., Learning to rank: from pairwise approach to listwise approach, ICML 2007 (top-one probabilities).
    """

    label_kind = "grades"

    def per_list(self, packed: PackedLists, group_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        values, valid = packed.map(_cross_entropy)
        return values, valid


def _cross_entropy(lists: Lists) -> tuple[Tensor, Tensor]:
    target = torch.softmax(lists.labels.to(lists.scores.dtype) + log_weights(lists), 1)
    return -(target * log_shares(lists)).sum(1), grades_differ(lists)


class ListMLELoss(ListLoss):
    """Negative log likelihood of the order by grade: `sum_p log sum_{j at p or below} exp(s_j) - s_p`.

    Grades nearly always tie, and the paper's formula then depends on the order of the input. Here the m items of one
    grade form a tie group (Efron's treatment of ties in survival analysis): the l-th of them is chosen from all items
    of lower grade and the whole group, less the share l / m of the group. Without ties that is the paper's formula.

    The value is a sum over the list, so long lists have larger values; log L! for constant scores. An item of weight w
    has w times the exponential and a tie group the mean weight of its items, with the weights of a list scaled to a
    mean of 1. Lists of one grade have nothing to rank and are left out.

    Example:
        >>> ListMLELoss()(torch.zeros(3), torch.tensor([2, 1, 0]))  # log 6: one of six orders
        tensor(1.7918)

    Paper: Xia et al., Listwise approach to learning to rank: theory and algorithm, ICML 2008; Efron, The efficiency of
    Cox's likelihood function for censored data, JASA 1977.
    """

    label_kind = "grades"

    def per_list(self, packed: PackedLists, group_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        values, valid = packed.map(_minus_log_likelihood)
        return values, valid


def _minus_log_likelihood(lists: Lists) -> tuple[Tensor, Tensor]:
    graded = by_grade(lists)
    scores = lists.scores.gather(1, graded.order)
    size = (graded.end - graded.start).to(scores.dtype)
    placed = (torch.arange(scores.shape[1], device=scores.device) - graded.start) / size
    if lists.weights is None:
        value = _log_choices(scores, graded, placed) - scores
    else:
        weights, logs = (t.gather(1, graded.order) for t in (relative_weights(lists), log_weights(lists)))
        reached = pad(weights.cumsum(1), (1, 0))
        group_weight = (reached.gather(1, graded.end) - reached.gather(1, graded.start)) / size
        value = group_weight * _log_choices(scores + logs, graded, placed) - weights * scores
    return value.masked_fill(~graded.mask, 0).sum(1), grades_differ(lists)


def _log_choices(logits: Tensor, graded: RankedLists, placed: Tensor) -> Tensor:
    """Compute the log of the sum over the choices for each item, (Q, L): its group and all below, less the share."""
    least = torch.finfo(logits.dtype).min / 4
    logits = logits.masked_fill(~graded.mask, least)
    top = logits.detach().amax(1, keepdim=True) if logits.shape[1] else logits
    far = (logits.detach() - top < -_SAFE_SPREAD) & graded.mask
    if not on_host(far) or bool(far.any()):
        behind = pad(torch.logcumsumexp(logits.flip(1), 1).flip(1), (0, 1), value=least)
        group, after = behind.gather(1, graded.start), behind.gather(1, graded.end)
        return torch.logaddexp(group + torch.log1p(-placed), after + placed.log())
    # Plain sums in float64 are as accurate here, and many times faster.
    sums = pad(widen(logits - top).exp().flip(1).cumsum(1).flip(1), (0, 1))
    group, after = sums.gather(1, graded.start), sums.gather(1, graded.end)
    return torch.lerp(group, after, widen(placed)).clamp_min(_LEAST_SUM).log().to(logits.dtype) + top


class SoftmaxLoss(ListLoss):
    """Softmax loss: the mean over relevant items i, with weights y_i, of `log sum_j exp(s_j) - s_i`.

    The sum is over all items j of the list; log L for constant scores. An item of weight w counts as w equal items,
    with the weights of a list scaled to a mean of 1. Lists of one grade are left out.

    Example:
        >>> SoftmaxLoss()(torch.zeros(4), torch.tensor([1, 0, 0, 0]))
        tensor(1.3863)

    Paper: Liang et al., Variational autoencoders for collaborative filtering, WWW 2018 (the multinomial likelihood).
    """

    label_kind = "grades"

    def per_list(self, packed: PackedLists, group_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        values, valid = packed.map(_full)
        return values, valid


class SampledSoftmaxLoss(ListLoss):
    """Softmax loss with sampled negatives j: the mean over positives i of `log(exp(s_i) + c sum_j exp(s_j)) - s_i`.

    If a list is too long to score, a batch holds some negatives drawn at random, and c = `negatives` / (number in the
    batch) scales their sum to the whole list. For items drawn with unequal probabilities, pass 1 / probability as
    weights. Weights are relative within a list. Lists of one class are left out.

    Args:
        negatives: number of negatives of the whole list; None takes those of the batch (c = 1).
        lists, empty, reduction: see `ListLoss`.

    Example:
        >>> SampledSoftmaxLoss(negatives=99)(torch.zeros(4), torch.tensor([1, 0, 0, 0]))  # log 100
        tensor(4.6052)

    Paper: Bengio and Senecal, Adaptive importance sampling to accelerate training of a neural probabilistic language
    model, IEEE Transactions on Neural Networks 2008.
    """

    def __init__(
        self,
        negatives: float | None = None,
        *,
        lists: str = "rows",
        empty: str = "skip",
        reduction: str = "mean",
    ) -> None:
        super().__init__(lists=lists, empty=empty, reduction=reduction)
        self.negatives = None if negatives is None else check_positive("negatives", negatives)

    def per_list(self, packed: PackedLists, group_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        values, valid = packed.map(self._sampled)
        return values, valid

    def _sampled(self, lists: Lists) -> tuple[Tensor, Tensor]:
        positive = lists.labels == 1
        logs = log_weights(lists).masked_fill_(positive, torch.finfo(lists.scores.dtype).min / 4)
        others = torch.logsumexp(lists.scores + logs, 1, keepdim=True)
        if self.negatives is not None:
            others = others + math.log(self.negatives) - torch.logsumexp(logs, 1, keepdim=True)
        value, _ = weighted_mean(softplus(others - lists.scores), item_weights(lists) * positive)
        return value, grades_differ(lists)


def _full(lists: Lists) -> tuple[Tensor, Tensor]:
    share = item_weights(lists) * lists.labels
    value, _ = weighted_mean(-log_shares(lists), share.to(lists.scores.dtype))
    return value, grades_differ(lists)


class ApproxNDCGLoss(ListLoss):
    """NDCG with smooth ranks: `1 - sum_i G_i / log2(1 + r_i)`, `r_i = 1 + sum_{j != i} sigmoid(alpha (s_j - s_i))`.

    G are gains divided by the ideal DCG of the list. In (0, 1); with a large alpha it is 1 - NDCG. Item weights
    multiply the gains (they do not affect the ranks), so inverse propensities can be passed as weights. Lists of one
    grade are left out.

    Args:
        alpha: steepness of the sigmoids.
        gain: "exp2" for 2^y - 1, "linear" for y, or a function of grades.
        lists, empty, reduction: see `ListLoss`.

    Example:
        >>> ApproxNDCGLoss(alpha=100.0)(torch.tensor([0.1, 0.9, 0.5]), torch.tensor([1, 3, 0]))
        tensor(0.0172)

    Paper: Qin et al., A general approximation framework for direct optimization of information retrieval measures,
    Information Retrieval 2010.
    """

    label_kind = "grades"

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        gain: Gain = "exp2",
        lists: str = "rows",
        empty: str = "skip",
        reduction: str = "mean",
    ) -> None:
        super().__init__(lists=lists, empty=empty, reduction=reduction)
        self.surrogate = Sigmoid(1 / check_positive("alpha", alpha))
        self.gain = gain_function(gain)

    def per_list(self, packed: PackedLists, group_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        values, valid = packed.map(self._approximate)
        return values, valid

    def _approximate(self, lists: Lists) -> tuple[Tensor, Tensor]:
        gains = normalised_gains(lists, self.gain, None)
        mask = None if lists.full else lists.mask
        return 1 - self._approximate_ndcg(lists.scores, gains, mask), grades_differ(lists) & (gains > 0).any(1)

    def _approximate_ndcg(self, scores: Tensor, gains: Tensor, mask: Tensor | None) -> Tensor:
        """Compute the smooth NDCG (Q,) from (Q, L) tensors; only items with a gain need a rank."""
        index, gaining = find_chosen(gains > 0)
        anchors = anchors_that_count(index, gaining)
        above = pair_sums_within(scores, index, self.surrogate, anchor_mask=anchors, other_mask=mask)
        # The sum contains 1/2 for the item itself, so its rank is above + 1/2. In the padding the log is not 0.
        counted = gains if index is None else take(gains, index) * gaining
        return (counted / torch.log2(above + 1.5)).sum(1)


class GumbelApproxNDCGLoss(ApproxNDCGLoss):
    """Mean of ApproxNDCG over `samples` copies of each list with Gumbel noise added to the scores.

    The copies are rankings drawn from the Plackett-Luce model of the scores. The noise is a pure function of the seed,
    the number of the step (the only state), the id of the list (its index in the batch if it has none) and the rank of
    the item. Noise is independent and identically distributed, so it may be assigned by rank. The result therefore does
    not depend on the order of the input, the padding or the other lists; all processes draw the same noise, and a
    resumed run continues bit for bit. Items of equal score and grade are ordered as in the input, which only decides
    which of them gets which gradient. In eval mode there is no noise: the plain ApproxNDCG.

    Args:
        alpha, gain: see `ApproxNDCGLoss`.
        samples: number of copies of each list.
        noise: scale of the noise.
        seed: seed of the noise.
        lists, empty, reduction: see `ListLoss`.

    Example:
        >>> loss = GumbelApproxNDCGLoss(samples=4)
        >>> scores, grades = torch.tensor([0.1, 0.9, 0.5]), torch.tensor([1, 3, 0])
        >>> bool(loss(scores, grades) == loss(scores, grades))
        False
        >>> bool(loss.eval()(scores, grades) == ApproxNDCGLoss()(scores, grades))
        True

    Paper: Bruch et al., A stochastic treatment of learning to rank scoring functions, WSDM 2020.
    """

    remembers = ()
    traceable = False
    steps: Tensor

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        samples: int = 8,
        noise: float = 1.0,
        seed: int = 0,
        gain: Gain = "exp2",
        lists: str = "rows",
        empty: str = "skip",
        reduction: str = "mean",
    ) -> None:
        super().__init__(alpha, gain=gain, lists=lists, empty=empty, reduction=reduction)
        self.samples, self.noise = check_count("samples", samples), check_positive("noise", noise)
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise TypeError(f"seed: expected a whole number, got {seed!r}")
        self.seed = seed
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def per_list(self, packed: PackedLists, group_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        if not self.training:
            return super().per_list(packed, group_ids)
        values, valid = packed.map(lambda lists: self._sampled(lists, packed.ids))
        self.steps = self.steps + 1
        return values, valid

    def _sampled(self, lists: Lists, ids: Tensor | None) -> tuple[Tensor, Tensor]:
        gains = normalised_gains(lists, self.gain, None)
        noisy = lists.scores[:, None] + self.noise * self._gumbel(lists, ids)
        copies = (t[:, None].expand(noisy.shape).flatten(0, 1) for t in (gains, lists.mask))
        value = self._approximate_ndcg(noisy.flatten(0, 1), *copies)
        return 1 - value.view(-1, self.samples).mean(1), grades_differ(lists) & (gains > 0).any(1)

    def _gumbel(self, lists: Lists, ids: Tensor | None) -> Tensor:
        """Draw the noise, (Q, samples, L)."""
        names = lists.positions if ids is None else ids[lists.positions]
        sample, index = (torch.arange(n, device=names.device) for n in (self.samples, lists.mask.shape[1]))
        uniform = counted_uniform(self.seed, self.steps, names[:, None, None], sample[:, None], index)
        by_score = rank(lists, ties="pessimistic").order[:, None].expand(uniform.shape)
        gumbel = -(-uniform.log()).log()
        return torch.empty_like(gumbel).scatter_(2, by_score, gumbel).to(lists.scores.dtype)


def counted_uniform(seed: int, *counters: Tensor) -> Tensor:
    """Draw uniform numbers in (0, 1), in the widest dtype of the device, one for every combination of counters.

    This is a counter-based generator: equal seeds and counters give equal numbers on any device, independent of the
    order of draws. Other seeds or counters give statistically independent numbers.

    Args:
        seed: any int64.
        counters: int64 tensors that broadcast.

    Example:
        >>> a, b = counted_uniform(0, torch.tensor([0, 7])), counted_uniform(0, torch.tensor([7]))
        >>> a.shape, bool(a[1] == b[0])
        (torch.Size([2]), True)
    """
    state = _mix(torch.full((), seed, dtype=torch.int64, device=counters[0].device))
    for counter in counters:
        state = _mix(state + counter)
    # The upper 53 bits, plus a half step so that 0 and 1 do not occur.
    uniform = (widen(_shift(state, 11)) + 0.5) * 2.0**-53
    return uniform.clamp_max_(1 - torch.finfo(uniform.dtype).eps / 2)


def _mix(state: Tensor) -> Tensor:
    # int64 arithmetic wraps around, as splitmix64 requires.
    state = state + _INCREMENT
    state = (state ^ _shift(state, 30)) * _FIRST
    state = (state ^ _shift(state, 27)) * _SECOND
    return state ^ _shift(state, 31)


def _shift(state: Tensor, bits: int) -> Tensor:
    """Shift right and fill with zeros; torch fills with the sign bit."""
    return (state >> bits) & ((1 << (64 - bits)) - 1)


RECORDS = (
    LossRecord(
        name="listnet",
        summary="cross entropy between the softmax of grades and that of scores",
        build=ListNetLoss,
        role="baseline",
        labels="grades",
        paper="Cao et al., ICML 2007",
    ),
    LossRecord(
        name="listmle",
        summary="likelihood of the order of grades, ties by Efron's rule",
        build=ListMLELoss,
        role="baseline",
        labels="grades",
        paper="Xia et al., ICML 2008",
    ),
    LossRecord(
        name="softmax",
        summary="multinomial likelihood of the relevant items",
        build=SoftmaxLoss,
        role="baseline",
        labels="grades",
        paper="Liang et al., WWW 2018",
    ),
    LossRecord(
        name="sampled-softmax",
        summary="likelihood of each relevant item against sampled irrelevant ones",
        build=SampledSoftmaxLoss,
        role="baseline",
        paper="Bengio and Senecal, IEEE TNN 2008",
    ),
    LossRecord(
        name="approx-ndcg",
        summary="NDCG with ranks counted by sigmoids",
        build=ApproxNDCGLoss,
        role="baseline",
        labels="grades",
        paper="Qin et al., Information Retrieval 2010",
    ),
    LossRecord(
        name="gumbel-approx-ndcg",
        summary="ApproxNDCG averaged over scores with Gumbel noise",
        build=GumbelApproxNDCGLoss,
        role="baseline",
        labels="grades",
        paper="Bruch et al., WSDM 2020",
    ),
)
