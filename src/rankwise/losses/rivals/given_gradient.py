"""Values with a gradient that is not their derivative."""

from __future__ import annotations

from torch import Tensor

from rankwise.losses.first_order import first_order_only

__all__ = ["with_gradient"]


def with_gradient(values: Tensor, scores: Tensor, gradient: Tensor, name: str, reason: str) -> Tensor:
    """Return `values` (Q,), whose gradient with respect to `scores` (Q, L) is `gradient` (Q, L).

    `name` and `reason` refuse second derivatives, see `first_order_only`.

    Example:
        >>> import torch
        >>> scores = torch.zeros(1, 2, requires_grad=True)
        >>> gradient = torch.tensor([[1.0, -3.0]])
        >>> with_gradient(torch.tensor([5.0]), scores, gradient, "MyLoss", "it is given").sum().backward()
        >>> scores.grad
        tensor([[ 1., -3.]])
    """
    # The difference is an exact zero; only its gradient is of interest.
    attached = values.detach() + (gradient.detach() * (scores - scores.detach())).sum(1)
    return first_order_only(attached, name, reason)
