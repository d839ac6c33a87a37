"""Similarities of vectors as lists: one per query, with items of its class as relevant."""

from __future__ import annotations

from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from rankwise.checks import check_later, on_host
from rankwise.lists import ItemMask, Lists, compact, few_masked
from rankwise.losses.base import bound_scores

__all__ = ["FewRelevant", "self_similarities", "similarity_lists", "unit_vectors"]

# Least divisor of a vector, as in torch.nn.functional.normalize.
_SHORTEST = 1e-12

# Rows and columns of a tile in the sum of a matrix and its transpose: two tiles fit the L2 cache of a core.
_TILE = 256


def similarity_lists(
    queries: Tensor,
    labels: Tensor,
    references: Tensor,
    reference_labels: Tensor,
    previous: Tensor | None,
    previous_references: Tensor | None,
    *,
    own: bool,
    cosines: bool,
    first: int = 0,
) -> Lists:
    """Return the list of every query: its similarities to all references.

    Args:
        queries: (B, d); labels: (B,).
        references: (R, d); reference_labels: (R,).
        previous, previous_references: the same before the last step, or None.
        own: whether the queries are the first B of the references; none then ranks itself.
        cosines: whether all vectors have length 1.
        first: index of the first list among all lists of the batch.
    """
    scores = self_similarities(queries) if queries is references else queries @ references.T
    if not cosines:
        scores = _bound_products(scores)
    before: Tensor | None = None
    if previous is not None and previous_references is not None:
        before = previous @ previous_references.detach().T
    positions = torch.arange(first, first + len(labels), device=labels.device)
    few = _few_of_the_same_class(labels, reference_labels)
    if few is not None:
        return FewRelevant.of(scores, positions, before, labels, reference_labels, *few, own=own, cosines=cosines)
    relevant, mask = _relevant(labels, reference_labels, own), _others(scores, own)
    lists = Lists(scores, relevant, mask, None, positions, previous_scores=before, cosines=cosines)
    lists.__dict__.update(_known_sizes(scores, own))
    return lists


class FewRelevant(Lists):
    """Lists whose few relevant items are given by their indices; labels and mask (Q, L) are computed on first use.

    Attributes:
        positives, negatives: as in `Lists`.
    """

    _classes: tuple[Tensor, Tensor]
    _own: bool

    @classmethod
    def of(
        cls,
        scores: Tensor,
        positions: Tensor,
        previous: Tensor | None,
        labels: Tensor,
        reference_labels: Tensor,
        index: Tensor,
        valid: Tensor,
        *,
        own: bool,
        cosines: bool,
    ) -> FewRelevant:
        """Create lists from the indices (Q, A) of the references of each query's class, itself included, and a mask."""
        query = torch.arange(len(scores))[:, None]
        negatives = ItemMask.at((query * scores.shape[1] + index)[valid].numpy(), (scores.shape[0], scores.shape[1]))
        if own:
            kept, valid = compact(valid & (index != query))
            index = index.gather(1, kept)
        lists: FewRelevant = object.__new__(cls)
        lists.__dict__.update(
            scores=scores,
            weights=None,
            positions=positions,
            sample_ids=None,
            previous_scores=previous,
            cosines=cosines,
            **_known_sizes(scores, own),
            positives=(index, valid),
            negatives=negatives,
            _classes=(labels, reference_labels),
            _own=own,
        )
        return lists

    @cached_property
    def labels(self) -> Tensor:
        return _relevant(*self._classes, self._own)

    @cached_property
    def mask(self) -> Tensor:
        return _others(self.scores, self._own)


def _bound_products(scores: Tensor) -> Tensor:
    """Clamp dot products to the range of scores; refuse those that overflowed their dtype."""
    bounded = bound_scores(scores)
    if bounded is not scores:
        check_later(~scores.isfinite().all(), partial(_refuse_products, scores.dtype))
    return bounded


def _refuse_products(dtype: torch.dtype) -> None:
    raise ValueError(
        f"embeddings: expected vectors whose products are numbers of {str(dtype).removeprefix('torch.')}, got larger "
        'ones; scale them down, or take similarity="cosine"'
    )


def _few_of_the_same_class(labels: Tensor, reference_labels: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return the indices of the references of each query's class, ascending, and their mask: (B, A) each.

    Return None if they are not few, or not on the CPU.
    """
    elements = len(labels) * len(reference_labels)
    if not on_host(labels) or not few_masked(len(labels), elements):
        return None
    order = torch.argsort(reference_labels, stable=True)
    ascending = reference_labels[order]
    begin, end = torch.searchsorted(ascending, labels), torch.searchsorted(ascending, labels, right=True)
    most = int((end - begin).max())
    if not few_masked(most * len(labels), elements):
        return None
    index = begin[:, None] + torch.arange(most)
    return order[index.clamp_max(len(ascending) - 1)], index < end[:, None]


def _known_sizes(scores: Tensor, own: bool) -> dict[str, object]:
    size = torch.full((scores.shape[0],), scores.shape[1] - int(own), device=scores.device)
    return {"size": size, "full": not own}


def _relevant(labels: Tensor, reference_labels: Tensor, own: bool) -> Tensor:
    relevant = labels[:, None] == reference_labels
    return relevant.fill_diagonal_(False) if own else relevant


def _others(scores: Tensor, own: bool) -> Tensor:
    others = torch.ones_like(scores, dtype=torch.bool)
    return others.fill_diagonal_(False) if own else others


def unit_vectors(vectors: Tensor) -> Tensor:
    """Scale vectors (B, d) to length 1, but not those of length 0; the gradient takes a quarter of torch's passes.

    Example:
        >>> unit_vectors(torch.tensor([[3.0, 4.0]]))
        tensor([[0.6000, 0.8000]])
    """
    units: Tensor = _Units.apply(vectors)
    return units


def self_similarities(vectors: Tensor) -> Tensor:
    """Compute V V^T of vectors (B, d): (B, B).

    Only one triangle is computed, and copied to the other. The gradient for V, (G + G^T) V, is one product; autograd
    would compute two.

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
    if on_host(vectors):
        lengths = torch.linalg.vector_norm(vectors, dim=1, keepdim=True).clamp_min(_SHORTEST)
        if bool(lengths.isfinite().all()):
            return vectors / lengths, lengths
    # Squares may overflow, so each vector is first divided by its largest element.
    unit = vectors.abs().amax(1, keepdim=True).clamp_min(1)
    scaled = vectors / unit
    lengths = torch.linalg.vector_norm(scaled, dim=1, keepdim=True).clamp_min(_SHORTEST)
    return scaled / lengths, (lengths * unit).clamp_max(torch.finfo(vectors.dtype).max)


class _SelfProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, vectors: Tensor) -> Tensor:
        ctx.save_for_backward(vectors)
        if len(vectors) <= 2 * _TILE or not on_host(vectors):
            return vectors @ vectors.T
        return _symmetric_product(vectors)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (vectors,) = ctx.saved_tensors
        if len(grad) <= 2 * _TILE or not on_host(grad) or torch.is_grad_enabled():
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
    """Compute (M + M^T) V, some rows at a time: the sum is never stored in full, and tiles stay in the cache."""
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
