"""The share of positives that a loss should reckon with: fixed, per group, of the batch, or on a schedule."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from rankwise.checks import (
    check_choice,
    check_count,
    check_ids,
    check_labels,
    check_moved,
    check_same_shape,
    check_share,
    check_tensor,
    when,
)
from rankwise.modes import ExactModule, widen
from rankwise.registry import nearest

__all__ = ["GroupPrior", "Prior", "PriorSchedule", "class_prior", "data_prior"]


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
        values = check_tensor("prior", priors).detach().float().flatten()
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
    """The true priors in retrieval: for a query of class c, the share of class c among all other items.

    Args:
        class_labels: (N,) class of every item of the data set.

    Example:
        >>> class_prior([5, 5, 5, 8, 8]).priors
        tensor([0.5000, 0.2500])
    """
    classes, counts = check_ids("class_labels", class_labels).unique(return_counts=True)
    several = counts > 1
    return GroupPrior((counts[several] - 1) / (int(counts.sum()) - 1), classes[several])
