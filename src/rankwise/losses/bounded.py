"""Scores of a size that losses can square and add up."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["LARGEST_SCORE", "bound_scores"]

# Beyond any score that matters, and far enough from the end of float32 for sums, squares being cut by the losses.
LARGEST_SCORE = 1e30


def bound_scores(scores: Tensor) -> Tensor:
    """Cut scores to 1e30 in size; the gradient passes as if they had not been cut, so that they can come back.

    Example:
        >>> bound_scores(torch.tensor([-3e38, 7.0]))
        tensor([-1.0000e+30,  7.0000e+00])
    """
    flat = scores.detach().reshape(-1)
    # No term of such a sum of squares is too large; in float32 the sum becomes infinite long before the limit.
    if torch.dot(flat, flat).item() <= LARGEST_SCORE**2:
        return scores
    bounded: Tensor = _Bounded.apply(scores)
    return bounded


class _Bounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor) -> Tensor:
        return scores.clamp(-LARGEST_SCORE, LARGEST_SCORE)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad
