"""SONG: NDCG from a few items of each list."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rankwise.checks import check_positive
from rankwise.gains import Gain
from rankwise.lists import Lists
from rankwise.losses.compositional import CompositionalLoss
from rankwise.losses.samples import Sample
from rankwise.losses.statistics import ListStatistics
from rankwise.pairs import pair_sums_within
from rankwise.registry import LossRecord
from rankwise.surrogates import SquaredHinge

__all__ = ["NDCGLoss"]

# Beyond any rank that matters; keeps sums of squares from becoming infinite.
_WORST_RANK = 1e30


class NDCGLoss(CompositionalLoss):
    """1 - NDCG, with a smooth upper bound in the place of each relevant item's rank.

        1 - 1/Z * sum over relevant i of gain_i / log2(1 + r_i + shift),   r_i = sum_j max(0, margin + s_j - s_i)^2

    over all items j of the list, i included; Z is the ideal DCG. In [0, 1] for whole lists, and with a margin of 1 or
    more never less than 1 - NDCG.

    A batch may hold whole lists: then r is exact and nothing is remembered. Or it holds a few items of each list and
    the loss is given `statistics`: then r is estimated from the relevant and the irrelevant items of the batch, each
    standing for their share of the list, and smoothed by a moving average for each (query, item) pair. The value is
    then an estimate: unbiased in which relevant items were drawn, it can leave [0, 1] when those are few.

    Args:
        statistics: of the lists of the training data. None: every batch holds whole lists.
        margin: c; below 1 the value is no longer a bound.
        gain: "exp2", "linear" or a function of grades, as in the metric.
        discount_shift: 0 is NDCG's own discount. A larger one cares less about the first positions, which overfits less
            where lists are long and labels few (recommendation: about 30). Values then start nearer to 1.
        update_rate: weight of the new estimate in the moving average, in (0, 1]; 1 remembers nothing. Only with
            `statistics`.
        self_weight: how much an item counts in its own estimated rank. "exact": as one item of the whole list, without
            bias. "sample": as one item of the batch, which keeps ranks from looking too good when few items of a long
            list are drawn, and trained better. "naive": the plain mean over the batch, whatever its share of relevant
            items. Only with `statistics`.
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
        margin: float = 1.0,
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
        self.surrogate = SquaredHinge(check_positive("margin", margin))
        self.discount_shift = check_positive("discount_shift", discount_shift, zero=True)

    def inner(self, lists: Lists, sample: Sample) -> Tensor:
        return surrogate_ranks(lists, sample, self.surrogate)

    def outer(self, lists: Lists, sample: Sample, inner: Tensor, group_ids: Tensor | None) -> Tensor:
        return 1 - discounted(sample.gains, inner + self.discount_shift).sum(1) / sample.ideal


def discounted(gains: Tensor, ranks: Tensor) -> Tensor:
    """gains / log2(1 + ranks); items that weigh next to nothing have ranks next to 0."""
    return gains * math.log(2) / torch.log1p(ranks)


def surrogate_ranks(lists: Lists, sample: Sample, surrogate: SquaredHinge) -> Tensor:
    """r of each relevant item, (Q, A); margin^2 in the padding."""
    ranks = pair_sums_within(
        lists.scores,
        sample.places,
        surrogate,
        weights=sample.stands_for,
        anchor_mask=sample.padding,
        other_mask=None if lists.full else lists.mask,
    )
    itself = surrogate.margin**2
    if sample.itself is not None:
        ranks = (ranks + sample.itself * itself).clamp_min(itself)
    if sample.padding is not None:
        ranks = torch.where(sample.padding, ranks, itself)
    return ranks.clamp_max(_WORST_RANK)


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
)
