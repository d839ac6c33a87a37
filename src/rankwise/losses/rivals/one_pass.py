"""Values and gradients worked out together, so that what lies between them need not be kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = ["one_pass"]

ValuesAndSlopes = Callable[[Tensor], tuple[Tensor, Tensor]]


def one_pass(scores: Tensor, values_and_slopes: ValuesAndSlopes) -> Tensor:
    """Values (Q,) of lists of scores (Q, L), with the gradient the function gives beside them.

    A loss over all pairs of items holds Q x L x L numbers if autograd records it. Going over the lists in chunks and
    taking the gradient of each chunk at once leaves only Q x L to keep.

    Args:
        scores: (Q, L).
        values_and_slopes: from detached scores (Q, L) to the values (Q,) and d value / d score (Q, L), in the dtype
            of the scores.

    Example:
        >>> scores = torch.tensor([[1.0, 2.0]], requires_grad=True)
        >>> one_pass(scores, lambda s: (s.square().sum(1), 2 * s)).sum().backward()
        >>> scores.grad
        tensor([[2., 4.]])
    """
    values: Tensor = _OnePass.apply(scores, values_and_slopes)
    return values


class _OnePass(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, values_and_slopes: ValuesAndSlopes) -> Tensor:
        values, slopes = values_and_slopes(scores.detach())
        ctx.save_for_backward(slopes)
        return values

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (slopes,) = ctx.saved_tensors
        return grad[:, None] * slopes, None
