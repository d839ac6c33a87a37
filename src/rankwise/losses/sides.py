"""The positives and the negatives of each list, as the average precision losses need them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from rankwise.lists import Lists, every
from rankwise.losses.similarity_lists import FewRelevant
from rankwise.pairs import pair_sums_within
from rankwise.pairs.gaps import Gaps
from rankwise.surrogates import Surrogate

__all__ = ["Sides", "split_sides"]


@dataclass(frozen=True)
class Sides:
    """The positives and negatives of each list.

    Attributes:
        places, mask: (Q, A) where the positives stand; share: (Q, A) their weights, of sum 1 per list.
        gaps: all but the negatives; positive_weight, negative_weight: (Q,) what either weigh in all, at least tiny.
        valid: (Q,) which lists have both; rate: (Q,) the share of positives, 1/2 where there are not both.
        padding: `mask`, or None when all lists have as many positives; negatives: (Q, L) which items are negative.
    """

    places: Tensor
    mask: Tensor
    share: Tensor
    gaps: Gaps
    positive_weight: Tensor
    negative_weight: Tensor
    valid: Tensor

    @cached_property
    def padding(self) -> Tensor | None:
        return None if every(self.mask) else self.mask

    @property
    def negatives(self) -> Tensor:
        assert self.gaps.mask is not None
        return self.gaps.mask

    @cached_property
    def rate(self) -> Tensor:
        return torch.where(self.valid, self.positive_weight / (self.positive_weight + self.negative_weight), 0.5)

    def mean_over_negatives(self, lists: Lists, surrogate: Surrogate) -> Tensor:
        """The mean over the negatives j of a list of l(s_i - s_j), for each of its positives s_i, (Q, A)."""
        sums = pair_sums_within(
            lists.scores,
            self.places,
            surrogate,
            weights=None if lists.weights is None else lists.weights.to(lists.scores.dtype),
            anchor_mask=self.padding,
            other_mask=self.gaps,
        )
        return sums / self.negative_weight[:, None]


def split_sides(lists: Lists) -> Sides:
    """Tell positives (label 1) from negatives (label 0)."""
    dtype, tiny = lists.scores.dtype, torch.finfo(lists.scores.dtype).tiny
    places, mask = lists.positives
    gaps = lists.gaps if isinstance(lists, FewRelevant) else Gaps(lists.mask ^ lists.relevant)
    if lists.weights is None:
        weights, positive = mask, mask.sum(1, dtype=dtype)
        negative = lists.size - positive
    else:
        weights = lists.weights.gather(1, places).to(dtype) * mask
        positive, negative = weights.sum(1), (lists.weights * (lists.mask ^ lists.relevant)).sum(1).to(dtype)
    valid = torch.minimum(positive, negative) > 0
    positive = positive.clamp_min(tiny)
    return Sides(places, mask, weights / positive[:, None], gaps, positive, negative.clamp_min(tiny), valid)
