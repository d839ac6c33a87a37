"""Smooth threshold between the k-th and the (k+1)-th score of a list, exact or running."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from rankwise.checks import check_choice, check_k, check_positive, check_share, on_host
from rankwise.estimators.table import IdTable
from rankwise.lists import surely_all

__all__ = ["Threshold", "ThresholdTracker"]

_MOST_STEPS = 60
# On an accelerator the number of steps is fixed, because a convergence check would synchronise. Most lists need 4.
_STEPS_ON_DEVICE = 8
# The start on an accelerator is within this many tau of an item.
_NEAREST = 2.0
# An item this many tau below the threshold counts 0 in any precision.
_REACH = 40.0


class Threshold(NamedTuple):
    """Thresholds of Q lists, the curvatures, and the thresholds at which these were observed, (Q,) each.

    The curvatures of exact thresholds that nobody pulls are None.
    """

    value: Tensor
    curvature: Tensor | None
    observed_at: Tensor


class ThresholdTracker(nn.Module):
    """Smooth threshold between the k-th and the (k+1)-th score of a list: the minimum over lambda of

        (k + 1/2) / N lambda + tau_norm / 2 (lambda - mean)^2 + mean over items of tau softplus((s_j - lambda) / tau)

    which for small tau and tau_norm is the (k+1)-th largest score. For complete lists it is computed exactly. For
    sampled lists the table keeps a running threshold and curvature per list: each batch moves the threshold by a
    gradient step and the curvature by a moving average; both start at the values of the first batch. Nothing is written
    in eval mode.

    The slope of the objective is a share of items, at most p = (k + 1/2) / N if the threshold is too high, while scores
    have any scale. The step is therefore relative to their spread, and to that of the share above, sqrt(p (1 - p)):

        lambda <- lambda - step_size spread slope / sqrt(p (1 - p))

    With `step_unit="score"` it is the plain step, lambda - step_size slope.

    Args:
        k: number of items above the threshold.
        tau: width of the smooth step.
        tau_norm: weight of the quadratic term, which makes the minimum unique. It moves the cutoff by
            N tau_norm (lambda - mean) items, so it must be small for long lists. It pulls towards the mean score of
            the list, so that adding a constant to all scores moves the threshold by that constant.
        step_size: size of the gradient step; step_unit: "spread" (see above) or "score".
        update_rate: weight of the new curvature.

    Example:
        >>> tracker = ThresholdTracker(k=2, tau=0.01)
        >>> scores = torch.tensor([[0.9, 0.1, 0.5, 0.7]])
        >>> threshold = tracker(scores, torch.full((1, 4), 0.25), torch.tensor([4]), None)
        >>> round(float(threshold.value), 2)
        0.5
    """

    def __init__(
        self,
        k: int,
        *,
        tau: float = 0.01,
        tau_norm: float = 1e-6,
        step_size: float = 0.25,
        step_unit: str = "spread",
        update_rate: float = 0.1,
    ) -> None:
        super().__init__()
        if check_k(k) is None:
            raise ValueError("k: expected a whole number of at least 1, got None")
        self.k = k
        self.tau, self.tau_norm = check_positive("tau", tau), check_positive("tau_norm", tau_norm)
        self.step_size = check_positive("step_size", step_size)
        self.step_unit = check_choice("step_unit", step_unit, ("spread", "score"))
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
        *,
        pulled: bool = True,
    ) -> Threshold:
        """Compute the thresholds of lists.

        Args:
            scores: (Q, L), share: (Q, L) share of its list that each item represents, 0 in the padding.
            size: (Q,) numbers of items of the complete lists.
            group_ids: (Q,) ids of the running thresholds to update and return; None computes exact ones of `scores`.
            chosen: (Q,) True for lists of more than k items; thresholds of the others are undefined. None: all.
            pulled: whether `pull` gets the result.
        """
        scores, share = scores.detach(), share.to(scores.dtype)
        level = (self.k + 0.5) / size.to(scores.dtype)
        if chosen is not None:
            level = torch.where(chosen, level, 0.5)
        mean = (scores * share).sum(1) / share.sum(1).clamp_min(torch.finfo(scores.dtype).tiny)
        if group_ids is None:
            value = self._minimum(scores, share, level, mean)
            curvature = self._derivatives(scores, share, level, mean, value)[1] if pulled else None
            return Threshold(value, curvature, value)
        rows = self.table.locate(group_ids)
        running, known = self.table.read(group_ids, rows)
        before, curvature = running.to(scores.dtype).unbind(1)
        all_known = surely_all(known)
        if not all_known:
            best, top_share = _best(scores, share, scores.shape[1])
            before = torch.where(known, before, _start(best, top_share, level))
        slope, here = self._derivatives(scores, share, level, mean, before)
        # The share of items is at most 1; only for scores about 1 / tau_norm apart is the quadratic term larger.
        slope = slope.clamp(-1, 1)
        if self.step_unit == "spread":
            spread = ((scores - mean[:, None]).abs() * share).sum(1)
            slope = spread * slope * (level * (1 - level)).rsqrt()
        value = before - self.step_size * slope
        curvature = curvature.lerp(here, self.update_rate)
        if not all_known:
            value, curvature = torch.where(known, value, before), torch.where(known, curvature, here)
        if self.training:
            now = self.table.update(group_ids, torch.stack([value, curvature], 1), 1.0, rows=rows, chosen=chosen)
            value, curvature = now.to(scores.dtype).unbind(1)
        return Threshold(value, curvature, before)

    @torch.no_grad()
    def pull(self, scores: Tensor, share: Tensor, threshold: Threshold) -> Tensor:
        """Compute the derivative of the threshold in each score, (Q, L): minus the mixed derivative / curvature."""
        assert threshold.curvature is not None
        above = torch.sigmoid((scores.detach() - threshold.observed_at[:, None]) / self.tau)
        return share * ((1 - above) * above / self.tau + self.tau_norm) / threshold.curvature[:, None]

    def _derivatives(
        self, scores: Tensor, share: Tensor, level: Tensor, mean: Tensor, value: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Compute the first and second derivative of the objective in the threshold, (Q,) each."""
        above = (scores - value[:, None]).mul_(1 / self.tau).sigmoid_()
        weighted = above * share
        slope = level + self.tau_norm * (value - mean) - weighted.sum(1)
        return slope, (above.neg_().add_(1).mul_(weighted)).sum(1) / self.tau + self.tau_norm

    def _minimum(self, scores: Tensor, share: Tensor, level: Tensor, mean: Tensor) -> Tensor:
        """Minimise over the best items only, unless more lie near the threshold: items far below it count 0."""
        if not on_host(scores):
            return self._newton_on_device(*_best(scores, share, scores.shape[1]), level, mean)
        width = min(scores.shape[1], 2 * self.k + 32)
        best, top_share = _best(scores, share, width)
        value = self._newton(best, top_share, level, mean)
        if width == scores.shape[1] or bool((value - best[:, -1] > _REACH * self.tau).all()):
            return value
        return self._newton(*_best(scores, share, scores.shape[1]), level, mean)

    def _newton(self, best: Tensor, share: Tensor, level: Tensor, mean: Tensor) -> Tensor:
        """Run Newton's method between the highest value seen to be too low and the lowest seen to be too high; bisect
        between these two if a step would leave them, or go back and forth.

        Around an item far from all others the slope is a jump between two nearly constant parts: without bisection the
        steps from either side would end on the other for ever.
        """
        value = _start(best, share, level)
        low, high = torch.full_like(value, -torch.inf), torch.full_like(value, torch.inf)
        last = torch.zeros_like(value)
        epsilon = torch.finfo(value.dtype).eps
        for _ in range(_MOST_STEPS):
            slope, curvature = self._derivatives(best, share, level, mean, value)
            low, high = torch.where(slope < 0, value, low), torch.where(slope < 0, high, value)
            step = -slope / curvature
            # Convergence is quadratic: the error after a step this small is below rounding.
            small = max(1e-5, 16 * self.k * epsilon) * self.tau + 4 * epsilon * value.abs()
            back = (step * last < 0) & (step.abs() > torch.maximum(last.abs() / 2, small))
            inside = (value + step >= low) & (value + step <= high)
            following = torch.where(inside & ~back, value + step, low / 2 + high / 2)
            last, value = following - value, following
            if bool((last.abs() <= small).all()):
                break
        return value

    def _newton_on_device(self, best: Tensor, share: Tensor, level: Tensor, mean: Tensor) -> Tensor:
        """Run a fixed number of steps of `_newton` in units of tau, from a nearer start, in the fewest kernels.

        The start is the minimum if the item at the level is far from all others.
        """
        best, norm = best / self.tau, self.tau_norm * self.tau
        reached = share.cumsum(1)
        last = (share > 0).sum(1, keepdim=True) - 1
        index = torch.minimum((reached < level[:, None]).sum(1, keepdim=True), last).clamp_min(0)
        item, own, until = (values.gather(1, index)[:, 0] for values in (best, share, reached))
        past = torch.logit((until - level) / own.clamp_min(torch.finfo(own.dtype).tiny), eps=1e-7)
        value = (item + past.nan_to_num().clamp(-_NEAREST, _NEAREST)).nan_to_num(neginf=0.0)
        low = best.gather(1, last.clamp_min(0))[:, 0].nan_to_num(neginf=0.0) - _REACH
        high = best[:, 0].nan_to_num(neginf=0.0) + _REACH
        level = torch.add(level, mean, alpha=-self.tau_norm)
        for _ in range(_STEPS_ON_DEVICE):
            above = (best - value[:, None]).sigmoid_()
            slope = torch.add(level - (above * share).sum(1), value, alpha=norm)
            lower = slope < 0
            low, high = torch.where(lower, value, low), torch.where(lower, high, value)
            curvature = torch.ops.aten.sigmoid_backward(share, above).sum(1) + norm
            following = torch.addcdiv(value, slope, curvature, value=-1)
            value = torch.where(following == following.clamp(low, high), following, low.lerp(high, 0.5))
        return value * self.tau


def _best(scores: Tensor, share: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Return the best scores of each list, best first and -inf in the padding, and their shares."""
    best, order = scores.masked_fill(share <= 0, -torch.inf).topk(width, 1)
    return best, share.gather(1, order)


def _start(best: Tensor, share: Tensor, level: Tensor) -> Tensor:
    """Return the first of the sorted scores at which the cumulative share reaches the level, else the last."""
    index = (share.cumsum(1) < level[:, None]).sum(1)
    index = torch.minimum(index, (share > 0).sum(1) - 1).clamp_min(0)
    return best.gather(1, index[:, None])[:, 0].nan_to_num(neginf=0.0)
