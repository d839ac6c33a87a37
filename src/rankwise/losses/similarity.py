"""Unit vectors and their similarities with each other, for about half of the work of plain torch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["self_similarities", "unit_vectors"]

# Shorter vectors are divided by this, as by torch.nn.functional.normalize.
_SHORTEST = 1e-12
# Rows and columns of a tile of which a matrix is added to its transpose: two tiles fit the second cache of a core.
_TILE = 256


def unit_vectors(vectors: Tensor) -> Tensor:
    """Vectors (B, d) of length 1, those of length 0 as they are; a quarter of the passes of torch's own gradient.

    Example:
        >>> unit_vectors(torch.tensor([[3.0, 4.0]]))
        tensor([[0.6000, 0.8000]])
    """
    units: Tensor = _Units.apply(vectors)
    return units


def self_similarities(vectors: Tensor) -> Tensor:
    """V V^T of vectors (B, d): (B, B).

    Half of it is computed, the other half is its mirror image. The gradient for V, (G + G^T) V, is one product; taken
    as a product of two different matrices it would be two.

    Example:
        >>> self_similarities(torch.tensor([[1.0, 2.0], [0.0, 1.0]]))
        tensor([[5., 2.],
                [2., 1.]])
    """
    similarities: Tensor = _SelfProduct.apply(vectors)
    return similarities


class _Units(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, vectors: Tensor) -> Tensor:
        units, lengths = _divided(vectors)
        ctx.save_for_backward(vectors, units, lengths)
        return units

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        vectors, units, lengths = ctx.saved_tensors
        if torch.is_grad_enabled():
            units, lengths = _divided(vectors)
        along = (grad * units).sum(1, keepdim=True) * (lengths > _SHORTEST)
        across: Tensor = torch.addcmul(grad, units, along, value=-1) / lengths
        return across


def _divided(vectors: Tensor) -> tuple[Tensor, Tensor]:
    lengths = torch.linalg.vector_norm(vectors, dim=1, keepdim=True).clamp_min(_SHORTEST)
    if bool(lengths.isfinite().all()):
        return vectors / lengths, lengths
    # Squares left the range: first in units of the largest number of each vector.
    units, _ = _divided(vectors / vectors.abs().amax(1, keepdim=True).clamp_min(1))
    return units, (vectors * units).sum(1, keepdim=True).clamp(_SHORTEST, torch.finfo(vectors.dtype).max)


class _SelfProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, vectors: Tensor) -> Tensor:
        ctx.save_for_backward(vectors)
        if len(vectors) <= 2 * _TILE or vectors.device.type != "cpu":
            return vectors @ vectors.T
        return _symmetric_product(vectors)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (vectors,) = ctx.saved_tensors
        if len(grad) <= 2 * _TILE or grad.device.type != "cpu" or torch.is_grad_enabled():
            plain: Tensor = (grad + grad.T) @ vectors
            return plain
        return _times_sum_with_transpose(grad, vectors)


def _symmetric_product(vectors: Tensor) -> Tensor:
    size = len(vectors)
    product = vectors.new_empty(size, size)
    for top in range(0, size, _TILE):
        rows, after = slice(top, top + _TILE), top + _TILE
        torch.mm(vectors[rows], vectors[top:].T, out=product[rows, top:])
        product[after:, rows] = product[rows, after:].T
    return product


def _times_sum_with_transpose(matrix: Tensor, vectors: Tensor) -> Tensor:
    """(M + M^T) V, some rows at a time: the sum is never written out, nor read column by column past the caches."""
    size = len(matrix)
    product, both = torch.empty_like(vectors), matrix.new_empty(2 * _TILE, size)
    for top in range(0, size, len(both)):
        rows = slice(top, top + len(both))
        some = both[: size - top]
        for left in range(0, size, _TILE):
            columns = slice(left, left + _TILE)
            torch.add(matrix[rows, columns], matrix[columns, rows].T, out=some[:, columns])
        torch.mm(some, vectors, out=product[rows])
    return product
