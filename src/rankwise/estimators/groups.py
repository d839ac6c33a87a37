"""Keep statistics of each group of lists: prior, spread, quantiles, mean."""

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
    check_moved,
    check_same_shape,
    check_share,
    check_tensor,
    first_order_only,
    outside_inference_mode,
    when,
    widen,
)
from rankwise.estimators.table import IdTable
from rankwise.lists import Lists, PackedLists, surely_all
from rankwise.registry import nearest
from rankwise.sorting import sort_values

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
        ascending = _ascending(scores)
        *places, down, up = _even_places(width, count, scores.dtype, scores.device)
        below, at, above = (ascending.index_select(1, place) for place in places)
    else:
        size = mask.sum(1, keepdim=True)
        ascending = _ascending(scores.masked_fill(~mask, torch.inf).masked_fill_(size == 0, 0))
        *places, down, up = _places(size, count, scores.dtype)
        below, at, above = (ascending.gather(1, place) for place in places)
    if bounds is None:
        return torch.addcmul(at.lerp(below, down), above - at, up)
    lower = torch.maximum((below - at) * down, (bounds[0] - at) * down.abs())
    return at + lower + torch.minimum((above - at) * up, (bounds[1] - at) * up.abs())


def _ascending(scores: Tensor) -> Tensor:
    """Sort each list; numpy's vectorised sort pays for long lists only."""
    return sort_values(scores) if scores.shape[1] > 1000 else scores.sort(1).values


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


LINKS = ("scale", "none", "tanh", "sigmoid")


class Link(nn.Module):
    """Turns scores of any range into scores of about [-1, 1].

    - "scale": divides each list by the running spread of its group's scores where that exceeds 1, so that cosine
      similarities and probabilities pass unchanged and logits are shrunk as they grow. Adding a constant to the scores
      changes nothing.
    - "none": scores as they are.
    - "tanh", "sigmoid": that function of the scores.
    """

    def __init__(self, kind: str, update_rate: float = 0.1) -> None:
        super().__init__()
        self.kind, self.update_rate = check_choice("link", kind, LINKS), update_rate
        self.spreads = IdTable(width=1) if kind == "scale" else None

    def extra_repr(self) -> str:
        return self.kind

    def forward(self, packed: PackedLists, group_ids: Tensor | None) -> PackedLists:
        """The same lists with linked scores; `group_ids` (size,) says which share a spread."""
        return self.with_scale(packed, group_ids)[0]

    def with_scale(self, packed: PackedLists, group_ids: Tensor | None) -> tuple[PackedLists, Tensor | None]:
        """Linked lists, and what each was divided by, (size,); None when by nothing."""
        if self.kind == "none":
            return packed, None
        scale: Tensor | None = None
        if self.spreads is not None:
            scale = self._scale(packed, group_ids, self.spreads)
            if scale is None:
                return packed, None
        blocks = (
            replace(
                block,
                scores=self._linked(block.scores, block.positions, scale),
                previous_scores=None
                if block.previous_scores is None
                else self._linked(block.previous_scores, block.positions, scale),
            )
            for block in packed.blocks
        )
        return replace(packed, blocks=tuple(blocks)), scale

    def _linked(self, scores: Tensor, positions: Tensor, scale: Tensor | None) -> Tensor:
        if scale is not None:
            scaled = scores / scale[positions, None].to(scores.dtype)
            return first_order_only(scaled, 'link="scale"', "the running spread of the scores is held fixed")
        linked: Tensor = getattr(torch, self.kind)(scores)
        return linked

    @torch.no_grad()
    def _scale(self, packed: PackedLists, group_ids: Tensor | None, spreads: IdTable) -> Tensor | None:
        """What to divide each list by (size,), or None when that is 1 for all. Only spreads beyond 1 are remembered."""
        if not len(spreads) and all(_within_two(block) for block in packed.blocks):
            return None
        (scale,) = packed.map(_spread)
        scale = scale.clamp_min(1)
        if group_ids is None:
            return scale
        rows = spreads.locate(group_ids)
        noted = (rows >= 0) | (scale > 1)
        noted_scale = spreads.follow(
            group_ids, scale[:, None], self.update_rate, rows=rows, chosen=noted, training=self.training
        )
        return noted_scale[:, 0].to(scale.dtype)


def _within_two(lists: Lists) -> bool:
    """Return whether all scores are known to lie within a range of 2: then no spread exceeds 1."""
    if lists.cosines or not lists.scores.numel():
        return True
    if lists.scores.device.type != "cpu":
        return False
    low, high = torch.aminmax(lists.scores)
    return high.item() - low.item() <= 2


def _spread(lists: Lists) -> tuple[Tensor]:
    """Root mean square distance of the scores from the mean of their list, (Q,)."""
    size = lists.size[:, None].clamp_min(1)
    scores = widen(lists.scores)
    distance = (scores - (scores * lists.mask).sum(1, keepdim=True) / size) * lists.mask
    return ((distance.square().sum(1) / size[:, 0]).sqrt(),)


class Prior(ExactModule):
    """Gives the prior of each list. `rate` (Q,) is the share of positives in the batch's lists."""

    def forward(self, rate: Tensor, group_ids: Tensor | None) -> Tensor:
        raise NotImplementedError

    def odds(self, rate: Callable[[], Tensor], group_ids: Tensor | None) -> Tensor | float:
        """Negatives per positive, (1 - prior) / prior: (Q,), or a number for all lists. `rate` is asked if needed."""
        prior: Tensor = self(rate(), group_ids)
        return (1 - prior) / prior


class ConstantPrior(Prior):
    """One number for all lists."""

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
    """The share of positives in the batch itself: right when batches are drawn like the data, or hold all of it."""

    def forward(self, rate: Tensor, group_ids: Tensor | None) -> Tensor:
        return rate


class GroupPrior(Prior):
    """A prior for each group.

    Args:
        priors: (G,) numbers in (0, 1).
        group_ids: (G,) the groups they belong to; 0, 1, 2, ... by default.

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
        place = torch.searchsorted(self.ids, group_ids).clamp_max(len(self.ids) - 1)
        unknown = self.ids[place] != group_ids

        def refuse() -> None:
            raise ValueError(f"group_ids: no prior was given for group {int(group_ids[unknown][0])}")

        when(unknown.any(), refuse)
        return self.priors[place].to(rate.dtype)


class PriorSchedule(Prior):
    """From an easy prior to the one wanted, geometrically over a number of training steps.

    With the true prior of a rare class nearly every positive starts out hopeless, the objective is flat there and
    training stalls. Starting near 1/2 and lowering the prior keeps the gradient alive all the way.

    Args:
        start: prior of the first step; end: prior after `steps` steps, a number or a prior per group.
        steps: length of the schedule in training steps; the end holds from then on.

    Example:
        >>> prior = PriorSchedule(start=0.5, end=0.02, steps=2)
        >>> [round(float(prior(torch.zeros(1), None)), 3) for _ in range(4)]
        [0.5, 0.1, 0.02, 0.02]
    """

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
    """What a user may pass as `prior=`: a number, "batch", a tensor (one number per group), or a `Prior`.

    A mapping is the arguments of a `PriorSchedule`, as a file may give them.
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
    """The true priors of a data set, from all of its labels.

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
