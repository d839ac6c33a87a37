"""Pair sums by going over all pairs, in chunks that stay in the cache."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from rankwise.surrogates import OneSidedHuber, Surrogate

__all__ = ["DEVICE_CHUNK", "ItemMask", "chunk_gradients", "chunk_sums", "few_masked"]

# Elements of one chunk and thread: half a megabyte in float32, so that a few of them fit the second cache of a core.
_CHUNK = 2**17
# Elements of one chunk on an accelerator: 64 megabytes in float32.
DEVICE_CHUNK = 2**24

# Masked items are written one by one where at most 1 slot in 16 is masked, of at least 2^17.
_FEW, _MANY = 16, 2**17


def chunk_sums(
    anchors: Tensor,
    others: Tensor,
    weights: Tensor | None,
    anchor_mask: Tensor | None,
    item_mask: ItemMask,
    surrogate: Surrogate,
) -> Tensor:
    """Return sum_j w_j l(a_i - b_j) over the unmasked others j, (Q, A); sums of masked anchors are undefined.

    `others` come from `item_mask.fill`.
    """
    sums = torch.zeros_like(anchors)
    raw, unit = (surrogate.raw, surrogate.unit) if isinstance(surrogate, OneSidedHuber) else (surrogate.value, 1.0)
    for lists, last in _lists_at_once(anchors, others, anchor_mask):
        chunk = _of(others, lists).unsqueeze(1)
        for items in _anchors_at_once(last, others):
            difference = item_mask.hide(_of(anchors, lists, items).unsqueeze(2) - chunk, lists)
            torch.sum(_weighted(raw(difference), weights, lists), -1, out=_of(sums, lists, items))
    return sums if unit == 1 else sums.mul_(unit)


def chunk_gradients(
    grad: Tensor,
    anchors: Tensor,
    others: Tensor,
    weights: Tensor | None,
    anchor_mask: Tensor | None,
    item_mask: ItemMask,
    surrogate: Surrogate,
    need_weights: bool,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the gradients for the anchors (Q, A), the others (Q, L) and, if needed, the weights (Q, L).

    `grad` is 0 for the anchors not in `anchor_mask`; `others` come from
    `item_mask.fill`.
    """
    grad_anchors, grad_others = torch.zeros_like(anchors), torch.empty_like(others)
    grad_weights = torch.zeros_like(others) if need_weights else None
    negated = grad.neg()
    for lists, last in _lists_at_once(anchors, others, anchor_mask):
        chunk, row = _of(others, lists).unsqueeze(1), _of(grad_others, lists).unsqueeze(1)
        for items in _anchors_at_once(last, others):
            difference = item_mask.hide(_of(anchors, lists, items).unsqueeze(2) - chunk, lists)
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
    """Multiply by the weights, in place."""
    # For the sum after it, a batched matrix-vector product would be slower and less accurate.
    return values if weights is None else values.mul_(_of(weights, lists).unsqueeze(1))


def _of(values: Tensor, lists: slice, items: slice | None = None) -> Tensor:
    """Return some items (None: all) of some lists as a view; a small batch is one chunk, so there the values."""
    if lists.start > 0 or lists.stop < values.shape[0]:
        values = values[lists]
    return values if items is None or items == slice(0, values.shape[1]) else values[:, items]


def _lists_at_once(anchors: Tensor, others: Tensor, anchor_mask: Tensor | None) -> Iterator[tuple[slice, int]]:
    """Yield the lists of each chunk and the largest number of anchors among them."""
    width = anchors.shape[1]
    rows = max(1, _chunk(others.device) // max(1, width * others.shape[1]))
    # Where one list fills chunks, those after its last anchor are passed over; of short lists all are one chunk.
    on_cpu = others.device.type == "cpu"
    ends = None if anchor_mask is None or rows > 1 or not on_cpu else _ends(anchor_mask)
    for first in range(0, len(anchors), rows):
        yield slice(first, first + rows), width if ends is None else ends[first]


def _ends(mask: Tensor) -> list[int]:
    """Return the number of slots up to the last item of each list, at least 1."""
    places = torch.arange(1, mask.shape[1] + 1, device=mask.device)
    ends: list[int] = (mask * places).amax(1).clamp_min(1).tolist()
    return ends


def _anchors_at_once(last: int, others: Tensor) -> Iterator[slice]:
    items = max(1, min(last, _chunk(others.device) // max(1, others.shape[1])))
    return (slice(first, min(first + items, last)) for first in range(0, last, items))


def _chunk(device: torch.device) -> int:
    return _CHUNK * torch.get_num_threads() if device.type == "cpu" else DEVICE_CHUNK


class ItemMask:
    """Mask items in pair sums: a masked item scores -inf, where every surrogate and its slope are 0.

    Call `others = item_mask.fill(others)` once, and `item_mask.hide(difference, lists)` on the differences (q, A, L) of
    each chunk: many masked items are filled in beforehand, few are written into the chunks. Their indices are computed
    once for the forward and the backward pass.

    Args:
        mask: (Q, L), False where an item is masked; None masks none.
    """

    def __init__(self, mask: Tensor | None) -> None:
        self._given, self._shape = mask, (0, 0)

    @classmethod
    def at(cls, places: np.ndarray, shape: tuple[int, int]) -> ItemMask:
        """Return a mask of few items of lists on the CPU, by their flat indices row * L + column in rising order."""
        made = cls(None)
        made._places, made._shape = places, shape
        return made

    @cached_property
    def mask(self) -> Tensor | None:
        """Return the mask (Q, L), or None when no item is masked."""
        if self._given is not None or self._places is None:
            return self._given
        mask = torch.ones(self._shape, dtype=torch.bool)
        mask.view(-1)[torch.from_numpy(self._places)] = False
        return mask

    @cached_property
    def _places(self) -> np.ndarray | None:
        """Return the flat indices of the masked items if they are few, else None."""
        if self._given is None or self._given.device.type != "cpu" or not few_masked(0, self._given.numel()):
            return None
        absent = ~self._given.numpy()
        return np.flatnonzero(absent) if few_masked(int(np.count_nonzero(absent)), absent.size) else None

    def fill(self, others: Tensor) -> Tensor:
        """Return the others (Q, L) with masked ones as -inf, or as they are if few are masked."""
        if self._given is None or self._places is not None:
            return others
        return torch.where(self._given, others, -torch.inf)

    def hide(self, difference: Tensor, lists: slice) -> Tensor:
        """Set the differences anchor - other (q, A, L) of few masked others to inf, in place."""
        places = self._places
        if places is not None and len(places):
            length = difference.shape[2]
            first, last = np.searchsorted(places, (lists.start * length, lists.stop * length))
            rows, columns = np.divmod(places[first:last] - lists.start * length, length)
            difference.numpy()[rows, :, columns] = np.inf
        return difference


def few_masked(masked: int, slots: int) -> bool:
    """Return whether so few items are masked that writing them one by one is the fastest."""
    return slots >= _MANY and masked * _FEW <= slots
