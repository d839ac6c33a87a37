"""Ranks of the relevant items of each list: all that a metric of binary labels needs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from rankwise.lists import compact

_Spans = tuple[Tensor, Tensor, Tensor, Tensor]

__all__ = ["Positives", "locate", "locate_dense"]


@dataclass(frozen=True)
class Positives:
    """The relevant items of Q lists in order of score, best first, padded to the P of the list with the most.

    An item stands somewhere in the span of its tie group: from `begin` to `end` counted in items (in item weights,
    where there are any), from `hits_begin` to `hits_end` counted in relevant items. All numbers are float64.

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


def locate(keys: Tensor, own: Tensor, valid: Tensor, size: Tensor, *, pessimistic: bool = False) -> Positives:
    """Find the relevant items among all by binary search; nothing but values has to be sorted.

    Args:
        keys: (Q, L) negated scores of all items, ascending, infinite where there is no item.
        own: (Q, P) those of the relevant items, ascending, infinite where there is none.
        valid: (Q, P) where there is a relevant item.
        size: (Q,) number of items.
        pessimistic: whether relevant items stand behind the others of their tie group.
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
    """The same from sorted lists: what is relevant, what it weighs, and the bounds of its tie group, (Q, L) each."""
    index, valid = compact(relevant)
    own_start, own_end = start.gather(1, index), end.gather(1, index)
    own_weights = weights.gather(1, index) * valid
    items, hits = pad(weights.cumsum(1), (1, 0)), pad((weights * relevant).cumsum(1), (1, 0))
    spans = _padded(
        valid, items.gather(1, own_start), items.gather(1, own_end), hits.gather(1, own_start), hits.gather(1, own_end)
    )
    return Positives(*spans, own_weights, hits[:, -1], items[:, -1], (own_end - own_start > 1).any(1))


def _search(keys: Tensor, own: Tensor, *, right: bool) -> Tensor:
    if len(keys) == 1 and keys.device.type == "cpu":
        # numpy makes use of the needles being in order, which one long list repays several times over.
        index = np.searchsorted(keys[0].numpy(), own[0].numpy(), side="right" if right else "left")
        return torch.from_numpy(index)[None]
    return torch.searchsorted(keys, own, right=right)


def _padded(valid: Tensor, begin: Tensor, end: Tensor, hits_begin: Tensor, hits_end: Tensor) -> _Spans:
    if bool(valid.all()):
        return begin, end, hits_begin, hits_end
    hole = ~valid
    begin, hits_begin = (values.masked_fill(hole, 0) for values in (begin, hits_begin))
    end, hits_end = (values.masked_fill(hole, 1) for values in (end, hits_end))
    return begin, end, hits_begin, hits_end
