"""Pair sums by going over all pairs, in chunks that stay in the cache."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from rankwise.surrogates import Surrogate

__all__ = ["chunk_gradients", "chunk_sums"]

# Elements of one chunk: about a megabyte in float32.
_CHUNK = 2**18


def chunk_sums(anchors: Tensor, others: Tensor, weights: Tensor | None, surrogate: Surrogate) -> Tensor:
    """sum_j w_j l(a_i - b_j): (Q, A)."""
    sums = torch.zeros_like(anchors)
    for lists, items in _chunks(anchors, others):
        value = surrogate.value(anchors[lists, items, None] - others[lists, None, :])
        sums[lists, items] = _weighted_sum(value, None if weights is None else weights[lists])
    return sums


def chunk_gradients(
    grad: Tensor,
    anchors: Tensor,
    others: Tensor,
    weights: Tensor | None,
    surrogate: Surrogate,
    need_weights: bool,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Gradients for the anchors (Q, A), the others (Q, L) and, if needed, the weights (Q, L)."""
    grad_anchors, grad_others = torch.zeros_like(anchors), torch.zeros_like(others)
    grad_weights = torch.zeros_like(others) if need_weights else None
    for lists, items in _chunks(anchors, others):
        difference = anchors[lists, items, None] - others[lists, None, :]
        upstream = grad[lists, None, items]
        if grad_weights is not None:
            grad_weights[lists] += torch.matmul(upstream, surrogate.value(difference.clone())).squeeze(1)
        slope = surrogate.slope(difference)
        grad_others[lists] -= torch.matmul(upstream, slope).squeeze(1)
        grad_anchors[lists, items] = _weighted_sum(slope, None if weights is None else weights[lists])
    grad_anchors *= grad
    return grad_anchors, grad_others if weights is None else grad_others.mul_(weights), grad_weights


def _weighted_sum(values: Tensor, weights: Tensor | None) -> Tensor:
    """Over the last axis of (q, a, L), in place. A batched matrix-vector product would be slower and less accurate."""
    return (values if weights is None else values.mul_(weights[:, None, :])).sum(-1)


def _chunks(anchors: Tensor, others: Tensor) -> Iterator[tuple[slice, slice]]:
    lists, width, length = len(anchors), anchors.shape[1], max(others.shape[1], 1)
    items = max(1, min(width, _CHUNK // length))
    rows = max(1, _CHUNK // (items * length)) if items == width else 1
    for row in range(0, lists, rows):
        for item in range(0, width, items):
            yield slice(row, row + rows), slice(item, item + items)
