"""Moving averages by group or by item: quantiles, means, sums of pairs."""

from __future__ import annotations

import warnings
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from rankwise.checks import check_choice, check_count, check_share
from rankwise.estimators.table import SPACES, IdTable
from rankwise.lists import surely_all
from rankwise.modes import outside_inference_mode
from rankwise.sorting import sort_values

__all__ = ["GroupTracker", "MeanTracker", "PairAverages", "QuantileTracker", "interpolate_quantiles"]


class GroupTracker(nn.Module):
    """Moving averages of what is observed of a group's lists, one row of `width` numbers per group.

    The first observation of a group starts its row; several of one group in a batch are averaged. Nothing is written in
    eval mode. Loading a state that has seen nothing warns: it is hardly what was meant to be saved.

    Args:
        width: how many numbers are kept per group.
        update_rate: the weight of the new observation, in (0, 1].
    """

    def __init__(self, width: int, update_rate: float) -> None:
        super().__init__()
        self.update_rate = check_share("update_rate", update_rate, open_end=False)
        self.table = IdTable(width=width)

    def extra_repr(self) -> str:
        return f"update_rate={self.update_rate:g}"

    def remember(
        self, observed: Tensor, present: Tensor, group_ids: Tensor | None, rows: Tensor | None = None
    ) -> Tensor:
        """Take note of what was observed of each list and give the averages of its group.

        Args:
            observed: (Q, width).
            present: (Q,) of which lists anything was observed; the others leave their group as it is.
            group_ids: (Q,) or None: then nothing is remembered, and what was observed is the answer.
            rows: what the table's `locate(group_ids)` returned, if it was called already.

        Returns:
            (Q, width) without gradient.
        """
        observed = observed.detach()
        if group_ids is None:
            return observed
        averages = self.table.follow(
            group_ids, observed, self.update_rate, training=self.training, rows=rows, chosen=present
        )
        return averages.to(observed.dtype)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        ids = state_dict.get(prefix + "table.ids")
        if ids is not None and not len(ids):
            warnings.warn(
                "the loaded loss state has seen nothing: training continues as if from its first batch", stacklevel=2
            )
        super()._load_from_state_dict(state_dict, prefix, *others)


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
    if mask is None or surely_all(mask):
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
    before, place, after, down, up = _places(torch.full((1, 1), size, device=device), count, dtype)
    return before[0], place[0], after[0], down[0], up[0]


class MeanTracker(GroupTracker):
    """A running mean of each group, which can be told how far the new weights have moved the batch's own mean.

        mean <- observed + (1 - update_rate) (mean - previous)

    `observed` is the batch's mean now and `previous` the mean of the same items under the weights before the last step.
    What the weights did to the batch is so passed on to the remembered mean at once, and only the noise of sampling is
    averaged; with the whole data set as the batch the error shrinks by exactly 1 - update_rate per step, whatever the
    weights do. Without `previous` it is the plain moving average, which lags behind the weights.

    The first observation of a group starts its row; several of one group in a batch are averaged. Nothing is written in
    eval mode.

    Args:
        update_rate: the weight of the new observation, in (0, 1]; 1 remembers the last batch only.

    Example:
        >>> import torch
        >>> tracker, group, present = MeanTracker(update_rate=0.5), torch.tensor([5]), torch.tensor([True])
        >>> tracker(torch.tensor([0.2]), present, group)
        tensor([0.2000])
        >>> tracker(torch.tensor([0.6]), present, group)
        tensor([0.4000])
        >>> tracker(torch.tensor([0.9]), present, group, previous=torch.tensor([0.6]))  # 0.9 + 0.5 (0.4 - 0.6)
        tensor([0.8000])

    Paper: Wen et al., Generalizable Stochastic Average Precision Learning via Stable Surrogate Loss, Chinese Journal of
    Computers 2025, equation (6).
    """

    def __init__(self, update_rate: float = 0.01) -> None:
        super().__init__(1, update_rate)

    def forward(
        self, observed: Tensor, present: Tensor, group_ids: Tensor | None, previous: Tensor | None = None
    ) -> Tensor:
        """Take note of the mean observed in each list and give that of its group.

        Args:
            observed: (Q,) means of the batch's lists.
            present: (Q,) which lists have anything to take the mean of; the others leave their group as it is.
            group_ids: (Q,) or None: then nothing is remembered, and what was observed is the answer.
            previous: (Q,) means of the same items before the last step, or None.

        Returns:
            (Q,) without gradient.
        """
        observed = observed.detach()
        rows: Tensor | None = None
        if previous is not None and group_ids is not None and self.training:
            # The table averages rows with what it is given: (1 - rate) row + rate given. A new row takes it as it is.
            moved = (observed - (1 - self.update_rate) * previous.detach()) / self.update_rate
            rows = self.table.locate(group_ids)
            given = moved.where(rows >= 0, observed)
        else:
            given = observed
        return self.remember(given[:, None], present, group_ids, rows)[:, 0]


class PairAverages(nn.Module):
    """u <- (1 - update_rate) u + update_rate observed, for every (list, item) pair.

    The first observation of a pair starts its average; several of one pair in a batch are averaged. Nothing is written
    in eval mode: the answer is then what an update would have given.

    Args:
        update_rate: the weight of the new observation, in (0, 1].
        space: "linear", or "log" when what is observed and kept are logarithms of the numbers to average.

    Example:
        >>> averages = PairAverages(update_rate=0.5)
        >>> pair = torch.tensor([[3, 8]])
        >>> averages(pair, torch.tensor([2.0])), averages(pair, torch.tensor([4.0]))
        (tensor([2.]), tensor([3.]))
    """

    def __init__(self, update_rate: float = 0.1, space: str = "linear") -> None:
        super().__init__()
        self.update_rate = check_share("update_rate", update_rate, open_end=False)
        self._space = SPACES[check_choice("space", space, SPACES)]
        self.table = IdTable(width=1, columns=2)

    def extra_repr(self) -> str:
        return f"update_rate={self.update_rate:g}"

    def forward(self, pairs: Tensor, observed: Tensor, chosen: Tensor | None = None) -> Tensor:
        """Take note of what was observed (n,) of the pairs (n, 2); return their averages (n,), without gradient.

        `chosen` (n,) tells which count; the averages of the others are undefined.
        """
        observed = observed.detach()
        if chosen is not None and chosen.device.type == "cpu":
            return observed.masked_scatter(chosen, self._average(pairs[chosen], observed[chosen], None))
        return self._average(pairs, observed, chosen)

    def _average(self, pairs: Tensor, observed: Tensor, chosen: Tensor | None) -> Tensor:
        averages = self.table.update(
            pairs, observed[:, None], self.update_rate, self._space, chosen=chosen, write=self.training
        )
        return averages[:, 0].to(observed.dtype)
