"""A batch as a sample of whole lists: how many items of its list each sampled item stands for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from rankwise.lists import Lists, compact, count, every
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
        padding: `mask`, or None when all lists have as many relevant items.
    """

    places: Tensor
    mask: Tensor
    gains: Tensor
    stands_for: Tensor | None
    itself: Tensor | None
    size: Tensor
    ideal: Tensor
    valid: Tensor

    @cached_property
    def padding(self) -> Tensor | None:
        return None if every(self.mask) else self.mask


def whole_lists(lists: Lists, chosen: Tensor, gain: Callable[[Tensor], Tensor], k: int | None) -> Sample:
    """When the batch holds every item of its lists; item weights are scaled to a mean of 1 in each list.

    Args:
        lists: the lists; chosen: (Q, L) which of their items are relevant.
        gain: of grades; k: cutoff of the ideal DCG.
    """
    weights = None if lists.weights is None else _mean_one(lists.weights.to(lists.scores.dtype), lists.mask)
    places, mask = compact(chosen)
    own = gain(lists.labels.gather(1, places)) * mask
    own_weights = None if weights is None else weights.gather(1, places) * mask
    totals = Totals(lists.size, count(mask), ideal_dcg(own, weights=own_weights, k=k))
    valid = _something_to_rank(own, mask, totals.relevant, totals.size)
    counted = own if own_weights is None else own * own_weights
    return _sample(lists.scores.dtype, places, mask, counted, weights, None, totals, valid)


def sample_of_lists(
    lists: Lists, chosen: Tensor, gain: Callable[[Tensor], Tensor], totals: Totals, self_weight: str
) -> Sample:
    """When the batch holds some relevant and some irrelevant items of lists with these totals."""
    dtype = lists.scores.dtype
    places, mask = compact(chosen)
    counts = count(mask), lists.size
    _check_counts(counts[0], counts[1] - counts[0], totals)
    relevant, drawn = (number.to(dtype) for number in counts)
    irrelevant = drawn - relevant
    size, all_relevant = totals.size.to(dtype), totals.relevant.to(dtype)
    weights = None if lists.full else lists.mask.to(dtype)
    if lists.weights is not None:
        given = lists.weights.to(dtype)
        weights = torch.where(chosen, _mean_one(given, chosen), _mean_one(given, lists.mask ^ chosen))
    itself: Tensor | None = None
    if self_weight == "naive":
        stands_for = (size / drawn.clamp_min(1))[:, None].expand_as(lists.mask)
    else:
        own = torch.ones_like(size) if self_weight == "exact" else size / drawn.clamp_min(1)
        # All but the item itself, split as the whole list is; a kind of which nothing else was drawn cannot speak.
        share = (all_relevant - 1).clamp_min(0) / (size - 1).clamp_min(1)
        share = torch.where(irrelevant > 0, torch.where(relevant > 1, share, 0), 1)
        of_relevant = torch.where(relevant > 1, (size - own) * share / (relevant - 1).clamp_min(1), own)
        of_irrelevant = (size - own) * (1 - share) / irrelevant.clamp_min(1)
        stands_for = torch.where(chosen, of_relevant[:, None], of_irrelevant[:, None])
    if weights is not None:
        stands_for = stands_for * weights
    if self_weight != "naive":
        itself = own[:, None] - stands_for.gather(1, places)
    own_gains = gain(lists.labels.gather(1, places)) * mask
    valid = _something_to_rank(own_gains, mask, *counts)
    counted = own_gains * (all_relevant / relevant.clamp_min(1))[:, None]
    if weights is not None:
        counted = counted * weights.gather(1, places)
    return _sample(dtype, places, mask, counted, stands_for, itself, totals, valid)


def _sample(
    dtype: torch.dtype,
    places: Tensor,
    mask: Tensor,
    gains: Tensor,
    stands_for: Tensor | None,
    itself: Tensor | None,
    totals: Totals,
    valid: Tensor,
) -> Sample:
    ideal = totals.ideal.clamp_min(torch.finfo(dtype).tiny).to(dtype)
    return Sample(places, mask, gains.to(dtype), stands_for, itself, totals.size, ideal, valid & (totals.ideal > 0))


def _something_to_rank(gains: Tensor, mask: Tensor, relevant: Tensor, size: Tensor) -> Tensor:
    """(Q,) lists of a relevant item and another that gains less, from the gains (Q, A) of the relevant ones."""
    if not mask.shape[1]:
        return torch.zeros_like(size, dtype=torch.bool)
    others = relevant < size
    if not every(others):
        others |= ((gains < gains.amax(1, keepdim=True)) & mask).any(1)
    return mask[:, 0] & others


def _mean_one(weights: Tensor, mask: Tensor) -> Tensor:
    """Weights of each list divided by their mean over `mask`, 0 outside it."""
    weights = weights * mask
    mean = weights.sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp_min(1)
    return weights / mean.clamp_min(torch.finfo(weights.dtype).tiny)


def _check_counts(relevant: Tensor, irrelevant: Tensor, totals: Totals) -> None:
    if not bool((torch.maximum(relevant - totals.relevant, irrelevant + totals.relevant - totals.size) > 0).any()):
        return
    for name, drawn, there in (
        ("relevant", relevant, totals.relevant),
        ("irrelevant", irrelevant, totals.size - totals.relevant),
    ):
        wrong = drawn > there
        if bool(wrong.any()):
            raise ValueError(
                f"labels: expected at most the {int(there[wrong][0])} {name} items that the statistics count in a "
                f"list, got {int(drawn[wrong][0])} ({int(wrong.sum())} such lists)"
            )
