"""The one shape: Q lists of at most L items, as `scores[Q, L]`, `labels[Q, L]` and a boolean `mask[Q, L]`.

Whatever a caller passes (one list, padded lists, ragged lists with `query_ids`) is packed into that shape once.
Ragged lists of very different lengths become a few blocks, each padded to at most twice the length of its
shortest list, so that one long list does not blow up all the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from rankwise.checks import check_choice, check_finite, check_ids, check_same_shape, check_tensor, send, when, widen

__all__ = [
    "EMPTY_POLICIES",
    "ItemMask",
    "Lists",
    "PackedLists",
    "Sides",
    "compact",
    "count",
    "few_masked",
    "find_chosen",
    "pack",
    "reduce_lists",
    "split_sides",
    "surely_all",
]

# Masked items are written one by one where at most 1 slot in 16 is masked, of at least 2^17.
_FEW, _MANY = 16, 2**17

EMPTY_POLICIES = ("skip", "zero", "one", "error")

# One padded block is kept as long as it holds at most this many slots per real item.
_SLOTS_PER_ITEM = 2.0


@dataclass(frozen=True)
class Lists:
    """Q lists of one block. Slots outside `mask` hold zeros and never count.

    Attributes:
        scores: (Q, L), labels: (Q, L), mask: (Q, L) boolean.
        weights: (Q, L) item weights, or None when every item counts once.
        positions: (Q,) where each of these lists stands among all lists of the batch.
        sample_ids: (Q, L) the ids of the items, or None.
        previous_scores: (Q, L) the scores of the same items under the weights before the last step, or None.
        cosines: whether the scores are known to lie between -1 and 1.
        size: (Q,) how many items each list holds; full: whether every slot holds one.
        relevant: (Q, L) which items have label 1; positives: their indices (Q, A) and which of these count (Q, A),
            see `find_chosen`; negatives: which items have label 0.
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
        return count(self.mask)

    @cached_property
    def full(self) -> bool:
        return surely_all(self.mask)

    @cached_property
    def relevant(self) -> Tensor:
        return self.labels if self.labels.dtype == torch.bool else self.labels == 1

    @cached_property
    def positives(self) -> tuple[Tensor, Tensor]:
        return find_chosen(self.relevant)

    @cached_property
    def negatives(self) -> ItemMask:
        return ItemMask(self.mask ^ self.relevant)


@dataclass(frozen=True)
class PackedLists:
    """All lists of a batch, as one or more blocks.

    Attributes:
        blocks: the lists, those of similar length together.
        size: how many lists there are in all.
        ids: (size,) the id of every list, or None when the lists have no identity beyond this batch.
    """

    blocks: tuple[Lists, ...]
    size: int
    ids: Tensor | None
    _list_of_item: Tensor | None = None
    _shape: tuple[int, ...] = ()

    def join(self, values: Sequence[Tensor]) -> Tensor:
        """Per-list values of the blocks, (Q_b, ...) each, put together in the order of the lists: (size, ...)."""
        if len(self.blocks) == 1:
            return values[0]
        order = torch.cat([block.positions for block in self.blocks])
        return torch.cat(list(values))[torch.argsort(order)]

    def map(self, per_block: Callable[[Lists], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        """Apply a function of lists to every block and put each of its per-list results in the order of the lists."""
        parts = [per_block(block) for block in self.blocks]
        return tuple(self.join(column) for column in zip(*parts, strict=True))

    def of_block(self, values: Tensor, block: Lists) -> Tensor:
        """Of per-list values (size, ...) in the order of the lists, those of one block."""
        return values if len(self.blocks) == 1 else values[block.positions]

    def column(self, values: Tensor | float, block: Lists) -> Tensor | float:
        """Per-list values (size,) as a column (Q, 1) beside the items of one block; a number for all as it is."""
        return self.of_block(values, block)[:, None] if isinstance(values, Tensor) else values

    def per_list(self, name: str, values: object) -> Tensor:
        """What a caller says of whole lists, as (size,).

        For 2-D input that is one value per list, for a single list one value; for ragged input one value per
        item (like `query_ids`), the same for all items of a list.
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
    """Pack what a caller passes into lists.

    Args:
        scores: (N,) one list, or ragged lists when `query_ids` is (N,); or (Q, L) one list per row.
        labels: the shape of `scores`.
        query_ids: which list each item belongs to, (N,) integers in any order; for 2-D scores the id of each
            list, (Q,).
        mask: the shape of `scores`, False where there is no item.
        weights: the shape of `scores`, item weights of 0 or more; an item of weight 0 is as good as absent.
        sample_ids: the shape of `scores`, which item each is: any integers.
        previous_scores: the shape of `scores`, what the same items scored before the last step.
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
    labels = _beside("labels", labels, scores)
    weights = None if weights is None else _beside("weights", weights, scores)
    mask = None if mask is None else _beside("mask", mask, scores)
    if sample_ids is not None:
        sample_ids = _beside("sample_ids", check_ids("sample_ids", sample_ids), scores)
    if previous_scores is not None:
        previous_scores = _beside("previous_scores", previous_scores, scores).to(scores.dtype)
        check_finite("previous_scores", previous_scores, mask)
    if mask is not None:
        if mask.dtype != torch.bool:
            raise TypeError(f"mask: expected booleans, got {mask.dtype}")
        if mask.numel():
            when(~mask.any(), _refuse_empty_mask)
    check_finite("scores", scores, mask)
    if weights is not None:
        check_finite("weights", weights, mask)
        when((weights < 0).any(), partial(_refuse_weights, weights))
        mask = weights > 0 if mask is None else mask & (weights > 0)

    items = _Items(scores, labels, mask, weights, sample_ids, previous_scores)
    # One layout for all: sums then round alike, and searches need no copies of their own.
    if scores.ndim == 2 and lists == "columns":
        if query_ids is not None:
            raise ValueError('query_ids: expected None with lists="columns" (a column is its own id), got ids')
        return _one_block(items.each(lambda t: t.T.contiguous()), torch.arange(scores.shape[1], device=scores.device))
    items = items.each(Tensor.contiguous)
    if query_ids is None:
        if scores.ndim == 2:
            return _one_block(items, None)
        itself = torch.zeros(1, dtype=torch.int64, device=scores.device)
        return _one_block(items.each(lambda t: t[None]), itself)

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


def find_chosen(chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Return indices (Q, A) that include all `chosen` (Q, L) items, and which of them are chosen, (Q, A).

    On the CPU those are the chosen items at the front, see `compact`. On an accelerator the host would have to wait for
    their number; there all items are kept.
    """
    if chosen.device.type == "cpu":
        return compact(chosen)
    return torch.arange(chosen.shape[1], device=chosen.device).expand(chosen.shape), chosen


def compact(chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Where the `chosen` (Q, L) items of each list stand: index (Q, M) and mask (Q, M), M the largest number chosen.

    `values.gather(1, index)` then holds the chosen values of each list at the front, and any value outside the mask.
    """
    rows, places = _nonzero(chosen)
    counts = torch.bincount(rows, minlength=len(chosen))
    width = int(counts.max()) if counts.numel() else 0
    if len(chosen) * width == len(places):  # as many in each
        return places.view(len(chosen), width), torch.ones(len(chosen), width, dtype=torch.bool, device=chosen.device)
    mask = torch.arange(width, device=chosen.device) < counts[:, None]
    return torch.zeros_like(mask, dtype=torch.int64).masked_scatter(mask, places), mask


def count(mask: Tensor) -> Tensor:
    """How many are True along the last axis; on the CPU numpy adds up bytes several times faster."""
    if mask.device.type != "cpu":
        return mask.sum(-1)
    narrow = np.uint16 if mask.shape[-1] < 2**16 else np.int64
    return torch.as_tensor(mask.numpy().view(np.uint8).sum(-1, dtype=narrow).astype(np.int64))


def surely_all(mask: Tensor) -> bool:
    """Return whether all are known to be True. The host does not wait for an accelerator to find out: False there.

    On the CPU numpy answers several times faster than torch for the few of a batch.
    """
    return mask.device.type == "cpu" and bool(mask.numpy().all())


def reduce_lists(
    values: Tensor, valid: Tensor, *, empty: str = "skip", reduction: str = "mean", weights: Tensor | None = None
) -> Tensor:
    """The one safe reduction of per-list values: (Q,) to a scalar ("mean", "sum") or (Q,) ("none").

    Args:
        values: (Q,), finite wherever `valid`.
        valid: (Q,) False for lists on which the quantity is not defined (no positive item, say).
        empty: what such a list counts as: "skip" leaves it out, "zero" and "one" give it that value, "error" raises.
        reduction: "mean", "sum" or "none" (left-out lists are NaN there).
        weights: (Q,) weights of the lists.

    With nothing left the mean is a zero that is still attached to the graph of `values`.
    """
    check_choice("empty", empty, EMPTY_POLICIES)
    check_choice("reduction", reduction, ("mean", "sum", "none"))
    if empty == "error" and not surely_all(valid):
        when(~valid.all(), partial(_refuse_lists, valid))
    if weights is None and reduction == "mean" and len(valid) and surely_all(valid):
        return values.mean()
    if reduction == "none":
        fill = {"skip": float("nan"), "zero": 0.0, "one": 1.0, "error": 0.0}[empty]
        return torch.where(valid, values, fill)
    filled = torch.where(valid, values, 1.0 if empty == "one" else 0.0)
    counted = valid if empty in ("skip", "error") else torch.ones_like(valid)
    share = counted.to(values.dtype) if weights is None else counted * weights.to(values.dtype)
    total = (filled * share).sum()
    return total if reduction == "sum" else total / share.sum().clamp_min(torch.finfo(values.dtype).tiny)


def _refuse_lists(valid: Tensor) -> None:
    raise ValueError(
        f'labels: {int((~valid).sum())} of {len(valid)} lists lack the items the quantity needs, and empty="error"'
    )


def _nonzero(chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Rows and columns of what is True in (Q, L); on the CPU numpy looks many times faster for the few of many."""
    if chosen.device.type != "cpu":
        rows, columns = chosen.nonzero(as_tuple=True)
        return rows, columns
    found = np.divmod(np.flatnonzero(chosen.numpy()), max(1, chosen.shape[1]))
    return torch.from_numpy(found[0]), torch.from_numpy(found[1])


def _whole_numbers(scores: Tensor) -> Tensor:
    """Return integers as floats of the widest dtype; those beyond what it holds exactly are refused."""
    exact = widen(scores)
    bits = 53 if exact.dtype == torch.float64 else 24
    if bool((exact.abs() >= 2.0**bits).any()):
        largest, dtype = exact.abs().max().item(), str(exact.dtype).removeprefix("torch.")
        raise ValueError(
            f"scores: expected whole numbers below 2^{bits} in size, which {dtype} holds exactly, got {largest:.17g}; "
            "subtract what they have in common, or take their ranks"
        )
    return exact


def _beside(name: str, value: object, scores: Tensor) -> Tensor:
    tensor = send(check_tensor(name, value), scores.device)
    check_same_shape(name, tensor, "scores", scores.shape)
    return tensor


class _Items(NamedTuple):
    """What a caller says of items, all of one shape."""

    scores: Tensor
    labels: Tensor
    mask: Tensor | None
    weights: Tensor | None
    sample_ids: Tensor | None
    previous_scores: Tensor | None

    def each(self, change: Callable[[Tensor], Tensor]) -> _Items:
        """The same change to all that is there."""
        scores, labels, *others = self
        return _Items(change(scores), change(labels), *(None if t is None else change(t) for t in others))

    def lists(self, mask: Tensor, positions: Tensor) -> Lists:
        """As lists, with zeros outside `mask`."""
        scores, labels, _, weights, sample_ids, previous = self.each(lambda t: t.masked_fill(~mask, 0))
        return Lists(scores, labels, mask, weights, positions, sample_ids, previous)


def _one_block(items: _Items, ids: Tensor | None) -> PackedLists:
    scores = items.scores
    positions = torch.arange(len(scores), device=scores.device)
    if items.mask is None:
        everything = torch.ones(scores.shape, dtype=torch.bool, device=scores.device)
        block = Lists(
            scores, items.labels, everything, items.weights, positions, items.sample_ids, items.previous_scores
        )
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
        slots = torch.arange(width, device=ids.device)
        real = slots < lengths[positions, None]
        places = by_list[torch.where(real, starts[positions, None] + slots, 0)]
        placed = items.each(lambda t, places=places: t[places])  # type: ignore[misc]
        blocks.append(placed.lists(real if placed.mask is None else real & placed.mask, positions))
    return PackedLists(tuple(blocks), len(ids), ids, list_of_item, tuple(items.scores.shape))


def _similar_lengths(lengths: Tensor) -> list[Tensor]:
    """Groups of lists whose lengths lie within a factor of two, or all in one where padding costs little."""
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
    """The positives and negatives of each list.

    Attributes:
        index, mask: (Q, A) indices of the positives, and which of these slots hold one.
        share: (Q, A) weights of the positives, with a sum of 1 per list.
        negatives: which items are negative.
        positive_weight, negative_weight: (Q,) sums of item weights, at least the smallest normal number.
        valid: (Q,) which lists have both; rate: (Q,) the share of positives, 1/2 in lists that do not have both.
        padding: `mask`, or None when all lists have equally many positives.
    """

    index: Tensor
    mask: Tensor
    share: Tensor
    negatives: ItemMask
    positive_weight: Tensor
    negative_weight: Tensor
    valid: Tensor

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
        negative = lists.size - positive
    else:
        weights = lists.weights.gather(1, index).to(dtype) * mask
        positive, negative = weights.sum(1), (lists.weights * (lists.mask ^ lists.relevant)).sum(1).to(dtype)
    valid = torch.minimum(positive, negative) > 0
    positive = positive.clamp_min(tiny)
    return Sides(index, mask, weights / positive[:, None], lists.negatives, positive, negative.clamp_min(tiny), valid)


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
