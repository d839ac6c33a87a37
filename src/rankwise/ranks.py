"""Rank the items of lists by score, best first, with a stated policy for ties."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from rankwise.checks import check_choice, on_host, widen
from rankwise.lists import Lists, compact, count, surely_all
from rankwise.sorting import Descending, argsort, sort_values

__all__ = ["TIE_POLICIES", "Positives", "RankedLists", "locate", "locate_dense", "narrow", "rank"]

TIE_POLICIES = ("average", "pessimistic", "stable")

# One binary search costs about as much as sorting this many items.
_SEARCH_COST = 32

T = TypeVar("T")


@dataclass(frozen=True)
class RankedLists:
    """Lists sorted by score, best first; padding comes last.

    Items of equal score form a tie group, bounded by `start` and `end`. A metric can treat a group as one threshold or
    average over its permutations. Under the policies "pessimistic" and "stable" every group is one item. Attributes are
    computed on first use, and once.

    Attributes:
        lists: the lists before sorting, ties: the policy.
        base: the one list, if all lists are that list with different weights.
        order: (Q, L) permutation: index in `lists` of each sorted item.
        labels: (Q, L), mask: (Q, L), full: whether there is no padding, size: (Q,) number of items.
        weights: (Q, L) float64, or None when every item counts once.
        start: (Q, L) index of the first item of each item's tie group.
        end: (Q, L) index after the last item of the group.
        tied: whether any group has more than one item; if not, `start` is 0, 1, 2, ... in every list.
        has_ties: (Q,) True for lists with tied scores, under every policy.
        positives: ranks of the items with a label above 0.
    """

    lists: Lists
    ties: str = "average"
    base: RankedLists | None = None
    _results: dict[object, Any] = field(default_factory=dict, repr=False, compare=False)

    def once(self, name: object, make: Callable[[], T]) -> T:
        """Return `make()`, computed once and cached under `name`, so that metrics share intermediate results."""
        if name not in self._results:
            self._results[name] = make()
        return self._results[name]  # type: ignore[no-any-return]

    def reweighted(self, weights: Tensor) -> RankedLists:
        """Repeat a single list for each row of item weights (R, L), given in sorted order; return R lists."""
        rows = len(weights)
        index = torch.zeros(rows, dtype=torch.int64, device=weights.device)
        one = Lists(self._keys.neg(), self.labels, self.mask, None, index[:1])
        scores, labels, mask = (values.expand_as(weights) for values in (one.scores, one.labels, one.mask))
        again = RankedLists(Lists(scores, labels, mask, weights, index), self.ties, RankedLists(one, self.ties))
        # Attributes that depend on the order only are copied.
        known = {name: getattr(self, name).expand_as(weights) for name in ("start", "end")}
        group = self.group + torch.arange(rows, device=weights.device)[:, None] * weights.shape[1]
        joins = self._joins.expand(rows, -1)
        again.__dict__.update(known, order=again._index, weights=weights, group=group, _joins=joins, tied=self.tied)
        return again

    @cached_property
    def order(self) -> Tensor:
        if self.ties != "pessimistic":
            return self._descending.indices()
        scores, labels, mask = self._scores, self.lists.labels, self.lists.mask
        worst_first = argsort(narrow(labels), mask)
        order = argsort(-scores.gather(1, worst_first), mask.gather(1, worst_first))
        return worst_first.gather(1, order)

    @cached_property
    def _descending(self) -> Descending:
        descending = Descending(self._scores, None if self.full else self.lists.mask)
        self.__dict__.setdefault("_joins", descending.joins if self.full else descending.joins & self.mask[:, 1:])
        return descending

    @cached_property
    def labels(self) -> Tensor:
        return self.lists.labels.gather(1, self.order)

    @cached_property
    def mask(self) -> Tensor:
        return self.lists.mask if self.full else self._index < self.size[:, None]

    @cached_property
    def full(self) -> bool:
        return self.lists.full

    @cached_property
    def size(self) -> Tensor:
        count, length = self.lists.mask.shape
        if self.full:
            return torch.full((count,), length, device=self.lists.mask.device)
        return self.lists.mask.sum(1)

    @cached_property
    def weights(self) -> Tensor | None:
        return None if self.lists.weights is None else self.lists.weights.gather(1, self.order).double()

    @cached_property
    def has_ties(self) -> Tensor:
        if self.lists.mask.shape[1] < 2:
            return torch.zeros(len(self.lists.mask), dtype=torch.bool, device=self.lists.mask.device)
        return count(self._joins) > 0

    @cached_property
    def tied(self) -> bool:
        # On an accelerator True is always right, and the host does not synchronise.
        return self.ties == "average" and (not on_host(self._index) or bool(self.has_ties.any()))

    @cached_property
    def start(self) -> Tensor:
        if not self.tied:
            return self._index
        opens = torch.nn.functional.pad(~self._joins, (1, 0), value=True)
        return torch.where(opens, self._index, 0).cummax(1).values

    @cached_property
    def end(self) -> Tensor:
        if not self.tied:
            return self._index + 1
        closes = torch.nn.functional.pad(~self._joins, (0, 1), value=True)
        return torch.where(closes, self._index + 1, closes.shape[1]).flip(1).cummin(1).values.flip(1)

    @cached_property
    def group(self) -> Tensor:
        """Return the number of each item's tie group, (Q, L), counted across the lists."""
        if not self.tied:
            return torch.arange(self.lists.mask.numel(), device=self.lists.mask.device).view(self.lists.mask.shape)
        opens = torch.nn.functional.pad(~self._joins, (1, 0), value=True)
        return opens.flatten().cumsum(0).sub_(1).view(opens.shape)

    def joined(self, width: int) -> np.ndarray:
        """Return flat indices in (Q, width) of the items, among the first `width`, that tie with the one before."""
        joined = np.flatnonzero(self._joins[:, : width - 1].cpu().numpy())
        return joined + joined // max(1, width - 1) + 1

    def first(self, width: int) -> tuple[Tensor, Tensor]:
        """Return the indices (Q, W) of the first `width` items of each list and of items tied with the last of them.

        Also return the mask (Q, W) of these indices. If they are few, only scores are sorted, without indices.
        """
        known = self._results.get("first")
        if known is None or known[0].shape[1] < width:
            known = self._results["first"] = self._find_first(width)
        return known

    def _find_first(self, width: int) -> tuple[Tensor, Tensor]:
        length = self.lists.mask.shape[1]
        if self.ties == "pessimistic":
            return self.order[:, :width], self.mask[:, :width]
        if _SEARCH_COST * width >= length:
            falling, reach = self._descending, width
            while reach < length and self.tied and bool(self._joins[:, width - 1 : reach].all(1).any()):
                reach = min(reach + reach // 2 + 1, length)
            return falling.indices(reach), self.mask[:, :reach]
        chosen = self._scores >= -self._keys[:, width - 1 : width]
        index, valid = compact(chosen if self.full else chosen.logical_and_(self.lists.mask))
        order = argsort(-self._scores.gather(1, index), None if surely_all(valid) else valid)
        return index.gather(1, order), valid

    @cached_property
    def positives(self) -> Positives:
        if self.ties == "stable" or self.lists.weights is not None:
            weights = self.mask.double() if self.weights is None else self.weights
            return locate_dense((self.labels > 0) & (weights > 0), weights, self.start, self.end)
        index, valid = compact(self.lists.labels > 0)
        own = sort_values(self._scores.gather(1, index).neg_().masked_fill_(~valid, float("inf")), in_place=True)
        return locate(self._keys, own, valid, self.size, pessimistic=self.ties == "pessimistic")

    @cached_property
    def _scores(self) -> Tensor:
        return narrow(self.lists.scores.detach())

    @cached_property
    def _keys(self) -> Tensor:
        keys = -self._scores
        return sort_values(keys if self.full else keys.masked_fill_(~self.lists.mask, float("inf")), in_place=True)

    @cached_property
    def _joins(self) -> Tensor:
        joins = self._keys[:, 1:] == self._keys[:, :-1]
        return joins if self.full else joins & self.mask[:, 1:]

    @cached_property
    def _index(self) -> Tensor:
        return torch.arange(self.lists.mask.shape[1], device=self.lists.mask.device).expand(self.lists.mask.shape)


def rank(lists: Lists, ties: str = "average") -> RankedLists:
    """Sort each list by score, best first.

    Args:
        lists: the lists to sort.
        ties: "average" keeps tied items as groups, "pessimistic" puts the less relevant of them first, "stable" keeps
            the order of the input.

    Example:
        >>> from rankwise.lists import pack
        >>> ranked = rank(pack([.2, .5, .2], [1, 0, 0]).blocks[0])
        >>> ranked.labels, ranked.start
        (tensor([[0, 1, 0]]), tensor([[0, 1, 1]]))
    """
    return RankedLists(lists, check_choice("ties", ties, TIE_POLICIES))


def narrow(values: Tensor) -> Tensor:
    """Return the values as float32 if it represents them exactly, on the CPU: it sorts several times faster there."""
    if not on_host(values):
        return values if values.is_floating_point() else widen(values)
    if not values.is_floating_point() and int(values.max() if values.numel() else 0) < 2**24:
        return values.float()
    values = values if values.is_floating_point() else values.double()
    single = values.float()
    return single if values.dtype != torch.float64 or bool((single == values).all()) else values


_Spans = tuple[Tensor, Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class Positives:
    """Ranks of the relevant items of Q lists, best first, padded to P, the largest number in a list.

    The rank of an item lies in the span of its tie group: from `begin` to `end` counted in items (in item weights, if
    there are any), from `hits_begin` to `hits_end` counted in relevant items. All numbers are float64.

    Attributes:
        begin, end, hits_begin, hits_end: (Q, P); 0, 1, 0, 1 in the padding.
        weights: (Q, P) item weights, 1 for every item where none are given, 0 in the padding.
        count: (Q,) relevant items of each list, size: (Q,) all items of each list (sums of weights).
        tied: (Q,) whether any relevant item is tied with another item.
    """

    begin: Tensor
    end: Tensor
    hits_begin: Tensor
    hits_end: Tensor
    weights: Tensor
    count: Tensor
    size: Tensor
    tied: Tensor


def locate(keys: Tensor, own: Tensor, valid: Tensor, size: Tensor, *, pessimistic: bool) -> Positives:
    """Compute the ranks of the relevant items by binary search among all items; only scores have to be sorted.

    Args:
        keys: (Q, L) negated scores of all items, ascending, inf in the padding.
        own: (Q, P) negated scores of the relevant items, ascending, inf in the padding.
        valid: (Q, P) False in the padding of `own`.
        size: (Q,) number of items.
        pessimistic: whether relevant items come last in their tie group.
    """
    index = torch.arange(own.shape[1], device=own.device).expand(own.shape)
    begin, hits_begin = _search(keys, own, right=False), index
    end, hits_end = begin + 1, index + 1
    equal = (keys.gather(1, end.clamp_max(keys.shape[1] - 1)) == own) & (end < keys.shape[1]) & valid
    tied = equal.any(1)
    if bool(tied.any()):
        some = slice(None) if bool(tied.all()) else tied
        some_end, some_hits = _search(keys[some], own[some], right=True), _search(own[some], own[some], right=True)
        if pessimistic:
            begin[some] = some_end - some_hits + index[some]
            end = begin + 1
        else:
            end[some], hits_end[some] = some_end, some_hits
            hits_begin = hits_begin.clone()
            hits_begin[some] = _search(own[some], own[some], right=False)
    spans = _padded(valid, begin.double(), end.double(), hits_begin.double(), hits_end.double())
    return Positives(*spans, valid.double(), valid.sum(1).double(), size.double(), tied)


def locate_dense(relevant: Tensor, weights: Tensor, start: Tensor, end: Tensor) -> Positives:
    """Compute the ranks of the relevant items of sorted lists from masks, weights and tie group bounds, (Q, L) each."""
    index, valid = compact(relevant)
    own_start, own_end = start.gather(1, index), end.gather(1, index)
    own_weights = weights.gather(1, index) * valid
    items, hits = pad(weights.cumsum(1), (1, 0)), pad((weights * relevant).cumsum(1), (1, 0))
    spans = _padded(
        valid, items.gather(1, own_start), items.gather(1, own_end), hits.gather(1, own_start), hits.gather(1, own_end)
    )
    return Positives(*spans, own_weights, hits[:, -1], items[:, -1], (own_end - own_start > 1).any(1))


def _search(keys: Tensor, own: Tensor, *, right: bool) -> Tensor:
    if len(keys) == 1 and on_host(keys):
        # numpy exploits that the searched values are sorted: several times faster for one long list.
        index = np.searchsorted(keys[0].numpy(), own[0].numpy(), side="right" if right else "left")
        return torch.from_numpy(index)[None]
    return torch.searchsorted(keys, own, right=right)


def _padded(valid: Tensor, begin: Tensor, end: Tensor, hits_begin: Tensor, hits_end: Tensor) -> _Spans:
    if bool(valid.all()):
        return begin, end, hits_begin, hits_end
    padding = ~valid
    begin, hits_begin = (values.masked_fill(padding, 0) for values in (begin, hits_begin))
    end, hits_end = (values.masked_fill(padding, 1) for values in (end, hits_end))
    return begin, end, hits_begin, hits_end
