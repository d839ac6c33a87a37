"""Values with a gradient that is not their derivative."""

from __future__ import annotations

from torch import Tensor

__all__ = ["with_gradient"]


def with_gradient(values: Tensor, scores: Tensor, gradient: Tensor) -> Tensor:
    """`values` (Q,) as they are, whose gradient with respect to `scores` (Q, L) is `gradient` (Q, L).

    Example:
        >>> import torch
        >>> scores = torch.zeros(1, 2, requires_grad=True)
        >>> with_gradient(torch.tensor([5.0]), scores, torch.tensor([[1.0, -3.0]])).sum().backward()
        >>> scores.grad
        tensor([[ 1., -3.]])
    """
    # The difference is an exact zero; only its gradient is of interest.
    return values.detach() + (gradient.detach() * (scores - scores.detach())).sum(1)
