"""The score that separates the first k items of a list from the rest."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from rankwise.checks import check_k, check_positive, check_share
from rankwise.estimators.table import IdTable
from rankwise.lists import surely_all

__all__ = ["Threshold", "ThresholdTracker"]

_MOST_STEPS = 60
# On an accelerator the host does not wait to see whether the steps have settled; most lists need 4.
_STEPS_ON_DEVICE = 10
# So many tau below the threshold an item is out of it, in any precision.
_REACH = 40.0


class Threshold(NamedTuple):
    """Of Q lists, (Q,) each: the threshold, its curvature, and the threshold that this was observed at."""

    value: Tensor
    curvature: Tensor
    observed_at: Tensor


class ThresholdTracker(nn.Module):
    """The threshold of a list: between its k-th and (k+1)-th score, smoothly, as the minimum over lambda of

        (k + 1/2) / N lambda + tau_norm / 2 (lambda - mean)^2 + mean over items of tau softplus((s_j - lambda) / tau)

    which for small tau and tau_norm is the (k+1)-th largest score. Of whole lists it is found exactly. Of sampled lists
    it is remembered with its curvature, one row per list: a gradient step moves the threshold, a moving average follows
    the curvature; the first batch starts both at its own threshold. Nothing is written in eval mode.

    The slope of the objective is a share of items, at most p = (k + 1/2) / N where the threshold is too high; scores
    may be of any size. The step is therefore measured in their spread, and in that of the share above, sqrt(p (1 - p)):

        lambda <- lambda - step_size spread slope / sqrt(p (1 - p))

    Args:
        k: how many items stand above the threshold.
        tau: width of the smooth step.
        tau_norm: weight of the quadratic term, which makes the minimum unique. It moves the cutoff by
            N tau_norm (lambda - mean) items, so it must be small where lists are long. It pulls towards the mean score
            of the list, so that adding a constant to all scores moves the threshold alike.
        step_size: of the gradient step, relative to the mean distance of the scores from their mean.
        update_rate: weight of the new curvature.

    Example:
        >>> tracker = ThresholdTracker(k=2, tau=0.01)
        >>> scores = torch.tensor([[0.9, 0.1, 0.5, 0.7]])
        >>> found = tracker(scores, torch.full((1, 4), 0.25), torch.tensor([4]), None)
        >>> round(float(found.value), 2)
        0.5
    """

    def __init__(
        self,
        k: int,
        *,
        tau: float = 0.01,
        tau_norm: float = 1e-6,
        step_size: float = 0.25,
        update_rate: float = 0.1,
    ) -> None:
        super().__init__()
        if check_k(k) is None:
            raise ValueError("k: expected a whole number of at least 1, got None")
        self.k = k
        self.tau, self.tau_norm = check_positive("tau", tau), check_positive("tau_norm", tau_norm)
        self.step_size = check_positive("step_size", step_size)
        self.update_rate = check_share("update_rate", update_rate, open_end=False)
        self.table = IdTable(width=2)

    def extra_repr(self) -> str:
        return f"k={self.k}, tau={self.tau:g}, step_size={self.step_size:g}, update_rate={self.update_rate:g}"

    @torch.no_grad()
    def forward(
        self,
        scores: Tensor,
        share: Tensor,
        size: Tensor,
        group_ids: Tensor | None,
        chosen: Tensor | None = None,
    ) -> Threshold:
        """Return the thresholds of lists.

        Args:
            scores: (Q, L), share: (Q, L) which share of its list each item counts for, 0 where there is none.
            size: (Q,) items of the whole lists.
            group_ids: (Q,) whose remembered thresholds to move and use; None finds those of the given items.
            chosen: (Q,) the lists of more than k items; thresholds of the others are undefined. None: all.
        """
        scores, share = scores.detach(), share.to(scores.dtype)
        level = (self.k + 0.5) / size.to(scores.dtype)
        if chosen is not None:
            level = torch.where(chosen, level, 0.5)
        mean = (scores * share).sum(1) / share.sum(1).clamp_min(torch.finfo(scores.dtype).tiny)
        if group_ids is None:
            value = self._minimum(scores, share, level, mean)
            return Threshold(value, self._derivatives(scores, share, level, mean, value)[1], value)
        rows = self.table.locate(group_ids)
        remembered, known = self.table.read(group_ids, rows)
        before, curvature = remembered.to(scores.dtype).unbind(1)
        all_known = surely_all(known)
        if not all_known:
            best, top_share = _best(scores, share, scores.shape[1])
            before = torch.where(known, before, _start(best, top_share, level))
        slope, here = self._derivatives(scores, share, level, mean, before)
        spread = ((scores - mean[:, None]).abs() * share).sum(1)
        # A share of items and a quadratic term, which outgrows it only for scores about 1 / tau_norm apart.
        slope = slope.clamp(-1, 1)
        value = before - self.step_size * spread * slope * (level * (1 - level)).rsqrt()
        curvature = curvature.lerp(here, self.update_rate)
        if not all_known:
            value, curvature = torch.where(known, value, before), torch.where(known, curvature, here)
        if self.training:
            now = self.table.update(group_ids, torch.stack([value, curvature], 1), 1.0, rows=rows, chosen=chosen)
            value, curvature = now.to(scores.dtype).unbind(1)
        return Threshold(value, curvature, before)

    @torch.no_grad()
    def pull(self, scores: Tensor, share: Tensor, threshold: Threshold) -> Tensor:
        """How far the threshold moves with the score of each item, (Q, L): minus the mixed derivative / curvature."""
        above = torch.sigmoid((scores.detach() - threshold.observed_at[:, None]) / self.tau)
        return share * ((1 - above) * above / self.tau + self.tau_norm) / threshold.curvature[:, None]

    def _derivatives(
        self, scores: Tensor, share: Tensor, level: Tensor, mean: Tensor, value: Tensor
    ) -> tuple[Tensor, Tensor]:
        """First and second derivative in the threshold, (Q,) each."""
        above = (scores - value[:, None]).mul_(1 / self.tau).sigmoid_()
        weighted = above * share
        slope = level + self.tau_norm * (value - mean) - weighted.sum(1)
        return slope, (above.neg_().add_(1).mul_(weighted)).sum(1) / self.tau + self.tau_norm

    def _minimum(self, scores: Tensor, share: Tensor, level: Tensor, mean: Tensor) -> Tensor:
        """The best items decide, unless many crowd around the threshold: those far below it count for nothing."""
        width = min(scores.shape[1], 2 * self.k + 32) if scores.device.type == "cpu" else scores.shape[1]
        best, top_share = _best(scores, share, width)
        value = self._newton(best, top_share, level, mean)
        if width == scores.shape[1] or bool((value - best[:, -1] > _REACH * self.tau).all()):
            return value
        return self._newton(*_best(scores, share, scores.shape[1]), level, mean)

    def _newton(self, best: Tensor, share: Tensor, level: Tensor, mean: Tensor) -> Tensor:
        """Newton's method between bounds that close in; where a step would leave them, the middle is taken."""
        value = _start(best, share, level)
        lowest = torch.where(share > 0, best, torch.inf).amin(1).nan_to_num(posinf=0.0)
        low, high = lowest - _REACH * self.tau, best[:, 0].nan_to_num(neginf=0.0) + _REACH * self.tau
        epsilon, waits = torch.finfo(value.dtype).eps, value.device.type == "cpu"
        for _ in range(_MOST_STEPS if waits else _STEPS_ON_DEVICE):
            slope, curvature = self._derivatives(best, share, level, mean, value)
            low, high = torch.where(slope < 0, value, low), torch.where(slope < 0, high, value)
            following = value - slope / curvature
            following = torch.where((following >= low) & (following <= high), following, low / 2 + high / 2)
            value, step = following, (following - value).abs_()
            # What a step of this size leaves is its square; smaller ones are rounding.
            small = max(1e-5, 16 * self.k * epsilon) * self.tau + 4 * epsilon * value.abs()
            if waits and bool((step <= small).all()):
                break
        return value


def _best(scores: Tensor, share: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """The best scores of each list, best first, and their shares; minus infinity where there is no item."""
    best, order = scores.masked_fill(share <= 0, -torch.inf).topk(width, 1)
    return best, share.gather(1, order)


def _start(best: Tensor, share: Tensor, level: Tensor) -> Tensor:
    """The first of the scores, best first, at which the items reach the level; the last where they never do."""
    place = (share.cumsum(1) < level[:, None]).sum(1)
    place = torch.minimum(place, (share > 0).sum(1) - 1).clamp_min(0)
    return best.gather(1, place[:, None])[:, 0].nan_to_num(neginf=0.0)
