"""The score that separates the first k items of a list from the rest."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from rankwise.checks import check_k, check_positive, check_share
from rankwise.estimators.table import IdTable

__all__ = ["Threshold", "ThresholdTracker"]

_MOST_STEPS = 60


class Threshold(NamedTuple):
    """Of Q lists: value (Q,) the threshold; pull (Q, L): how far it moves with the score of each item."""

    value: Tensor
    pull: Tensor


class ThresholdTracker(nn.Module):
    """The threshold of a list: between its k-th and (k+1)-th score, smoothly, as the minimum over lambda of

        (k + 1/2) / N lambda + tau_norm / 2 (lambda - mean)^2 + mean over items of tau softplus((s_j - lambda) / tau)

    which for small tau and tau_norm is the (k+1)-th largest score. Of whole lists it is found exactly. Of sampled lists
    it is remembered with its curvature, one row per list: a gradient step of length `step_size` moves the threshold, a
    moving average follows the curvature; the first batch starts both at its own threshold. Nothing is written in eval
    mode.

    Args:
        k: how many items stand above the threshold.
        tau: width of the smooth step.
        tau_norm: weight of the quadratic term, which makes the minimum unique. It moves the cutoff by
            N tau_norm (lambda - mean) items, so it must be small where lists are long. It pulls towards the mean score
            of the list, so that adding a constant to all scores moves the threshold alike.
        step_size: of the gradient step; update_rate: weight of the new curvature.

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
        step_size: float = 0.01,
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

    @torch.no_grad()
    def forward(self, scores: Tensor, share: Tensor, size: Tensor, group_ids: Tensor | None) -> Threshold:
        """The thresholds of lists.

        Args:
            scores: (Q, L), share: (Q, L) which share of its list each item stands for, 0 where there is none.
            size: (Q,) items of the whole lists.
            group_ids: (Q,) whose remembered thresholds to move and use; None finds those of the given items.
        """
        scores, share = scores.detach(), share.to(scores.dtype)
        level = (self.k + 0.5) / size.to(scores.dtype)
        mean = (scores * share).sum(1) / share.sum(1).clamp_min(torch.finfo(scores.dtype).tiny)
        if group_ids is None:
            value = self._minimum(scores, share, level, mean)
            _, curvature, pull = self._derivatives(scores, share, level, mean, value)
            return Threshold(value, pull / curvature[:, None])
        remembered, known = self.table.read(group_ids)
        value, curvature = remembered.to(scores.dtype).unbind(1)
        if not bool(known.all()):
            start = _start(scores[~known], share[~known], level[~known])
            value = value.index_put((~known,), start)
        slope, here, pull = self._derivatives(scores, share, level, mean, value)
        value = torch.where(known, value - self.step_size * slope, value)
        curvature = torch.where(known, curvature.lerp(here, self.update_rate), here)
        if self.training:
            value, curvature = self.table.update(group_ids, torch.stack([value, curvature], 1), 1.0).unbind(1)
            value, curvature = value.to(scores.dtype), curvature.to(scores.dtype)
        return Threshold(value, pull / curvature[:, None])

    def _derivatives(
        self, scores: Tensor, share: Tensor, level: Tensor, mean: Tensor, value: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """First and second derivative in the threshold (Q,), and minus the mixed one with each score (Q, L)."""
        above = torch.sigmoid((scores - value[:, None]) / self.tau)
        weighted = above * share
        slope = level + self.tau_norm * (value - mean) - weighted.sum(1)
        pull = (1 - above).mul_(weighted).div_(self.tau).add_(share, alpha=self.tau_norm)
        return slope, pull.sum(1).clamp_min(self.tau_norm), pull

    def _minimum(self, scores: Tensor, share: Tensor, level: Tensor, mean: Tensor) -> Tensor:
        """Newton's method between bounds that close in; where a step would leave them, the middle is taken."""
        present = share > 0
        reach = 40 * self.tau
        low = scores.masked_fill(~present, torch.inf).amin(1).nan_to_num(posinf=0.0) - reach
        high = scores.masked_fill(~present, -torch.inf).amax(1).nan_to_num(neginf=0.0) + reach
        value = _start(scores, share, level)
        for _ in range(_MOST_STEPS):
            slope, curvature, _ = self._derivatives(scores, share, level, mean, value)
            low, high = torch.where(slope < 0, value, low), torch.where(slope < 0, high, value)
            step = slope / curvature
            following = value - step
            inside = (following >= low) & (following <= high)
            following = torch.where(inside, following, low / 2 + high / 2)
            settled = (following - value).abs() <= 4 * torch.finfo(value.dtype).eps * (value.abs() + self.tau)
            value = following
            if bool(settled.all()):
                break
        return value


def _start(scores: Tensor, share: Tensor, level: Tensor) -> Tensor:
    """The first score, from the best down, at which the items reach the level; the lowest where they never do."""
    present = share > 0
    ordered, order = scores.masked_fill(~present, -torch.inf).sort(1, descending=True)
    reached = share.gather(1, order).cumsum(1)
    place = torch.minimum((reached < level[:, None]).sum(1), present.sum(1) - 1).clamp_min(0)
    return ordered.gather(1, place[:, None])[:, 0].nan_to_num(neginf=0.0)
