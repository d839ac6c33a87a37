"""Updates in place of derivatives: every wrong pair moves its two items apart by what it costs."""

from __future__ import annotations

import torch
from torch import Tensor

from rankwise.lists import Lists
from rankwise.losses.rivals.weighing import item_weights
from rankwise.losses.sides import Sides
from rankwise.pairs import pair_sums
from rankwise.surrogates import Surrogate

__all__ = ["pair_updates"]


def pair_updates(lists: Lists, sides: Sides, step: Surrogate, costs: Tensor) -> Tensor:
    """The update (Q, L) in which a positive i and a negative j move apart by costs_i step(s_i - s_j).

    Args:
        lists: the scores; sides: their positives and negatives.
        step: how wrong a pair is, from 0 to 1.
        costs: (Q, A) what a pair of positive i costs when it is wrong; 0 outside `sides.mask`.
    """
    positives, weights = lists.scores.detach().gather(1, sides.places), item_weights(lists)
    # How the weighted sum over anchors of the step changes with the weight of a negative is that negative's share.
    with torch.enable_grad():
        counted = weights.clone().requires_grad_()
        sums = pair_sums(
            positives,
            lists.scores.detach(),
            step,
            weights=counted,
            anchor_mask=sides.mask,
            other_mask=sides.negatives,
        )
        (pushed,) = torch.autograd.grad(sums, counted, costs)
    return (pushed * weights * sides.negatives).scatter_add_(1, sides.places, -costs * sums.detach())
