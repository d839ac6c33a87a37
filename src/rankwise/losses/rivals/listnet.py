"""ListNet: cross entropy between the distributions that grades and scores give over the items."""

from __future__ import annotations

import torch
from torch import Tensor

from rankwise.lists import Lists, PackedLists
from rankwise.losses.base import ListLoss
from rankwise.losses.rivals.weighing import grades_differ, log_shares, log_weights
from rankwise.registry import LossRecord

__all__ = ["ListNetLoss"]


class ListNetLoss(ListLoss):
    """Cross entropy of the probabilities to come first: `-sum_i p_i log q_i`, p = softmax(grades), q = softmax(scores).

    At least the entropy of p, at most unbounded. An item of weight w counts as w equal items, the weights of a list
    scaled to a mean of 1. Lists of one grade have no order to learn and are left out.

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


RECORDS = (
    LossRecord(
        name="listnet",
        summary="cross entropy between the softmax of grades and that of scores",
        build=ListNetLoss,
        role="baseline",
        labels="grades",
        paper="Cao et al., ICML 2007",
    ),
)
