"""Pair sums by going over all pairs, in chunks that stay in the cache."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from rankwise.pairs.gaps import Gaps
from rankwise.surrogates import OneSidedHuber, Surrogate

__all__ = ["chunk_gradients", "chunk_sums"]

# Elements of one chunk and thread: half a megabyte in float32, so that a few of them fit the second cache of a core.
_CHUNK = 2**17


def chunk_sums(
    anchors: Tensor,
    others: Tensor,
    weights: Tensor | None,
    anchor_mask: Tensor | None,
    gaps: Gaps,
    surrogate: Surrogate,
) -> Tensor:
    """sum_j w_j l(a_i - b_j) over all others j but gaps: (Q, A); anything for the anchors not in `anchor_mask`.

    `others` are those that the gaps have filled.
    """
    sums = torch.zeros_like(anchors)
    raw, unit = (surrogate.raw, surrogate.unit) if isinstance(surrogate, OneSidedHuber) else (surrogate.value, 1.0)
    for lists, last in _lists_at_once(anchors, others, anchor_mask):
        chunk = _of(others, lists).unsqueeze(1)
        for items in _anchors_at_once(last, others):
            difference = gaps.hide(_of(anchors, lists, items).unsqueeze(2) - chunk, lists)
            torch.sum(_weighted(raw(difference), weights, lists), -1, out=_of(sums, lists, items))
    return sums if unit == 1 else sums.mul_(unit)


def chunk_gradients(
    grad: Tensor,
    anchors: Tensor,
    others: Tensor,
    weights: Tensor | None,
    anchor_mask: Tensor | None,
    gaps: Gaps,
    surrogate: Surrogate,
    need_weights: bool,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Gradients for the anchors (Q, A), the others (Q, L) and, if needed, the weights (Q, L).

    `grad` is 0 for the anchors not in `anchor_mask`; `others` are those that the gaps have filled.
    """
    grad_anchors, grad_others = torch.zeros_like(anchors), torch.empty_like(others)
    grad_weights = torch.zeros_like(others) if need_weights else None
    negated = grad.neg()
    for lists, last in _lists_at_once(anchors, others, anchor_mask):
        chunk, row = _of(others, lists).unsqueeze(1), _of(grad_others, lists).unsqueeze(1)
        for items in _anchors_at_once(last, others):
            difference = gaps.hide(_of(anchors, lists, items).unsqueeze(2) - chunk, lists)
            upstream = _of(negated, lists, items).unsqueeze(1)
            if grad_weights is not None:
                of_weights = _of(grad_weights, lists).unsqueeze(1)
                of_weights.baddbmm_(upstream, surrogate.value(difference.clone()), alpha=-1)
            slope = surrogate.slope(difference)
            row.baddbmm_(upstream, slope, beta=1 if items.start else 0)
            torch.sum(_weighted(slope, weights, lists), -1, out=_of(grad_anchors, lists, items))
        if weights is not None:
            row.mul_(_of(weights, lists).unsqueeze(1))
    if not anchors.shape[1]:
        grad_others.zero_()
    return grad_anchors.mul_(grad), grad_others, grad_weights


def _weighted(values: Tensor, weights: Tensor | None, lists: slice) -> Tensor:
    """In place. For the sum after it, a batched matrix-vector product would be slower and less accurate."""
    return values if weights is None else values.mul_(_of(weights, lists).unsqueeze(1))


def _of(values: Tensor, lists: slice, items: slice | None = None) -> Tensor:
    """Some items (None: all) of some lists, a view; of a small batch, which is one chunk, the values themselves."""
    if lists.start > 0 or lists.stop < values.shape[0]:
        values = values[lists]
    return values if items is None or items == slice(0, values.shape[1]) else values[:, items]


def _lists_at_once(anchors: Tensor, others: Tensor, anchor_mask: Tensor | None) -> Iterator[tuple[slice, int]]:
    """Lists taken together, and how many anchors they have at most."""
    width = anchors.shape[1]
    rows = max(1, _chunk() // max(1, width * others.shape[1]))
    # Where one list fills chunks, those after its last anchor are passed over; of short lists all are one chunk.
    ends = None if anchor_mask is None or rows > 1 else _ends(anchor_mask)
    for first in range(0, len(anchors), rows):
        yield slice(first, first + rows), width if ends is None else ends[first]


def _ends(mask: Tensor) -> list[int]:
    """After the last item of each list; at least 1, so that every list is gone through."""
    places = torch.arange(1, mask.shape[1] + 1, device=mask.device)
    ends: list[int] = (mask * places).amax(1).clamp_min(1).tolist()
    return ends


def _anchors_at_once(last: int, others: Tensor) -> Iterator[slice]:
    items = max(1, min(last, _chunk() // max(1, others.shape[1])))
    return (slice(first, min(first + items, last)) for first in range(0, last, items))


def _chunk() -> int:
    return _CHUNK * torch.get_num_threads()
