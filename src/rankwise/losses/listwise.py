"""SOLC: listwise cross entropy from a few items of each list."""

from __future__ import annotations

import torch
from torch import Tensor

from rankwise.gains import Gain
from rankwise.lists import Lists
from rankwise.losses.compositional import CompositionalLoss
from rankwise.losses.samples import Sample
from rankwise.losses.statistics import ListStatistics
from rankwise.registry import LossRecord

__all__ = ["ListwiseCELoss"]


class ListwiseCELoss(CompositionalLoss):
    """Cross entropy between the gains of a list and the softmax of its scores: easy to train, a start for NDCG.

        sum over relevant i of gain_i / G * log sum_j exp(s_j - s_i),   G the sum of the gains,

    over all items j of the list. At least 0. With one grade of relevance this is the mean over the relevant items. From
    sampled lists the inner sum is estimated and smoothed as in `NDCGLoss`, in logarithms, so no score is too large.

    Args:
        statistics, gain, update_rate, self_weight: see `NDCGLoss`.
        lists, empty, reduction: see `ListLoss`.

    Example:
        >>> ListwiseCELoss()(torch.tensor([0.0, 0.0]), torch.tensor([1, 0]))
        tensor(0.6931)

    Paper: Qiu et al., ICML 2022, appendix B (SOLC).
    """

    remembers = ("gain", "self_weight")

    def __init__(
        self,
        statistics: ListStatistics | None = None,
        *,
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

    def inner(self, lists: Lists, sample: Sample) -> Tensor:
        terms = lists.scores if sample.stands_for is None else lists.scores + sample.stands_for.log()
        # An empty list as a list of zeros: of no meaning, but with a gradient of 0 instead of NaN.
        terms = torch.where(lists.mask, terms, -torch.inf).masked_fill(~lists.mask.any(1, keepdim=True), 0)
        own = lists.scores.gather(1, sample.places)
        above = torch.where(sample.mask, torch.logsumexp(terms, 1)[:, None] - own, 0)
        if sample.itself is None:
            return above
        return torch.where(
            sample.mask, above + torch.log1p((sample.itself * torch.exp(-above)).clamp_min(-1 + 1e-6)), 0
        )

    def outer(self, lists: Lists, sample: Sample, inner: Tensor, group_ids: Tensor | None) -> Tensor:
        total = sample.gains.sum(1, keepdim=True).clamp_min(torch.finfo(sample.gains.dtype).tiny)
        return (sample.gains / total * inner).sum(1)

    def attach(self, mean: Tensor, observed: Tensor) -> Tensor:
        # d log u = du / u, and the estimate of u moves by itself times the move of its logarithm.
        ratio = torch.exp(observed.detach() - mean)
        return mean + ratio * (observed - observed.detach())


RECORDS = (
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
