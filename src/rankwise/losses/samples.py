"""A batch as a sample of whole lists: how many items of its list each sampled item stands for."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rankwise.lists import Lists, compact
from rankwise.losses.statistics import Totals
from rankwise.metrics.ndcg import ideal_dcg

__all__ = ["SELF_WEIGHTS", "Sample", "sample_of_lists", "whole_lists"]

SELF_WEIGHTS = ("exact", "sample", "naive")


@dataclass(frozen=True)
class Sample:
    """The relevant items of Q lists, and what the sampled items stand for.

    A sum over all items of a list, seen from its relevant item i, is estimated by

        sum_j stands_for_j value_ij + itself_i value_ii.

    Attributes:
        places, mask: (Q, A) where the relevant items stand; gains: (Q, A) what they are worth, 0 in the padding; each
            counts as many times as the relevant items it stands for.
        stands_for: (Q, L), 0 outside the lists; None when every item stands for itself.
        itself: (Q, A) or None when there is nothing to correct.
        size: (Q,) items of the whole lists; ideal: (Q,) their ideal DCG, at least tiny.
        valid: (Q,) lists that hold something to rank: not all gains are the same.
    """

    places: Tensor
    mask: Tensor
    gains: Tensor
    stands_for: Tensor | None
    itself: Tensor | None
    size: Tensor
    ideal: Tensor
    valid: Tensor


def whole_lists(lists: Lists, gains: Tensor, k: int | None) -> Sample:
    """When the batch holds every item of its lists; item weights are scaled to a mean of 1 in each list."""
    size = lists.mask.sum(1)
    weights = None if lists.weights is None else _mean_one(lists.weights.to(lists.scores.dtype), lists.mask)
    ideal = ideal_dcg(gains, weights=weights, k=k)
    places, mask = compact(gains > 0)
    own = gains.gather(1, places) * mask
    if weights is not None:
        own = own * weights.gather(1, places)
    return _sample(lists, gains, places, mask, own, weights, None, Totals(size, mask.sum(1), ideal))


def sample_of_lists(lists: Lists, gains: Tensor, totals: Totals, self_weight: str) -> Sample:
    """When the batch holds some relevant and some irrelevant items of lists with these totals."""
    dtype = lists.scores.dtype
    chosen = gains > 0
    others = lists.mask ^ chosen
    _check_counts(chosen, others, totals)
    places, mask = compact(chosen)
    if lists.weights is None:
        weights = lists.mask.to(dtype)
    else:
        given = lists.weights.to(dtype)
        weights = torch.where(chosen, _mean_one(given, chosen), _mean_one(given, others))
    relevant, irrelevant = (kind.sum(1).to(dtype) for kind in (chosen, others))
    size, all_relevant = totals.size.to(dtype), totals.relevant.to(dtype)
    drawn = relevant + irrelevant
    if self_weight == "naive":
        stands_for, itself = weights * (size / drawn.clamp_min(1))[:, None], None
    else:
        own = torch.ones_like(size) if self_weight == "exact" else size / drawn.clamp_min(1)
        # All but the item itself, split as the whole list is; a kind of which nothing else was drawn cannot speak.
        share = (all_relevant - 1).clamp_min(0) / (size - 1).clamp_min(1)
        share = torch.where(irrelevant > 0, torch.where(relevant > 1, share, 0), 1)
        of_relevant = torch.where(relevant > 1, (size - own) * share / (relevant - 1).clamp_min(1), own)
        of_irrelevant = (size - own) * (1 - share) / irrelevant.clamp_min(1)
        stands_for = weights * torch.where(chosen, of_relevant[:, None], of_irrelevant[:, None])
        itself = own[:, None] - stands_for.gather(1, places)
    own_gains = gains.gather(1, places) * mask * weights.gather(1, places)
    own_gains = own_gains * (all_relevant / relevant.clamp_min(1))[:, None]
    return _sample(lists, gains, places, mask, own_gains, stands_for, itself, totals)


def _sample(
    lists: Lists,
    gains: Tensor,
    places: Tensor,
    mask: Tensor,
    own: Tensor,
    stands_for: Tensor | None,
    itself: Tensor | None,
    totals: Totals,
) -> Sample:
    dtype = lists.scores.dtype
    highest = gains.amax(1) if gains.shape[1] else gains.new_zeros(len(gains))
    differ = ((gains != highest[:, None]) & lists.mask).any(1)
    ideal = totals.ideal.clamp_min(torch.finfo(dtype).tiny).to(dtype)
    return Sample(
        places, mask, own.to(dtype), stands_for, itself, totals.size, ideal, differ & mask.any(1) & (totals.ideal > 0)
    )


def _mean_one(weights: Tensor, mask: Tensor) -> Tensor:
    """Weights of each list divided by their mean over `mask`, 0 outside it."""
    weights = weights * mask
    mean = weights.sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp_min(1)
    return weights / mean.clamp_min(torch.finfo(weights.dtype).tiny)


def _check_counts(chosen: Tensor, others: Tensor, totals: Totals) -> None:
    for name, drawn, there in (
        ("relevant", chosen.sum(1), totals.relevant),
        ("irrelevant", others.sum(1), totals.size - totals.relevant),
    ):
        wrong = drawn > there
        if bool(wrong.any()):
            raise ValueError(
                f"labels: expected at most the {int(there[wrong][0])} {name} items that the statistics count in a "
                f"list, got {int(drawn[wrong][0])} ({int(wrong.sum())} such lists)"
            )
