"""Blackbox AP: average precision of the true ranks, with a gradient from a second ranking."""

from __future__ import annotations

import torch
from torch import Tensor

from rankwise.checks import check_positive
from rankwise.lists import Lists, PackedLists
from rankwise.losses.base import ListLoss
from rankwise.losses.links import Link
from rankwise.losses.rivals.given_gradient import with_gradient
from rankwise.losses.sides import split_sides
from rankwise.registry import LossRecord

__all__ = ["BlackboxAPLoss"]


class BlackboxAPLoss(ListLoss):
    """1 - AP exactly, of scores with a margin; the gradient says how the ranks answer to a change of the scores.

    With r the rank of an item among the n of its list over n, and r+ that among the positives over n, the value is the
    mean over the positives of 1 - r+ / r. Its derivative d with respect to r (r+ held fixed) moves the scores to
    s + strength d, they are ranked again, and the gradient is (r(s + strength d) - r(s)) / strength. Tied items share
    their mean rank, so the order of rows changes nothing.

    Args:
        strength: the paper's lambda: how far scores are moved to see what the ranks do.
        margin: positives are ranked with margin/2 less than their score and negatives with margin/2 more.
        link: how scores come to about [-1, 1], see `AUPRCLoss`.
        lists, empty, reduction: see `ListLoss`.

    Items of different weights have no rank; weights of 0 leave items out, others must be equal.

    Example:
        >>> scores = torch.tensor([0.9, 0.2, 0.4, 0.1], requires_grad=True)
        >>> value = BlackboxAPLoss()(scores, torch.tensor([1, 1, 0, 0]))
        >>> value.backward()
        >>> value.item(), bool(scores.grad[1] < 0 < scores.grad[2])
        (0.16666..., True)

    Paper: Rolinek et al., Optimizing Rank-Based Metrics with Blackbox Differentiation, CVPR 2020. The scores are moved
    for each list by itself, so that the other lists of a batch change nothing; the authors' code moves them the less
    the more lists there are.
    """

    remembers = ()

    def __init__(
        self,
        strength: float = 4.0,
        margin: float = 0.02,
        *,
        link: str = "scale",
        lists: str = "rows",
        empty: str = "skip",
        reduction: str = "mean",
    ) -> None:
        super().__init__(lists=lists, empty=empty, reduction=reduction)
        self.strength = check_positive("strength", strength)
        self.margin = check_positive("margin", margin, zero=True)
        self.link = Link(link)

    def per_list(self, packed: PackedLists, group_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        for lists in packed.blocks:
            _check_equal_weights(lists)
        values, valid = self.link(packed, group_ids).map(self._block_values)
        return values, valid

    def _block_values(self, lists: Lists) -> tuple[Tensor, Tensor]:
        sides = split_sides(lists)
        positive = lists.mask & ~sides.negatives
        scores = lists.scores.detach() + self.margin * (0.5 - positive.to(lists.scores.dtype))
        size = lists.mask.sum(1, keepdim=True).clamp_min(1)
        ranks, hits = mean_ranks(scores, lists.mask) / size, mean_ranks(scores, positive) / size
        share = torch.zeros_like(scores).scatter_add_(1, sides.places, sides.share)
        precision = hits / torch.where(lists.mask, ranks, 1)
        slope = share * precision / torch.where(lists.mask, ranks, 1)
        moved = mean_ranks(scores + self.strength * slope, lists.mask) / size
        gradient = (moved - ranks) / self.strength
        values = (share * (1 - precision)).sum(1)
        reason = "its gradient is a difference of ranks, not a derivative"
        return with_gradient(values, lists.scores, gradient, type(self).__name__, reason), sides.valid


def mean_ranks(scores: Tensor, mask: Tensor) -> Tensor:
    """(Q, L) place of each item among those of its list, from 1 for the best; tied items share the mean of theirs."""
    depth = -scores
    keys = depth.masked_fill(~mask, torch.inf).sort(dim=1).values
    before, until = torch.searchsorted(keys, depth), torch.searchsorted(keys, depth, right=True)
    return ((before + until + 1) / 2).to(scores.dtype).masked_fill(~mask, 0)


def _check_equal_weights(lists: Lists) -> None:
    if lists.weights is None or not bool(lists.mask.any()):
        return
    given = lists.weights[lists.mask]
    if bool((given != given[0]).any()):
        raise ValueError(
            "weights: expected equal weights (0 leaves an item out), because ranks know no others, got "
            f"some {(given.max() / given.min()).item():g} times as heavy as others of their list"
        )


RECORDS = (
    LossRecord(
        name="blackbox-ap",
        summary="exact average precision, its gradient from a second ranking",
        build=BlackboxAPLoss,
        role="baseline",
        paper="Rolinek et al., CVPR 2020",
        advice="a gradient that does not vanish for hopeless items",
    ),
)
