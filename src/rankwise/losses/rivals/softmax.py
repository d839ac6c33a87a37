"""Softmax cross entropy over a list: full, and with sampled negatives."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import softplus

from rankwise.checks import check_positive
from rankwise.lists import Lists, PackedLists
from rankwise.losses.base import ListLoss
from rankwise.losses.rivals.weighing import grades_differ, item_weights, log_shares, log_weights, weighted_mean
from rankwise.registry import LossRecord

__all__ = ["SampledSoftmaxLoss", "SoftmaxLoss"]


class SoftmaxLoss(ListLoss):
    """The multinomial likelihood: the mean over relevant items i, each counting y_i, of `log sum_j exp(s_j) - s_i`.

    j goes over all items of the list. log L for constant scores. An item of weight w counts as w equal items, the
    weights of a list scaled to a mean of 1. Lists of one grade are left out.

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
    """The mean over positives i of `log(exp(s_i) + c sum_j exp(s_j)) - s_i`, j over the negatives of the list.

    With all items of a long list too many to score, a batch holds some negatives drawn at random;
    c = `negatives` / (those in the batch) makes them stand for all. Items drawn with unequal chances take 1 / chance
    as weights. Weights are relative within a list. Lists of one class are left out.

    Args:
        negatives: how many negatives the full list has; None takes the batch's for all there are (c = 1).
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


RECORDS = (
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
)
