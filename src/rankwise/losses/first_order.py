"""Losses whose gradient has no derivative that autograd could find."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

__all__ = ["first_order_only"]


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
