"""The scores of all positives of a group, remembered as a few quantiles (the vector V of SOPRC)."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from rankwise.checks import check_count
from rankwise.estimators.tracker import GroupTracker
from rankwise.lists import every
from rankwise.modes import outside_inference_mode
from rankwise.sorting import sort_values

__all__ = ["QuantileTracker", "interpolate_quantiles"]


class QuantileTracker(GroupTracker):
    """Moving averages of `count` quantiles of a group's positive scores, one row per group.

    V <- (1 - update_rate) V + update_rate observed. The first observation of a group starts its row; several of one
    group in a batch are averaged. Nothing is written in eval mode.

    Args:
        count: how many quantiles (M).
        update_rate: the weight of the new observation, in (0, 1].

    Example:
        >>> tracker = QuantileTracker(count=2, update_rate=0.5)
        >>> group = torch.tensor([5])
        >>> tracker(torch.tensor([[0.2, 0.4]]), torch.tensor([True]), group)
        tensor([[0.2000, 0.4000]])
        >>> tracker(torch.tensor([[0.4, 0.8]]), torch.tensor([True]), group)
        tensor([[0.3000, 0.6000]])
    """

    def __init__(self, count: int = 100, update_rate: float = 0.1) -> None:
        check_count("quantiles", count)
        super().__init__(count, update_rate)
        self.count = count

    def forward(self, observed: Tensor, present: Tensor, group_ids: Tensor | None) -> Tensor:
        """Take note of the quantiles observed in each list and give those of its group.

        Args:
            observed: (Q, count) quantiles of the positives in the batch, see `interpolate_quantiles`.
            present: (Q,) which lists have positives; the others leave their group as it is.
            group_ids: (Q,) or None: then nothing is remembered, and what was observed is the answer.

        Returns:
            (Q, count) without gradient.
        """
        return self.remember(observed, present, group_ids)


def interpolate_quantiles(
    scores: Tensor, mask: Tensor | None, count: int, bounds: tuple[float, float] | None = None
) -> Tensor:
    """phi: `count` quantiles of each list of scores, by linear interpolation; (Q, n) to (Q, count).

    With the n scores of a list in ascending order, u_1 .. u_n, and one extrapolated on either side (u_0 = 2 u_1 - u_2
    and u_{n+1} = 2 u_n - u_{n-1}, cut to the bounds), the quantile at t = (j + 1/2) n / count lies on the line through
    the midpoints (i, (u_i + u_{i+1}) / 2). One score alone gives a constant; no score gives zeros.

    Args:
        scores: (Q, n), mask: (Q, n) False where there is no score; None when there is one everywhere.
        count: how many quantiles.
        bounds: the range that scores cannot leave, or None.

    Example:
        >>> interpolate_quantiles(torch.tensor([[0.7, 0.1, 0.5, 0.3]]), torch.ones(1, 4, dtype=torch.bool), 4)
        tensor([[0.1000, 0.3000, 0.5000, 0.7000]])
    """
    lists, width = scores.shape
    if width == 0:
        return scores.new_zeros(lists, count)
    if mask is None or every(mask):
        ascending = sort_values(scores)
        *places, down, up = _even_places(width, count, scores.dtype, scores.device)
        below, at, above = (ascending.index_select(1, place) for place in places)
    else:
        size = mask.sum(1, keepdim=True)
        ascending = sort_values(scores.masked_fill(~mask, torch.inf).masked_fill_(size == 0, 0), in_place=True)
        *places, down, up = _places(size, count, scores.dtype)
        below, at, above = (ascending.gather(1, place) for place in places)
    if bounds is None:
        return torch.addcmul(at.lerp(below, down), above - at, up)
    lower = torch.maximum((below - at) * down, (bounds[0] - at) * down.abs())
    return at + lower + torch.minimum((above - at) * up, (bounds[1] - at) * up.abs())


def _places(size: Tensor, count: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Between which scores of lists of `size` (Q, 1) the quantiles lie, (Q, count) each.

    The place before, that of the nearest score and the place after it, and the weights of the ways from the nearest to
    the other two. Beyond either end the way is that to the other side, backwards.
    """
    step = torch.arange(count, dtype=dtype, device=size.device) + 0.5
    exact, last = step * (size.to(dtype) / count), (size - 1).clamp_min(0)
    place = torch.minimum(exact.floor().long(), last)
    share = (exact - place).clamp_max(1)
    before = torch.where(place == 0, torch.minimum(place + 1, last), place - 1)
    after = torch.where(place == last, (place - 1).clamp_min(0), place + 1)
    down = torch.where(place == 0, share - 1, 1 - share) / 2
    up = torch.where(place == last, -share, share) / 2
    return before, place, after, down, up


@lru_cache(maxsize=64)
@outside_inference_mode
def _even_places(
    size: int, count: int, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The same for lists of one size, (count,) each."""
    before, place, after, down, up = _places(torch.tensor([[size]], device=device), count, dtype)
    return before[0], place[0], after[0], down[0], up[0]
