"""How many items stand above each positive, counted by a smooth step."""

from __future__ import annotations

import torch
from torch import Tensor

from rankwise.lists import Lists
from rankwise.losses.sides import Sides
from rankwise.pairs import pair_sums
from rankwise.surrogates import Surrogate

__all__ = ["soft_ranks"]


def soft_ranks(lists: Lists, sides: Sides, step: Surrogate) -> tuple[Tensor, Tensor]:
    """The negatives above each positive and its rank among all items, (Q, A) each, by weight.

    A positive counts for itself in full; step(0) must be 1/2. Over the positives only: Q x A x L pairs, in chunks that
    need no memory to speak of.
    """
    positives = lists.scores.gather(1, sides.places)
    weights = None if lists.weights is None else lists.weights.to(positives.dtype)
    own = sides.mask.to(positives.dtype) if weights is None else weights.gather(1, sides.places) * sides.mask
    above = pair_sums(
        positives, lists.scores, step, weights=weights, anchor_mask=sides.mask, other_mask=sides.negatives
    )
    among = pair_sums(positives, positives, step, weights=own, anchor_mask=sides.mask, other_mask=sides.mask)
    # The sum over all positives holds the positive itself with half of its weight.
    rank = above + among + torch.where(sides.mask, own / 2, 1)
    return above, rank
