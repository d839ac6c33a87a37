"""Pair sums of a sigmoid in linear time, by expansions in cells of scores.

In units of the temperature, the pair of an anchor u and an other v has the value sigmoid(v - u). The range of scores is
cut into cells of width h. With both measured from the centres of their cells, u = h (p + a), v = h (q + b), and a, b in
[-1/2, 1/2], the sigmoid is its Taylor series around the distance of the centres, d = q - p:

    sigmoid(h (d + b - a)) = sum_n F_n(d) (b - a)^n,   F_n(d) = h^n sigmoid^(n)(h d) / n!

By the binomial theorem the sum over all others of a cell needs only their moments sum_j w_j b_j^m, and the sum over all
cells, as a function of a, is a polynomial for every cell of anchors: a convolution of the moments with F. Its slope is
that of the polynomial. Cells further than `_REACH` to either side count 0 or 1, where 1 - sigmoid is below 1e-16.

All in float64. The poles of the sigmoid nearest to the real line are +-i pi, so F_n <= 2 h^n / pi^(n + 1), and the
series cut after `_ORDER` is off by at most 8.1e-13 in the value of a pair of weight 1, and by 2.5e-11 / temperature in
its slope.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from rankwise.checks import widen

__all__ = ["cell_sums", "count_cells"]

_WIDTH, _REACH, _ORDER = 0.5, 74, 14
# Cells per convolution: their windows take about 18 MiB.
_CHUNK = 1024


def count_cells(anchors: Tensor, others: Tensor, temperature: float) -> float:
    """Return the number of cells of the list with the widest range, for anchors (Q, A) and others (Q, L)."""
    ends = torch.stack([torch.stack(torch.aminmax(values, dim=1)) for values in (anchors, others)])
    spans: Tensor = widen(ends[:, 1].amax(0)) - widen(ends[:, 0].amin(0))
    return float(spans.max()) / (temperature * _WIDTH) + 1


def cell_sums(anchors: Tensor, others: Tensor, weights: Tensor | None, temperature: float) -> tuple[Tensor, Tensor]:
    """Return sum_j w_j sigmoid((b_j - a_i) / temperature) and its slope in a_i, (Q, A) in float64.

    Args:
        anchors: (Q, A) scores a, A at least 1; others: (Q, L) scores b, L at least 1.
        weights: (Q, L) weights w, or None.
    """
    unit = temperature * _WIDTH
    first = torch.minimum(anchors.detach().amin(1, keepdim=True), others.detach().amin(1, keepdim=True))
    (cells, within), (other_cells, other_within) = (_split((widen(x) - widen(first)) / unit) for x in (anchors, others))
    count = 1 + int(max(cells.max(), other_cells.max()))
    # The cells of all lists are numbered consecutively.
    start = torch.arange(len(anchors), device=anchors.device)[:, None] * count
    moments = _moments((other_cells + start).flatten(), other_within.flatten(), weights, len(anchors) * count)
    polynomials = _convolve(moments.view(_ORDER + 1, len(anchors), count))
    values, slopes = _evaluate(polynomials.flatten(1), (cells + start).flatten(), within.flatten())
    return values.view(anchors.shape), slopes.view(anchors.shape) / unit


def _split(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Return the cell of each score and its offset from the centre of the cell, in [-1/2, 1/2]."""
    cell = scores.floor()
    return cell.long(), scores - cell - 0.5


def _moments(cells: Tensor, within: Tensor, weights: Tensor | None, count: int) -> Tensor:
    """Return sum_j w_j b_j^m over the others of each cell, (order + 1, count)."""
    moments = within.new_zeros(_ORDER + 1, count)
    power = torch.ones_like(within) if weights is None else widen(weights).flatten()
    for row in moments:
        row.scatter_add_(0, cells, power)
        power = power * within
    return moments


def _convolve(moments: Tensor) -> Tensor:
    """Return the coefficients of the polynomial of every cell, (order + 1, Q, G), from the moments of that shape."""
    orders, lists, count = moments.shape
    kernel = torch.from_numpy(_kernel()).to(moments.device)
    padded = pad(moments, (_REACH, _REACH))
    parts = []
    for begin in range(0, count, _CHUNK):
        windows = padded[:, :, begin : begin + _CHUNK + 2 * _REACH].unfold(2, 2 * _REACH + 1, 1)
        rows = windows.permute(1, 2, 0, 3).reshape(-1, kernel.shape[0])
        parts.append((rows @ kernel).view(lists, -1, orders))
    polynomials = torch.cat(parts, 1).permute(2, 0, 1).contiguous()
    beyond = pad(moments[0], (0, _REACH + 1))[:, _REACH + 1 :]
    polynomials[0] += beyond.flip(1).cumsum(1).flip(1)
    return polynomials


def _evaluate(polynomials: Tensor, cells: Tensor, within: Tensor) -> tuple[Tensor, Tensor]:
    """Evaluate the polynomials (order + 1, cells) and their derivatives at the anchors' offsets in their cells."""
    value, slope = polynomials[-1][cells], torch.zeros_like(within)
    for row in reversed(polynomials[:-1].unbind()):
        slope = torch.addcmul(value, slope, within)
        value = torch.addcmul(row[cells], value, within)
    return value, slope


@lru_cache(maxsize=1)
def _kernel() -> np.ndarray:
    """Return the coefficient of a^r for the moment m at distance d, ((order + 1) x taps, order + 1)."""
    series = _taylor()
    kernel = np.zeros((_ORDER + 1, 2 * _REACH + 1, _ORDER + 1))
    for m in range(_ORDER + 1):
        for r in range(_ORDER + 1 - m):
            kernel[m, :, r] = (-1) ** r * math.comb(m + r, r) * series[m + r]
    return kernel.reshape(-1, _ORDER + 1)


def _taylor() -> np.ndarray:
    """Return F_n(d), (order + 1, taps).

    The derivatives of s = sigmoid(z) are polynomials in s, each the derivative of the one before times s (1 - s). They
    are evaluated for z <= 0, where small s loses no digits; sigmoid(-z) = 1 - sigmoid(z) gives the other side.
    """
    distance = _WIDTH * np.arange(-_REACH, _REACH + 1)
    small = 1 / (1 + np.exp(np.abs(distance)))
    right = distance > 0
    polynomial, rows = np.polynomial.Polynomial([0.0, 1.0]), []
    for n in range(_ORDER + 1):
        left = polynomial(small)
        mirrored = 1 - left if n == 0 else (-1) ** (n + 1) * left
        rows.append(np.where(right, mirrored, left) * _WIDTH**n / math.factorial(n))
        polynomial = polynomial.deriv() * np.polynomial.Polynomial([0.0, 1.0, -1.0])
    return np.stack(rows)
