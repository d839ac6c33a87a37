"""Pack the input of losses and metrics into Q lists of at most L items: `scores`, `labels` and `mask`, each (Q, L).

All forms of input (one list, padded lists, ragged lists with `query_ids`) are packed into that shape once. Ragged lists
of very different lengths become a few blocks, each padded to at most twice the length of its shortest list, so that one
long list does not widen all the others.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rankwise.checks import (
    check_choice,
    check_finite,
    check_ids,
    check_later,
    check_same_shape,
    check_tensor,
    is_traced,
    on_host,
    send,
    widen,
)
from rankwise.sorting import filled, numbers

__all__ = [
    "EMPTY_POLICIES",
    "ItemMask",
    "Lists",
    "PackedLists",
    "Sides",
    "anchors_that_count",
    "compact",
    "count",
    "few_masked",
    "find_chosen",
    "pack",
    "put_back",
    "reduce_lists",
    "split_sides",
    "surely_all",
    "take",
]

# Masked items are written one by one if at most 1 of 16 elements is masked, and the block has at least 2^17 elements.
_FEW, _MANY = 16, 2**17

EMPTY_POLICIES = ("skip", "zero", "one", "error")

# Ragged lists stay in one block while it has at most this many elements per item.
_SLOTS_PER_ITEM = 2.0


@dataclass(frozen=True)
class Lists:
    """Q lists of one block, padded to L items. Padding holds zeros and never counts.

    Attributes:
        scores: (Q, L), labels: (Q, L), mask: (Q, L) boolean, False in the padding.
        weights: (Q, L) item weights, or None when every item counts once.
        positions: (Q,) index of each of these lists among all lists of the batch.
        sample_ids: (Q, L) ids of the items, or None.
        previous_scores: (Q, L) scores of the same items under the weights before the last step, or None.
        cosines: whether the scores are known to lie between -1 and 1.
        size: (Q,) number of items of each list; full: whether there is no padding.
        relevant: (Q, L) mask of the items of label 1; positives: their indices (Q, A) and the mask (Q, A) of these
            indices, see `find_chosen`; negatives: mask of the items of label 0.
    """

    scores: Tensor
    labels: Tensor
    mask: Tensor
    weights: Tensor | None
    positions: Tensor
    sample_ids: Tensor | None = None
    previous_scores: Tensor | None = None
    cosines: bool = False

    @cached_property
    def size(self) -> Tensor:
        if not self.full:
            return count(self.mask)
        return filled(self.mask.shape[:1], self.mask.shape[1], torch.int64, self.mask.device)

    @cached_property
    def full(self) -> bool:
        return surely_all(self.mask)

    @cached_property
    def relevant(self) -> Tensor:
        return self.labels if self.labels.dtype == torch.bool else self.labels == 1

    @cached_property
    def positives(self) -> tuple[Tensor | None, Tensor]:
        return find_chosen(self.relevant)

    @cached_property
    def negatives(self) -> ItemMask:
        if self.full:
            return ItemMask.without(self.relevant)
        return ItemMask(self.mask ^ self.relevant)

    @cached_property
    def constants(self) -> dict[Hashable, Any]:
        """Return a cache for what losses derive from labels, mask and weights alone."""
        return {}

    def with_scores(self, scores: Tensor, previous_scores: Tensor | None = None, *, cosines: bool = False) -> Lists:
        """Return the same lists with other scores (Q, L); what was derived from labels, mask and weights is kept."""
        lists = replace(self, scores=scores, previous_scores=previous_scores, cosines=cosines)
        for name, value in vars(self).items():
            lists.__dict__.setdefault(name, value)
        return lists


@dataclass(frozen=True)
class PackedLists:
    """Lists of a batch, in one or more blocks.

    Attributes:
        blocks: the lists, those of similar length together.
        size: number of lists in all blocks.
        ids: (size,) id of every list, or None if no state is kept per list.
    """

    blocks: tuple[Lists, ...]
    size: int
    ids: Tensor | None
    _list_of_item: Tensor | None = None
    _shape: tuple[int, ...] = ()

    def join(self, values: Sequence[Tensor]) -> Tensor:
        """Concatenate the per-list values of the blocks, (Q_b, ...) each, in the order of the lists: (size, ...)."""
        if len(self.blocks) == 1:
            return values[0]
        order = torch.cat([block.positions for block in self.blocks])
        return torch.cat(list(values))[torch.argsort(order)]

    def map(self, per_block: Callable[[Lists], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        """Apply a function to every block, and join each of its per-list results in the order of the lists."""
        parts = [per_block(block) for block in self.blocks]
        return tuple(self.join(column) for column in zip(*parts, strict=True))

    def select_block(self, values: Tensor, block: Lists) -> Tensor:
        """Return the rows of per-list values (size, ...) that belong to the lists of one block."""
        return values if len(self.blocks) == 1 else values[block.positions]

    def column(self, values: Tensor | float, block: Lists) -> Tensor | float:
        """Return per-list values (size,) as the column (Q, 1) of one block, to broadcast; return a number as it is."""
        return self.select_block(values, block)[:, None] if isinstance(values, Tensor) else values

    def per_list(self, name: str, values: object) -> Tensor:
        """Return an argument with one value per list as a tensor (size,).

        The argument has one value per list for 2-D input, and one value for a single list. For ragged input it has one
        value per item (like `query_ids`), equal for all items of a list.
        """
        tensor = send(check_tensor(name, values), self.blocks[0].scores.device)
        if self._list_of_item is None:
            if tensor.ndim == 0:
                tensor = tensor.reshape(1)
            check_same_shape(name, tensor, "one value per list", (self.size,))
            return tensor
        check_same_shape(name, tensor, "scores (one value per item)", self._shape)
        first = _first_item_of_list(self._list_of_item, self.size)
        per_list = tensor[first]
        if bool((per_list[self._list_of_item] != tensor).any()):
            raise ValueError(f"{name}: expected the same value for all items of a list, got different ones")
        return per_list


def pack(
    scores: object,
    labels: object,
    *,
    query_ids: object = None,
    mask: object = None,
    weights: object = None,
    sample_ids: object = None,
    previous_scores: object = None,
    lists: str = "rows",
) -> PackedLists:
    """Check the input of a loss or metric and pack it into lists.

    Args:
        scores: (N,) one list, or ragged lists when `query_ids` is (N,); or (Q, L) one list per row.
        labels: the shape of `scores`.
        query_ids: id of the list that each item belongs to, (N,) integers in any order; for 2-D scores the id of each
            list, (Q,).
        mask: the shape of `scores`, False in the padding.
        weights: the shape of `scores`, item weights of 0 or more; an item of weight 0 is masked.
        sample_ids: the shape of `scores`, ids of the items: any integers.
        previous_scores: the shape of `scores`, scores of the same items under the weights before the last step.
        lists: "rows" takes (Q, L) as Q lists; "columns" takes (B, C) as C lists of B items, list c having the
            id c (the classes of a multi-label problem).

    Example:
        >>> packed = pack([.1, .9, .4], [0, 1, 1], query_ids=[7, -2, 7])
        >>> packed.ids, packed.blocks[0].scores
        (tensor([-2,  7]), tensor([[0.9000, 0.0000],
                [0.1000, 0.4000]], dtype=torch.float64))
    """
    check_choice("lists", lists, ("rows", "columns"))
    scores = check_tensor("scores", scores)
    if not scores.is_floating_point():
        if scores.is_complex() or scores.dtype == torch.bool:
            raise TypeError(f"scores: expected real numbers, got {scores.dtype}")
        scores = _whole_numbers(scores)
    if scores.ndim not in (1, 2):
        raise ValueError(f"scores: expected 1 or 2 dimensions, got shape {tuple(scores.shape)}")
    labels = _like_scores("labels", labels, scores)
    weights = None if weights is None else _like_scores("weights", weights, scores)
    mask = None if mask is None else _like_scores("mask", mask, scores)
    if sample_ids is not None:
        sample_ids = _like_scores("sample_ids", check_ids("sample_ids", sample_ids), scores)
    if previous_scores is not None:
        previous_scores = _like_scores("previous_scores", previous_scores, scores).to(scores.dtype)
        check_finite("previous_scores", previous_scores, mask)
    if mask is not None:
        if mask.dtype != torch.bool:
            raise TypeError(f"mask: expected booleans, got {mask.dtype}")
        if mask.numel():
            check_later(~mask.any(), _refuse_empty_mask)
    check_finite("scores", scores, mask)
    if weights is not None:
        check_finite("weights", weights, mask)
        check_later(weights < 0, partial(_refuse_weights, weights))
        mask = weights > 0 if mask is None else mask & (weights > 0)

    items = _Items(scores, labels, mask, weights, sample_ids, previous_scores)
    # Contiguous rows: sums then round alike for every input, and searchsorted makes no copies.
    if scores.ndim == 2 and lists == "columns":
        if query_ids is not None:
            raise ValueError('query_ids: expected None with lists="columns" (a column is its own id), got ids')
        return _one_block(items.each(lambda t: t.T.contiguous()), torch.arange(scores.shape[1], device=scores.device))
    items = items.each(Tensor.contiguous)
    if query_ids is None:
        if scores.ndim == 2:
            return _one_block(items, None)
        only_id = numbers(1, scores.device)
        return _one_block(items.each(lambda t: t[None]), only_id)

    ids = send(check_ids("query_ids", query_ids), scores.device)
    if scores.ndim == 2:
        check_same_shape("query_ids", ids, "one id per list", scores.shape[:1])
        return _one_block(items, ids)
    check_same_shape("query_ids", ids, "scores", scores.shape)
    return _pack_ragged(items, ids)


def _refuse_empty_mask() -> None:
    raise ValueError("mask: expected at least one item, got all False")


def _refuse_weights(weights: Tensor) -> None:
    raise ValueError(f"weights: expected numbers of 0 or more, got {weights.min().item():g}")


def find_chosen(chosen: Tensor) -> tuple[Tensor | None, Tensor]:
    """Return indices (Q, A) that include all `chosen` (Q, L) items, and the mask (Q, A) of those that are chosen.

    On the CPU the indices are those of `compact`. On an accelerator the host would have to synchronise to learn their
    number, so all L items are returned, and None for their indices.
    """
    return compact(chosen) if on_host(chosen) else (None, chosen)


def take(values: Tensor, index: Tensor | None) -> Tensor:
    """Return the values (Q, L) at the indices (Q, A), or all if these are None."""
    return values if index is None else values.gather(1, index)


def anchors_that_count(index: Tensor | None, mask: Tensor | None) -> Tensor | None:
    """Return the mask (Q, A) of anchors for pair sums that get a weight of 0 in the padding later.

    On an accelerator all items are anchors, and None saves the passes that set the sums of some to 0.
    """
    return None if index is None and mask is not None and not is_traced(mask) else mask


def put_back(values: Tensor, index: Tensor | None, length: int) -> Tensor:
    """Return the values (Q, A) at their indices in (Q, length), 0 elsewhere; the inverse of `take`."""
    return values if index is None else values.new_zeros(len(values), length).scatter_add_(1, index, values)


def compact(chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Return the indices (Q, M) of the `chosen` (Q, L) items of each list and their mask (Q, M), M the largest count.

    `values.gather(1, index)` then holds the chosen values of each list first, and arbitrary values in the padding.
    """
    rows, columns = _nonzero(chosen)
    counts = torch.bincount(rows, minlength=len(chosen))
    width = int(counts.max()) if counts.numel() else 0
    if len(chosen) * width == len(columns):  # equally many in each list
        return columns.view(len(chosen), width), torch.ones(len(chosen), width, dtype=torch.bool, device=chosen.device)
    mask = torch.arange(width, device=chosen.device) < counts[:, None]
    return torch.zeros_like(mask, dtype=torch.int64).masked_scatter(mask, columns), mask


def count(mask: Tensor) -> Tensor:
    """Count the True elements along the last axis. On the CPU numpy sums bytes several times faster than torch."""
    if not on_host(mask):
        return mask.sum(-1)
    narrow = np.uint16 if mask.shape[-1] < 2**16 else np.int64
    return torch.as_tensor(mask.numpy().view(np.uint8).sum(-1, dtype=narrow).astype(np.int64))


def surely_all(mask: Tensor) -> bool:
    """Return whether all elements are known to be True; on an accelerator return False instead of synchronising.

    On the CPU numpy is several times faster than torch for the few elements of a batch.
    """
    return on_host(mask) and bool(mask.numpy().all())


def reduce_lists(
    values: Tensor, valid: Tensor, *, empty: str = "skip", reduction: str = "mean", weights: Tensor | None = None
) -> Tensor:
    """Reduce the values of lists, (Q,), to a scalar ("mean", "sum") or to (Q,) ("none").

    Args:
        values: (Q,), finite wherever `valid`.
        valid: (Q,) False for lists on which the quantity is undefined (without a positive item, for example).
        empty: how such lists count: "skip" leaves them out, "zero" and "one" give them that value, "error" raises.
        reduction: "mean", "sum" or "none" (lists left out are NaN there).
        weights: (Q,) weights of the lists.

    If no list is left, the mean is a zero that is still attached to the graph of `values`.
    """
    check_choice("empty", empty, EMPTY_POLICIES)
    check_choice("reduction", reduction, ("mean", "sum", "none"))
    if empty == "error" and not surely_all(valid):
        check_later(~valid.all(), partial(_refuse_lists, valid))
    if weights is None and reduction == "mean" and len(valid) and surely_all(valid):
        return values.mean()
    if reduction == "none":
        fill = {"skip": float("nan"), "zero": 0.0, "one": 1.0, "error": 0.0}[empty]
        return torch.where(valid, values, fill)
    kept = values.masked_fill(~valid, 1.0 if empty == "one" else 0.0)
    if weights is None:
        total, count = kept.sum(), valid.sum() if empty in ("skip", "error") else len(valid)
        return (
            total
            if reduction == "sum"
            else total / (count.clamp_min(1) if isinstance(count, Tensor) else max(1, count))
        )
    share = (valid if empty in ("skip", "error") else torch.ones_like(valid)) * weights.to(values.dtype)
    total = (kept * share).sum()
    return total if reduction == "sum" else total / share.sum().clamp_min(torch.finfo(values.dtype).tiny)


def _refuse_lists(valid: Tensor) -> None:
    raise ValueError(
        f'labels: {int((~valid).sum())} of {len(valid)} lists lack the items the quantity needs, and empty="error"'
    )


def _nonzero(chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Return rows and columns of the True elements of (Q, L). On the CPU numpy is many times faster if they are few."""
    if not on_host(chosen):
        rows, columns = chosen.nonzero(as_tuple=True)
        return rows, columns
    row_indices, column_indices = np.divmod(np.flatnonzero(chosen.numpy()), max(1, chosen.shape[1]))
    return torch.from_numpy(row_indices), torch.from_numpy(column_indices)


def _whole_numbers(scores: Tensor) -> Tensor:
    """Return integers as floats of the widest dtype; refuse those that it does not represent exactly."""
    exact = widen(scores)
    bits = 53 if exact.dtype == torch.float64 else 24
    if bool((exact.abs() >= 2.0**bits).any()):
        largest, dtype = exact.abs().max().item(), str(exact.dtype).removeprefix("torch.")
        raise ValueError(
            f"scores: expected whole numbers below 2^{bits} in size, which {dtype} holds exactly, got {largest:.17g}; "
            "subtract what they have in common, or take their ranks"
        )
    return exact


def _like_scores(name: str, value: object, scores: Tensor) -> Tensor:
    tensor = send(check_tensor(name, value), scores.device)
    check_same_shape(name, tensor, "scores", scores.shape)
    return tensor


class _Items(NamedTuple):
    """Arguments with one value per item, all of one shape."""

    scores: Tensor
    labels: Tensor
    mask: Tensor | None
    weights: Tensor | None
    sample_ids: Tensor | None
    previous_scores: Tensor | None

    def each(self, change: Callable[[Tensor], Tensor]) -> _Items:
        """Apply one function to all tensors that are not None."""
        scores, labels, *others = self
        return _Items(change(scores), change(labels), *(None if t is None else change(t) for t in others))

    def lists(self, mask: Tensor, positions: Tensor) -> Lists:
        """Return the items as `Lists`, with zeros outside `mask`."""
        scores, labels, _, weights, sample_ids, previous = self.each(lambda t: t.masked_fill(~mask, 0))
        return Lists(scores, labels, mask, weights, positions, sample_ids, previous)


def _one_block(items: _Items, ids: Tensor | None) -> PackedLists:
    scores = items.scores
    positions = numbers(len(scores), scores.device)
    if items.mask is None:
        mask = filled(scores.shape, True, torch.bool, scores.device)
        block = Lists(scores, items.labels, mask, items.weights, positions, items.sample_ids, items.previous_scores)
        block.__dict__["full"] = True
    else:
        block = items.lists(items.mask, positions)
    return PackedLists((block,), len(scores), ids)


def _pack_ragged(items: _Items, query_ids: Tensor) -> PackedLists:
    ids, list_of_item, lengths = query_ids.unique(return_inverse=True, return_counts=True)
    by_list = torch.argsort(list_of_item, stable=True)
    starts = lengths.cumsum(0) - lengths
    blocks = []
    for positions in _similar_lengths(lengths):
        width = int(lengths[positions].max())
        columns = torch.arange(width, device=ids.device)
        real = columns < lengths[positions, None]
        index = by_list[torch.where(real, starts[positions, None] + columns, 0)]
        padded = items.each(lambda t, index=index: t[index])  # type: ignore[misc]
        blocks.append(padded.lists(real if padded.mask is None else real & padded.mask, positions))
    return PackedLists(tuple(blocks), len(ids), ids, list_of_item, tuple(items.scores.shape))


def _similar_lengths(lengths: Tensor) -> list[Tensor]:
    """Group lists whose lengths differ by at most a factor of two, or all of them if there is little padding."""
    everything = torch.arange(len(lengths), device=lengths.device)
    if not len(lengths) or int(lengths.max()) * len(lengths) <= _SLOTS_PER_ITEM * int(lengths.sum()) + 1024:
        return [everything]
    octave = torch.ceil(torch.log2(widen(lengths))).long()
    return [everything[octave == level] for level in octave.unique()]


def _first_item_of_list(list_of_item: Tensor, size: int) -> Tensor:
    first = torch.full((size,), len(list_of_item), dtype=torch.int64, device=list_of_item.device)
    items = torch.arange(len(list_of_item), device=list_of_item.device)
    return first.scatter_reduce(0, list_of_item, items, "amin")


@dataclass(frozen=True)
class Sides:
    """Positives and negatives of each list.

    Attributes:
        index, mask: (Q, A) indices of the positives, and False in their padding; see `find_chosen`.
        share: (Q, A) weights of the positives, with a sum of 1 per list.
        negatives: mask of the negative items.
        positive_weight, negative_weight: (Q,) sums of item weights, at least the smallest normal number.
        negative_total: (Q,) sum of the weights of the negatives, which may be 0.
        valid: (Q,) True for lists that have both; rate: (Q,) share of positives, 1/2 in lists that do not have both.
        padding: `mask`, or None when all lists have equally many positives.
    """

    index: Tensor | None
    mask: Tensor
    share: Tensor
    negatives: ItemMask
    positive_weight: Tensor
    negative_total: Tensor
    valid: Tensor

    @cached_property
    def negative_weight(self) -> Tensor:
        return self.negative_total.clamp_min(torch.finfo(self.negative_total.dtype).tiny)

    @cached_property
    def padding(self) -> Tensor | None:
        return None if surely_all(self.mask) else self.mask

    @cached_property
    def rate(self) -> Tensor:
        return torch.where(self.valid, self.positive_weight / (self.positive_weight + self.negative_weight), 0.5)


def split_sides(lists: Lists) -> Sides:
    """Split the items of each list into positives (label 1) and negatives (label 0)."""
    dtype, tiny = lists.scores.dtype, torch.finfo(lists.scores.dtype).tiny
    index, mask = lists.positives
    if lists.weights is None:
        weights, positive = mask, mask.sum(1, dtype=dtype)
        negative = (lists.mask.shape[1] if lists.full else lists.size) - positive
    else:
        weights = take(lists.weights, index).to(dtype) * mask
        positive, negative = weights.sum(1), (lists.weights * (lists.mask ^ lists.relevant)).sum(1).to(dtype)
    valid = torch.minimum(positive, negative) > 0
    positive = positive.clamp_min(tiny)
    return Sides(index, mask, weights / positive[:, None], lists.negatives, positive, negative, valid)


class ItemMask:
    """Mask of items in pair sums: a masked item scores -inf, where every surrogate and its slope are 0.

    Call `others = item_mask.fill(others)` once, and `item_mask.hide(difference, lists)` on the differences (q, A, L) of
    each chunk. If many items are masked, `fill` writes them; if few, `hide` writes them into each chunk. Their indices
    are computed once for the forward and the backward pass.

    Args:
        mask: (Q, L), False where an item is masked; None masks none.
    """

    _masked: Tensor | None = None

    def __init__(self, mask: Tensor | None) -> None:
        self._given, self._shape = mask, (0, 0)

    @classmethod
    def without(cls, masked: Tensor) -> ItemMask:
        """Return a mask by the opposite: `masked` (Q, L) is True where an item is masked."""
        if on_host(masked):
            return cls(~masked)
        made = cls(None)
        made._masked = masked
        return made

    @classmethod
    def at(cls, index: np.ndarray, shape: tuple[int, int]) -> ItemMask:
        """Return a mask of few items on the CPU, by their flat indices row * L + column in ascending order."""
        made = cls(None)
        made._index, made._shape = index, shape
        return made

    @cached_property
    def mask(self) -> Tensor | None:
        """Return the mask (Q, L), or None when no item is masked."""
        if self._masked is not None:
            return ~self._masked
        if self._given is not None or self._index is None:
            return self._given
        mask = torch.ones(self._shape, dtype=torch.bool)
        mask.view(-1)[torch.from_numpy(self._index)] = False
        return mask

    @cached_property
    def _index(self) -> np.ndarray | None:
        """Return the flat indices of the masked items if they are few, else None."""
        if self._given is None or not on_host(self._given) or not few_masked(0, self._given.numel()):
            return None
        masked = ~self._given.numpy()
        return np.flatnonzero(masked) if few_masked(int(np.count_nonzero(masked)), masked.size) else None

    def fill(self, others: Tensor) -> Tensor:
        """Return the others (Q, L) with -inf for masked ones, or unchanged if few are masked."""
        if self._masked is not None:
            return others.masked_fill(self._masked, -torch.inf)
        if self._given is None or self._index is not None:
            return others
        return torch.where(self._given, others, filled((), -torch.inf, others.dtype, others.device))

    def hide(self, difference: Tensor, lists: slice) -> Tensor:
        """Set the differences anchor - other (q, A, L) of few masked others to inf, in place."""
        index = self._index
        if index is not None and len(index):
            length = difference.shape[2]
            first, last = np.searchsorted(index, (lists.start * length, lists.stop * length))
            rows, columns = np.divmod(index[first:last] - lists.start * length, length)
            difference.numpy()[rows, :, columns] = np.inf
        return difference


def few_masked(masked: int, elements: int) -> bool:
    """Return whether so few items are masked that writing them one by one is fastest."""
    return elements >= _MANY and masked * _FEW <= elements
