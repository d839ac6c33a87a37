"""Bring scores into the range that a loss is made for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from rankwise.checks import check_choice
from rankwise.estimators import IdTable
from rankwise.lists import Lists, PackedLists
from rankwise.losses.gradients import first_order_only
from rankwise.modes import widen

__all__ = ["LARGEST_SCORE", "LINKS", "Link", "bound", "bound_scores"]

LINKS = ("scale", "none", "tanh", "sigmoid")

# Beyond any score that matters, and far enough from the end of float32 for sums, squares being cut by the losses.
LARGEST_SCORE = 1e30


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


def bound_scores(scores: Tensor) -> Tensor:
    """Cut scores to 1e30 in size; the gradient passes as if they had not been cut, so that they can come back.

    Example:
        >>> bound_scores(torch.tensor([-3e38, 7.0]))
        tensor([-1.0000e+30,  7.0000e+00])
    """
    if scores.device.type == "cpu":
        flat = scores.detach().reshape(-1)
        # No term of such a sum of squares is too large; in float32 the sum becomes infinite long before the limit.
        if torch.dot(flat, flat).item() <= LARGEST_SCORE**2:
            return scores
    return bound(scores, LARGEST_SCORE)


def bound(values: Tensor, largest: float) -> Tensor:
    """Cut values to a size; the gradient passes as if they had not been cut."""
    bounded: Tensor = _Bounded.apply(values, largest)
    return bounded


class _Bounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, largest: float) -> Tensor:
        return values.clamp(-largest, largest)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None
