"""Gradients that are not derivatives: give a value its gradient, refuse second derivatives."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

__all__ = ["first_order_only", "with_gradient"]


def first_order_only(values: Tensor, name: str, reason: str) -> Tensor:
    """Return `values`, whose gradient is refused with `create_graph=True`.

    For gradients that hold fixed what moves with the scores (moving averages, weights, thresholds) or that are no
    derivatives: autograd would differentiate them as if that were constant, which gives another number.

    Args:
        values: any tensor on the way from the scores to the value of the loss.
        name: of the loss; reason: why, as the end of the error message.

    Example:
        >>> scores = torch.tensor([1.0, 2.0], requires_grad=True)
        >>> values = first_order_only(scores.square(), "MyLoss", "its weights are held fixed")
        >>> torch.autograd.grad(values.sum(), scores)
        (tensor([2., 4.]),)
    """
    if values.requires_grad:
        values.register_hook(partial(_refuse, name, reason))
    return values


def _refuse(name: str, reason: str, gradient: Tensor) -> None:
    if torch.is_grad_enabled():
        raise RuntimeError(f"{name}: second derivatives (create_graph=True) are not supported, because {reason}")


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
