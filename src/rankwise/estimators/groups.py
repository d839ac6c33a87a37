"""Running statistics of each group of lists: quantiles, mean, spread; and priors."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from rankwise.checks import (
    ExactModule,
    check_choice,
    check_count,
    check_ids,
    check_labels,
    check_later,
    check_moved,
    check_same_shape,
    check_share,
    check_tensor,
    first_order_only,
    on_host,
    outside_inference_mode,
    widen,
)
from rankwise.estimators.table import IdTable
from rankwise.lists import Lists, PackedLists, surely_all
from rankwise.registry import nearest
from rankwise.sorting import argsort, numbers, once_on_device, sort_values

__all__ = [
    "LINKS",
    "BatchPrior",
    "ConstantPrior",
    "GroupPrior",
    "GroupTracker",
    "Link",
    "MeanTracker",
    "Prior",
    "PriorSchedule",
    "QuantileTracker",
    "as_prior",
    "class_prior",
    "counts_prior",
    "data_prior",
    "interpolate_quantiles",
    "list_prior",
]


class GroupTracker(nn.Module):
    """Moving averages of statistics of a group's lists, one row of `width` numbers per group.

    The first observation of a group starts its row; several of one group in a batch are averaged. Nothing is written in
    eval mode. Loading a state without any group warns, because it was probably saved by mistake.

    Args:
        width: numbers per group.
        update_rate: weight of the new observation, in (0, 1].
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
        """Update the averages with the observation of each list and return those of its group.

        Args:
            observed: (Q, width).
            present: (Q,) False for lists without an observation, which leave their group unchanged.
            group_ids: (Q,) or None: then no state is kept, and `observed` is returned.
            rows: the result of the table's `locate(group_ids)`, if it was called already.

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
        count: number of quantiles (M).
        update_rate: weight of the new observation, in (0, 1].

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
        """Update the running quantiles with those of each list and return those of its group.

        Args:
            observed: (Q, count) quantiles of the positives in the batch, see `interpolate_quantiles`.
            present: (Q,) False for lists without positives, which leave their group unchanged.
            group_ids: (Q,) or None: then no state is kept, and `observed` is returned.

        Returns:
            (Q, count) without gradient.
        """
        return self.remember(observed, present, group_ids)


def interpolate_quantiles(
    scores: Tensor,
    mask: Tensor | None,
    count: int,
    bounds: tuple[float, float] | None = None,
    weights: Tensor | None = None,
) -> Tensor:
    """Compute `count` quantiles of each list of scores by linear interpolation: (Q, n) to (Q, count).

    With the n scores of a list in ascending order, u_1 .. u_n, and one extrapolated on either side (u_0 = 2 u_1 - u_2
    and u_{n+1} = 2 u_n - u_{n-1}, clipped to the bounds), the quantile at t = (j + 1/2) n / count lies on the polyline
    through the midpoints (i, (u_i + u_{i+1}) / 2). A single score gives equal quantiles; no score gives zeros. With
    weights the midpoint after u_i is at w_1 + .. + w_i instead of i, and t = (j + 1/2) (w_1 + .. + w_n) / count.

    Args:
        scores: (Q, n), mask: (Q, n) False in the padding; None when there is none.
        count: number of quantiles.
        bounds: range of the scores, or None.
        weights: (Q, n) of 0 or more, 0 in the padding; None weighs all scores alike.

    Example:
        >>> interpolate_quantiles(torch.tensor([[0.7, 0.1, 0.5, 0.3]]), torch.ones(1, 4, dtype=torch.bool), 4)
        tensor([[0.1000, 0.3000, 0.5000, 0.7000]])
    """
    lists, width = scores.shape
    if width == 0:
        return scores.new_zeros(lists, count)
    if weights is not None:
        # Equal scores in the order of their weights, so that the order of the input does not matter.
        order = argsort(weights)
        order = order.gather(1, argsort(scores.gather(1, order), None if mask is None else mask.gather(1, order)))
        ascending = scores.gather(1, order)
        *indices, down, up = _weighted_neighbours(weights.gather(1, order), count)
        below, at, above = (ascending.gather(1, index) for index in indices)
    elif mask is None or surely_all(mask):
        ascending = _ascending(scores)
        *indices, down, up = _equal_size_neighbours(width, count, scores.dtype, scores.device)
        below, at, above = (ascending.index_select(1, index) for index in indices)
    elif not on_host(scores):
        return _masked_quantiles(scores, mask, count, bounds)
    else:
        size = mask.sum(1, keepdim=True)
        ascending = _ascending(scores.masked_fill(~mask, torch.inf).masked_fill_(size == 0, 0))
        *indices, down, up = _neighbours(size, count, scores.dtype)
        below, at, above = (ascending.gather(1, index) for index in indices)
    if bounds is None:
        return torch.addcmul(at.lerp(below, down), above - at, up)
    lower = torch.maximum((below - at) * down, (bounds[0] - at) * down.abs())
    return at + lower + torch.minimum((above - at) * up, (bounds[1] - at) * up.abs())


def _masked_quantiles(scores: Tensor, mask: Tensor, count: int, bounds: tuple[float, float] | None) -> Tensor:
    """Compute `interpolate_quantiles` for an accelerator, in the fewest kernels: one look-up for all neighbours."""
    size = mask.sum(1, keepdim=True)
    ascending = scores.masked_fill(~mask, torch.inf).sort(1).values.masked_fill(size == 0, 0)
    exact = _steps(count, scores.dtype, scores.device) * (size / count)
    last = (size - 1).clamp_min(0)
    nearest = torch.minimum(exact.long(), last)
    share = exact - nearest
    index = nearest[:, None] + numbers(3, scores.device)[:, None] - 1
    index = torch.minimum(index.clamp_min(0), last[:, None])
    values = ascending.gather(1, index.flatten(1)).view(index.shape)
    at, (before, after) = values[:, 1], values.diff(dim=1).unbind(1)
    # The gap beyond either end is that on the other side.
    below, above = before.where(nearest > 0, after), after.where(nearest < last, before)
    if bounds is not None:
        below, above = torch.minimum(below, at - bounds[0]), torch.minimum(above, bounds[1] - at)
    return at.add(below.neg().lerp(above, share), alpha=0.5)


@once_on_device
def _steps(count: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return 1/2, 3/2, 5/2, ..., (count,)."""
    return torch.arange(count, dtype=dtype, device=device) + 0.5


def _ascending(scores: Tensor) -> Tensor:
    """Sort each list; numpy's vectorised sort is faster for long lists only."""
    return sort_values(scores) if scores.shape[1] > 1000 else scores.sort(1).values


def _neighbours(size: Tensor, count: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the interpolation indices and weights of the quantiles of lists of `size` (Q, 1), (Q, count) each.

    These are the indices of the score before, of the nearest score and of the score after it, and the interpolation
    weights of the first and the last. At either end the missing neighbour is the opposite one, with a negative weight.
    """
    step = _steps(count, dtype, size.device)
    exact, last = step * (size.to(dtype) / count), (size - 1).clamp_min(0)
    nearest_index = torch.minimum(exact.floor().long(), last)
    return _interpolation(nearest_index, (exact - nearest_index).clamp_max(1), last)


def _weighted_neighbours(weights: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the result of `_neighbours` for scores in ascending order with these weights (Q, n)."""
    ends = widen(weights).cumsum(1)
    step = _steps(count, ends.dtype, ends.device)
    exact = step * (ends[:, -1:] / count)
    last = (weights > 0).sum(1, keepdim=True).sub_(1).clamp_min_(0)
    nearest_index = torch.minimum(torch.searchsorted(ends, exact, right=True), last)
    own = widen(weights).gather(1, nearest_index)
    begin = ends.gather(1, nearest_index) - own
    share = ((exact - begin) / torch.where(own > 0, own, 1)).clamp(0, 1).to(weights.dtype)
    return _interpolation(nearest_index, share, last)


def _interpolation(nearest_index: Tensor, share: Tensor, last: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the indices of the neighbours and their weights for quantiles at a share of the nearest score's span."""
    before = torch.where(nearest_index == 0, torch.minimum(nearest_index + 1, last), nearest_index - 1)
    after = torch.where(nearest_index == last, (nearest_index - 1).clamp_min(0), nearest_index + 1)
    down = torch.where(nearest_index == 0, share - 1, 1 - share) / 2
    up = torch.where(nearest_index == last, -share, share) / 2
    return before, nearest_index, after, down, up


@lru_cache(maxsize=64)
@outside_inference_mode
def _equal_size_neighbours(
    size: int, count: int, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the result of `_neighbours` for lists of one size, (count,) each, from a cache."""
    before, nearest_index, after, down, up = _neighbours(torch.full((1, 1), size, device=device), count, dtype)
    return before[0], nearest_index[0], after[0], down[0], up[0]


class MeanTracker(GroupTracker):
    """Running mean of each group, optionally corrected for the last change of the model's weights.

        mean <- observed + (1 - update_rate) (mean - previous)

    `observed` is the batch's mean now and `previous` the mean of the same items under the weights before the last step.
    The running mean thus moves with the batch's mean at once, and only the sampling noise is averaged. With the whole
    data set as the batch, the error shrinks by exactly 1 - update_rate per step for any change of the weights. Without
    `previous` this is the plain moving average, which lags behind the weights.

    The first observation of a group starts its row; several of one group in a batch are averaged. Nothing is written in
    eval mode.

    Args:
        update_rate: weight of the new observation, in (0, 1]; 1 keeps the last batch only.

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
        """Update the running means with the mean of each list and return those of its group.

        Args:
            observed: (Q,) means of the batch's lists.
            present: (Q,) False for lists without items to average, which leave their group unchanged.
            group_ids: (Q,) or None: then no state is kept, and `observed` is returned.
            previous: (Q,) means of the same items before the last step, or None.

        Returns:
            (Q,) without gradient.
        """
        observed = observed.detach()
        rows: Tensor | None = None
        if previous is not None and group_ids is not None and self.training:
            # The table computes (1 - rate) row + rate given. A new row is set to what is given.
            moved = (observed - (1 - self.update_rate) * previous.detach()) / self.update_rate
            rows = self.table.locate(group_ids)
            given = moved.where(rows >= 0, observed)
        else:
            given = observed
        return self.remember(given[:, None], present, group_ids, rows)[:, 0]


LINKS = ("scale", "none", "tanh", "sigmoid")
COSINES = (-1.0, 1.0)
# Ranges of the scores after the links that have one.
RANGES = {"tanh": COSINES, "sigmoid": (0.0, 1.0)}


class Link(nn.Module):
    """Map of scores of any range to about [-1, 1].

    - "scale": divides each list by the running spread of its group's scores if that exceeds 1. Cosine similarities and
      probabilities pass unchanged, and logits are scaled down as they grow. Adding a constant to the scores does not
      change the spread.
    - "none": the scores unchanged.
    - "tanh", "sigmoid": that function of the scores.
    """

    def __init__(self, kind: str, update_rate: float = 0.1) -> None:
        super().__init__()
        self.kind, self.update_rate = check_choice("link", kind, LINKS), update_rate
        self.spreads = IdTable(width=1) if kind == "scale" else None

    def extra_repr(self) -> str:
        return self.kind

    def forward(self, packed: PackedLists, group_ids: Tensor | None) -> PackedLists:
        """Return the lists with mapped scores; lists with equal `group_ids` (size,) share a spread."""
        return self.with_scale(packed, group_ids)[0]

    def with_scale(self, packed: PackedLists, group_ids: Tensor | None) -> tuple[PackedLists, Tensor | None]:
        """Return the lists with mapped scores and the divisor of each list, (size,); None if there is none."""
        if self.kind == "none":
            return packed, None
        scale: Tensor | None = None
        if self.spreads is not None:
            scale = self._scale(packed, group_ids, self.spreads)
            if scale is None:
                return packed, None
        blocks = (
            block.with_scores(
                self._linked(block.scores, block.positions, scale),
                None if block.previous_scores is None else self._linked(block.previous_scores, block.positions, scale),
                cosines=block.cosines,
            )
            for block in packed.blocks
        )
        return replace(packed, blocks=tuple(blocks)), scale

    def _linked(self, scores: Tensor, positions: Tensor, scale: Tensor | None) -> Tensor:
        if scale is not None:
            scaled = scores / (scale if len(scale) == len(positions) else scale[positions])[:, None].to(scores.dtype)
            return first_order_only(scaled, 'link="scale"', "the running spread of the scores is held fixed")
        linked: Tensor = getattr(torch, self.kind)(scores)
        return linked

    @torch.no_grad()
    def _scale(self, packed: PackedLists, group_ids: Tensor | None, spreads: IdTable) -> Tensor | None:
        """Return the divisor of each list (size,), or None when it is 1 for all. Only spreads beyond 1 are stored."""
        if all(block.cosines for block in packed.blocks):
            return None
        if on_host(packed.blocks[0].scores) and not len(spreads) and all(map(_within_two, packed.blocks)):
            return None
        (scale,) = packed.map(_spread)
        scale = scale.clamp_min(1)
        if group_ids is None:
            return scale
        running = spreads.follow(
            group_ids, scale[:, None], self.update_rate, starting=scale > 1, training=self.training
        )
        return running[:, 0].to(scale.dtype)


def _within_two(lists: Lists) -> bool:
    """Return whether the scores are known to lie in an interval of length 2: then no spread exceeds 1."""
    if lists.cosines or not lists.scores.numel():
        return True
    low, high = torch.aminmax(lists.scores)
    return high.item() - low.item() <= 2


def _spread(lists: Lists) -> tuple[Tensor]:
    """Compute the root mean square distance of the scores from the mean of their list, (Q,)."""
    scores, dtype = widen(lists.scores), lists.scores.dtype
    if lists.full and lists.scores.shape[1]:
        return (scores.std(1, correction=0).to(dtype),)
    size = lists.size[:, None].clamp_min(1)
    distance = (scores - (scores * lists.mask).sum(1, keepdim=True) / size) * lists.mask
    return ((distance.square().sum(1) / size[:, 0]).sqrt().to(dtype),)


class Prior(ExactModule):
    """Base class of priors: maps the share of positives in the batch's lists, `rate` (Q,), to the prior of each."""

    def forward(self, rate: Tensor, group_ids: Tensor | None) -> Tensor:
        raise NotImplementedError

    def odds(self, rate: Callable[[], Tensor], group_ids: Tensor | None) -> Tensor | float:
        """Compute the negatives per positive, (1 - prior) / prior: (Q,), or one number for all lists.

        `rate` is a function, called only if the prior depends on it.
        """
        prior: Tensor = self(rate(), group_ids)
        return (1 - prior) / prior


class ConstantPrior(Prior):
    """Prior that is one number for all lists."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = check_share("prior", value)

    def extra_repr(self) -> str:
        return f"{self.value:g}"

    def forward(self, rate: Tensor, group_ids: Tensor | None) -> Tensor:
        return torch.full_like(rate, self.value)

    def odds(self, rate: Callable[[], Tensor], group_ids: Tensor | None) -> float:
        return (1 - self.value) / self.value


class BatchPrior(Prior):
    """Prior that is the share of positives in the batch: for batches drawn uniformly, or of the whole data."""

    def forward(self, rate: Tensor, group_ids: Tensor | None) -> Tensor:
        return rate


class GroupPrior(Prior):
    """Prior of each group.

    Args:
        priors: (G,) numbers in (0, 1).
        group_ids: (G,) ids of their groups; 0, 1, 2, ... by default.

    Example:
        >>> GroupPrior([0.1, 0.3])(torch.zeros(2), torch.tensor([1, 0]))
        tensor([0.3000, 0.1000])
    """

    ids: Tensor
    priors: Tensor

    def __init__(self, priors: object, group_ids: object = None) -> None:
        super().__init__()
        values = widen(check_tensor("prior", priors).detach()).flatten()
        if not bool(((values > 0) & (values < 1)).all()):
            raise ValueError(f"prior: expected numbers in (0, 1), got {values.tolist()[:5]}")
        ids = torch.arange(len(values)) if group_ids is None else check_ids("group_ids", group_ids).flatten()
        check_same_shape("group_ids", ids, "prior", values.shape)
        ids, order = ids.to(values.device).sort()
        self.register_buffer("ids", ids)
        self.register_buffer("priors", values[order])

    def extra_repr(self) -> str:
        return f"groups={len(self.ids)}"

    def forward(self, rate: Tensor, group_ids: Tensor | None) -> Tensor:
        if group_ids is None:
            raise ValueError(
                "group_ids: expected the group of each list, because the prior is given per group, got None"
            )
        check_moved(self.ids, group_ids.device)
        index = torch.searchsorted(self.ids, group_ids).clamp_max(len(self.ids) - 1)
        unknown = self.ids[index] != group_ids

        def refuse() -> None:
            raise ValueError(f"group_ids: no prior was given for group {int(group_ids[unknown][0])}")

        check_later(unknown, refuse)
        return self.priors[index].to(rate.dtype)


class PriorSchedule(Prior):
    """Schedule that lowers the prior geometrically from `start` to `end` over a number of training steps.

    With the true prior of a rare class nearly every positive starts with a precision near 0, where the objective is
    flat and training stalls. Starting near 1/2 and lowering the prior keeps the gradients large.

    Args:
        start: prior of the first step; end: prior after `steps` steps, a number or a prior per group.
        steps: length of the schedule in training steps; the prior stays at `end` after them.

    Example:
        >>> prior = PriorSchedule(start=0.5, end=0.02, steps=2)
        >>> [round(float(prior(torch.zeros(1), None)), 3) for _ in range(4)]
        [0.5, 0.1, 0.02, 0.02]
    """

    traceable = False
    step: Tensor

    def __init__(self, start: float = 0.5, end: float | Tensor | Prior = 0.02, steps: int = 1000) -> None:
        super().__init__()
        check_count("steps", steps)
        self.start, self.end, self.steps = check_share("start", start), as_prior(end), steps
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))

    def extra_repr(self) -> str:
        return f"start={self.start:g}, steps={self.steps}, step={int(self.step)}"

    def forward(self, rate: Tensor, group_ids: Tensor | None) -> Tensor:
        end = self.end(rate, group_ids)
        done = (self.step / self.steps).clamp_max(1).to(rate.dtype)
        if self.training:
            self.step = self.step + 1
        prior: Tensor = self.start ** (1 - done) * end**done
        return prior


def as_prior(prior: object) -> Prior:
    """Create a `Prior` from the argument `prior=`: a number, "batch", a tensor (one number per group), or a `Prior`.

    A mapping holds the arguments of a `PriorSchedule`, as in a recipe.
    """
    if isinstance(prior, Prior):
        return prior
    if isinstance(prior, Mapping):
        unknown = [name for name in prior if name not in ("start", "end", "steps")]
        if unknown:
            raise ValueError(f"prior: unknown key {unknown[0]!r}{nearest(str(unknown[0]), ('start', 'end', 'steps'))}")
        return PriorSchedule(**prior)
    if isinstance(prior, str):
        check_choice("prior", prior, ("batch",))
        return BatchPrior()
    if isinstance(prior, int | float):
        return ConstantPrior(prior)
    tensor = check_tensor("prior", prior)
    return ConstantPrior(float(tensor)) if tensor.ndim == 0 else GroupPrior(tensor)


def data_prior(labels: object) -> float | GroupPrior:
    """Compute the true priors of a data set from all of its labels.

    Args:
        labels: (N,) binary labels of one problem, or (N, C) of C problems (classes as groups 0 .. C-1).

    Example:
        >>> data_prior([0, 0, 0, 1])
        0.25
    """
    tensor = check_tensor("labels", labels)
    if tensor.ndim not in (1, 2):
        raise ValueError(f"labels: expected (N,) or (N, C), got shape {tuple(tensor.shape)}")
    check_labels(tensor, "binary")
    rates = widen(tensor).mean(0)
    return float(rates) if rates.ndim == 0 else GroupPrior(rates)


def class_prior(class_labels: object) -> GroupPrior:
    """Compute the true priors in retrieval: for a query of class c, the share of class c among all other items.

    The only item of its class has nothing to find. Losses skip its list; its class gets the prior of two items.

    Args:
        class_labels: (N,) class of every item of the data set.

    Example:
        >>> class_prior([5, 5, 5, 8, 8]).priors
        tensor([0.5000, 0.2500], dtype=torch.float64)
    """
    classes, counts = check_ids("class_labels", class_labels).unique(return_counts=True)
    return counts_prior(counts.clamp_min(2) - 1, int(counts.sum()) - 1, classes)


def list_prior(labels: object, query_ids: object) -> GroupPrior:
    """Compute the true prior of each list of a data set: the share of its items that are positive.

    Args:
        labels: (N,) binary labels of all items.
        query_ids: (N,) the list that each item belongs to.

    Example:
        >>> list_prior([1, 0, 0, 0, 1, 0], query_ids=[7, 7, 7, 7, 3, 3]).priors
        tensor([0.5000, 0.2500], dtype=torch.float64)
    """
    relevant, ids = check_tensor("labels", labels), check_ids("query_ids", query_ids)
    check_same_shape("query_ids", ids, "labels", relevant.shape)
    check_labels(relevant, "binary")
    lists, index, sizes = ids.unique(return_inverse=True, return_counts=True)
    return counts_prior(torch.bincount(index, widen(relevant), minlength=len(lists)), sizes, lists)


def counts_prior(positives: Tensor, items: Tensor | int, group_ids: Tensor | None = None) -> GroupPrior:
    """Return the prior of groups with so many positives (G,) among so many items, (G,) or one number.

    A group without positives, or without negatives, gets half an item of the missing kind: losses skip its lists.
    """
    shares = (widen(positives).clamp_min(0.5) / items).clamp_max(1 - 0.5 / torch.as_tensor(items))
    return GroupPrior(shares, group_ids)
