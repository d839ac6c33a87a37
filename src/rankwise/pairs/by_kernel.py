"""Pair sums by one Triton kernel for CUDA: the pairs stay in registers, so that memory is O(Q (A + L)).

It computes what "dense" computes, in float32 with partial sums for each block of others. Its twin in plain torch is
`chunk_sums` and `chunk_gradients` in `sums`.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from rankwise.surrogates import Hinge, Logistic, OneSidedHuber, OneSidedTanh, Sigmoid, SquaredHinge, Surrogate

__all__ = ["KINDS", "kernel_gradients", "kernel_sums"]

# The number by which the kernel knows a surrogate, whose only attribute is its parameter.
KINDS: dict[type, int] = {OneSidedHuber: 0, Hinge: 1, SquaredHinge: 2, OneSidedTanh: 3, Sigmoid: 4, Logistic: 5}

# Anchors of one program, and others that it takes at once; the other way round for gradients.
_ROWS, _COLUMNS = 32, 128


@triton.jit  # type: ignore[untyped-decorator]
def _pair(x, p, kind: tl.constexpr):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Return the value and the slope of a surrogate with parameter p; both are 0 at infinity."""
    if kind == 0:
        y = tl.minimum(x / p, 1.0)
        value = tl.where(y < 0, 1 - 2 * y, (1 - y) * (1 - y))
        slope = -2 * (1 - tl.maximum(y, 0.0)) / p
    elif kind == 1:
        value = tl.maximum(p - x, 0.0)
        slope = tl.where(x < p, -1.0, 0.0)
    elif kind == 2:
        below = tl.maximum(p - x, 0.0)
        value = below * below
        slope = -2 * below
    elif kind == 3:
        # tanh(y) = (1 - e) / (1 + e) with e = exp(-2 y), which does not overflow for y of 0 or more.
        e = tl.exp(tl.minimum(x / p, 0.0))
        value = (1 - e) / (1 + e)
        slope = tl.where(x < 0, (value * value - 1) / (2 * p), 0.0)
    elif kind == 4:
        e = tl.exp(-tl.abs(x / p))
        value = tl.where(x > 0, e, 1.0) / (1 + e)
        slope = -e / ((1 + e) * (1 + e)) / p
    else:
        e = tl.exp(-tl.abs(x / p))
        value = tl.maximum(-x / p, 0.0) + tl.log(1 + e)
        slope = -tl.where(x > 0, e, 1.0) / (1 + e) / p
    return value, slope


@triton.jit  # type: ignore[untyped-decorator]
def _sums(  # type: ignore[no-untyped-def]
    anchors,
    others,
    weights,
    sums,
    slopes,
    width,
    length,
    p,
    kind: tl.constexpr,
    weighted: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
):  # pragma: no cover
    """Compute sum_j w_j l(a_i - b_j) and sum_j w_j l'(a_i - b_j) for `rows` anchors i of one list."""
    blocks = tl.cdiv(width, rows)
    q = (tl.program_id(0) // blocks).to(tl.int64)
    i = (tl.program_id(0) % blocks) * rows + tl.arange(0, rows)
    a = tl.load(anchors + q * width + i, mask=i < width, other=0.0)
    value, slope = tl.zeros((rows,), tl.float32), tl.zeros((rows,), tl.float32)
    for first in range(0, length, columns):
        j = first + tl.arange(0, columns)
        b = tl.load(others + q * length + j, mask=j < length, other=-float("inf"))
        values, changes = _pair(a[:, None] - b[None, :], p, kind)
        if weighted:
            w = tl.load(weights + q * length + j, mask=j < length, other=0.0)
            values, changes = values * w[None, :], changes * w[None, :]
        value += tl.sum(values, 1)
        slope += tl.sum(changes, 1)
    tl.store(sums + q * width + i, value, mask=i < width)
    tl.store(slopes + q * width + i, slope, mask=i < width)


@triton.jit  # type: ignore[untyped-decorator]
def _gradients(  # type: ignore[no-untyped-def]
    grad,
    anchors,
    others,
    of_others,
    of_weights,
    width,
    length,
    p,
    kind: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
):  # pragma: no cover
    """Compute -sum_i g_i l'(a_i - b_j) and sum_i g_i l(a_i - b_j) for `rows` others j of one list."""
    blocks = tl.cdiv(length, rows)
    q = (tl.program_id(0) // blocks).to(tl.int64)
    j = (tl.program_id(0) % blocks) * rows + tl.arange(0, rows)
    b = tl.load(others + q * length + j, mask=j < length, other=0.0)
    value, slope = tl.zeros((rows,), tl.float32), tl.zeros((rows,), tl.float32)
    for first in range(0, width, columns):
        i = first + tl.arange(0, columns)
        a = tl.load(anchors + q * width + i, mask=i < width, other=0.0)
        g = tl.load(grad + q * width + i, mask=i < width, other=0.0)
        values, changes = _pair(a[None, :] - b[:, None], p, kind)
        value += tl.sum(values * g[None, :], 1)
        slope += tl.sum(changes * g[None, :], 1)
    tl.store(of_others + q * length + j, -slope, mask=j < length)
    tl.store(of_weights + q * length + j, value, mask=j < length)


def kernel_sums(anchors: Tensor, others: Tensor, weights: Tensor | None, surrogate: Surrogate) -> tuple[Tensor, Tensor]:
    """Compute the sums of values and of slopes over the others, (Q, A) each; a masked other scores -inf."""
    (lists, width), length = anchors.shape, others.shape[1]
    anchors, others = anchors.contiguous(), others.contiguous()
    sums, slopes = torch.empty_like(anchors), torch.empty_like(anchors)
    given = others if weights is None else weights.to(others.dtype).contiguous()
    options = _options(surrogate)
    if anchors.numel():
        grid = (lists * triton.cdiv(width, _ROWS),)
        _sums[grid](anchors, others, given, sums, slopes, width, length, weighted=weights is not None, **options)
    return sums, slopes


def kernel_gradients(grad: Tensor, anchors: Tensor, others: Tensor, surrogate: Surrogate) -> tuple[Tensor, Tensor]:
    """Compute the gradients (Q, L) for the others, if each weighs 1, and for their weights, from that of the sums."""
    (lists, width), length = anchors.shape, others.shape[1]
    grad, anchors, others = grad.contiguous(), anchors.contiguous(), others.contiguous()
    of_others, of_weights = torch.empty_like(others), torch.empty_like(others)
    if others.numel():
        grid = (lists * triton.cdiv(length, _ROWS),)
        _gradients[grid](grad, anchors, others, of_others, of_weights, width, length, **_options(surrogate))
    return of_others, of_weights


def _options(surrogate: Surrogate) -> dict[str, Any]:
    (parameter,) = vars(surrogate).values()
    return {"p": float(parameter), "kind": KINDS[type(surrogate)], "rows": _ROWS, "columns": _COLUMNS}
