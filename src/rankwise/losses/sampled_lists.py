"""Losses of whole lists, estimated from samples of their items by statistics and moving averages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import torch
from torch import Tensor

from rankwise.checks import (
    ExactModule,
    check_choice,
    check_ids,
    check_labels,
    check_later,
    check_moved,
    check_same_shape,
    check_tensor,
    first_order_only,
)
from rankwise.estimators import PairAverages
from rankwise.lists import Lists, PackedLists, count, find_chosen, surely_all, take
from rankwise.losses.base import ListLoss
from rankwise.metrics._ndcg import ideal_dcg
from rankwise.surrogates import Gain, gain_function

__all__ = [
    "SELF_WEIGHTS",
    "CompositionalLoss",
    "ListStatistics",
    "ListTotals",
    "Sample",
    "Totals",
    "sample_of_lists",
    "whole_lists",
]

SELF_WEIGHTS = ("exact", "sample", "naive")


class CompositionalLoss(ListLoss):
    """Base class of losses that are an outer function of an inner sum over all items of a list, per relevant item.

    Without `statistics` the batch holds whole lists: inner sums are exact and no state is kept. With them the batch
    holds a sample of each list, and inner sums are estimates. The loss keeps a moving average of them for each relevant
    item of each list, and evaluates the outer function at these averages. Its gradient is the slope of the outer
    function there times the gradient of the estimate. Such a loss needs `query_ids` and `sample_ids` in every call.

    A subclass defines the inner sum and the outer function.

    Args:
        statistics: statistics of the lists of the training data, or None.
        gain, update_rate, self_weight, lists, empty, reduction: see `NDCGLoss`.
        k: cutoff of the ideal DCG.
        space: "log" if inner sums are given as logarithms, else "linear".
    """

    label_kind = "grades"
    state_by_list = True
    # Whether the outer function divides by the ideal DCG.
    divides = True

    def __init__(
        self,
        statistics: ListStatistics | None,
        *,
        gain: Gain,
        update_rate: float,
        self_weight: str,
        lists: str,
        empty: str,
        reduction: str,
        k: int | None = None,
        space: str = "linear",
    ) -> None:
        super().__init__(lists=lists, empty=empty, reduction=reduction)
        if statistics is not None and not isinstance(statistics, ListStatistics):
            raise TypeError(f"statistics: expected ListStatistics or None, got {type(statistics).__name__}")
        self.gain, self.k = gain, k
        self._gain = gain_function(gain)
        self.self_weight = check_choice("self_weight", self_weight, SELF_WEIGHTS)
        averages = PairAverages(update_rate, space)
        self.totals = None if statistics is None else ListTotals(statistics, gain, k)
        self.averages = None if statistics is None or averages.update_rate == 1 else averages

    def inner(self, lists: Lists, sample: Sample) -> Tensor:
        """Compute the sum over all items of the list, or its logarithm, for each relevant item: (Q, A)."""
        raise NotImplementedError

    def outer(self, lists: Lists, sample: Sample, inner: Tensor, group_ids: Tensor | None) -> Tensor:
        """Compute the value of each list (Q,) from the inner sums of its relevant items."""
        raise NotImplementedError

    def per_list(self, packed: PackedLists, group_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        if self.averages is not None and any(block.sample_ids is None for block in packed.blocks):
            raise ValueError(
                "sample_ids: expected the id of every item, because the loss keeps a moving average for each relevant "
                "one; pass them, or set update_rate=1 to keep none, got None"
            )
        totals = None if self.totals is None else self.totals(packed.ids)
        samples = [self._sample(packed, block, totals) for block in packed.blocks]
        inner = [self.inner(block, sample) for block, sample in zip(packed.blocks, samples, strict=True)]
        if self.averages is not None and group_ids is not None:
            inner = self._averaged(self.averages, packed, samples, inner, group_ids)
            for sums in inner:
                first_order_only(sums, type(self).__name__, "its gradient holds the moving averages fixed")
        values = [
            self.outer(block, sample, sums, None if group_ids is None else packed.select_block(group_ids, block))
            for block, sample, sums in zip(packed.blocks, samples, inner, strict=True)
        ]
        return packed.join(values), packed.join([sample.valid for sample in samples])

    def _sample(self, packed: PackedLists, lists: Lists, totals: Totals | None) -> Sample:
        if totals is None:
            key = ("sample", self.gain, self.k, self.divides, lists.scores.dtype)
            if key not in lists.constants:
                lists.constants[key] = whole_lists(
                    lists, self._relevant(lists), self._gain, self.k, divides=self.divides
                )
            sample: Sample = lists.constants[key]
            return sample
        chosen = self._relevant(lists)
        of_lists = Totals(*(packed.select_block(t, lists) for t in totals))
        return sample_of_lists(lists, chosen, self._gain, of_lists, self.self_weight)

    def _relevant(self, lists: Lists) -> Tensor:
        """Return the mask (Q, L) of the items with a gain."""
        # With a named gain, exactly the grades above 0 have a gain.
        chosen = lists.labels > 0 if isinstance(self.gain, str) else self._gain(lists.labels) > 0
        return chosen if lists.full else chosen & lists.mask

    def _averaged(
        self,
        averages: PairAverages,
        packed: PackedLists,
        samples: list[Sample],
        inner: list[Tensor],
        group_ids: Tensor,
    ) -> list[Tensor]:
        """Replace the observed sums by their moving averages, attached to the graph of the sums by `attach`."""
        counted = [(sample.mask & sample.valid[:, None]).flatten() for sample in samples]
        pairs = []
        for block, sample in zip(packed.blocks, samples, strict=True):
            assert block.sample_ids is not None
            items = take(block.sample_ids, sample.index)
            lists = packed.select_block(group_ids, block)[:, None].expand_as(items)
            pairs.append(torch.stack([lists, items], 2).view(-1, 2))
        observed, chosen = _joined([sums.flatten() for sums in inner]), _joined(counted)
        means = averages(_joined(pairs), observed, None if surely_all(chosen) else chosen)
        # Sums that do not count are unchanged.
        attached = self.attach(torch.where(chosen, means, observed.detach()), observed)
        parts = [attached] if len(inner) == 1 else attached.split([sums.numel() for sums in inner])
        return [part.view_as(sums) for part, sums in zip(parts, inner, strict=True)]

    def attach(self, mean: Tensor, observed: Tensor) -> Tensor:
        """Return the value of the mean with the gradient of the observed sum."""
        return mean + (observed - observed.detach())


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


@dataclass(frozen=True)
class Sample:
    """Relevant items of Q lists, and the number of list items that each sampled item represents.

    For a relevant item i, a sum over all items of its list is estimated by

        sum_j represented_j value_ij + self_correction_i value_ii.

    Attributes:
        index, mask: (Q, A) indices of the relevant items and their mask, see `find_chosen`.
        gains: (Q, A) their gains times the number of relevant items that each represents, 0 in the padding.
        represented: (Q, L) number of list items that each item represents, 0 in the padding; None when it is 1 for all.
        self_correction: (Q, A), or None when it is 0.
        size: (Q,) items of the whole lists; ideal: (Q,) their ideal DCG (see `whole_lists`), at least the smallest
            normal number.
        valid: (Q,) True for lists with at least two different gains.
        padding: `mask`, or None when all lists have equally many relevant items.
    """

    index: Tensor | None
    mask: Tensor
    gains: Tensor
    represented: Tensor | None
    self_correction: Tensor | None
    size: Tensor
    ideal: Tensor
    valid: Tensor

    @cached_property
    def padding(self) -> Tensor | None:
        return None if surely_all(self.mask) else self.mask


def whole_lists(
    lists: Lists, chosen: Tensor, gain: Callable[[Tensor], Tensor], k: int | None, *, divides: bool
) -> Sample:
    """Return the sample for whole lists, in which every item represents itself.

    Item weights are scaled to a mean of 1 in each list.

    Args:
        lists: the lists; chosen: (Q, L) mask of their relevant items.
        gain: function of grades; k: cutoff of the ideal DCG.
        divides: whether the ideal DCG is needed; if not, the gains are summed instead.
    """
    weights = None if lists.weights is None else _mean_one(lists.weights.to(lists.scores.dtype), lists.mask)
    index, mask = find_chosen(chosen)
    sizes = count(mask), lists.size
    own, valid = _gains_and_valid(lists, gain, index, mask, *sizes)
    own_weights = None if weights is None else take(weights, index) * mask
    counted = own if own_weights is None else own * own_weights
    ideal = ideal_dcg(own, weights=own_weights, k=k) if divides else counted.sum(1)
    totals = Totals(sizes[1], sizes[0], ideal)
    return _sample(lists.scores.dtype, index, mask, counted, weights, None, totals, valid)


def sample_of_lists(
    lists: Lists, chosen: Tensor, gain: Callable[[Tensor], Tensor], totals: Totals, self_weight: str
) -> Sample:
    """Return the sample for a batch of some relevant and irrelevant items of lists with these totals."""
    dtype = lists.scores.dtype
    index, mask = find_chosen(chosen)
    counts = count(mask), lists.size
    _check_counts(counts[0], counts[1] - counts[0], totals)
    relevant, drawn = counts[0].to(dtype), lists.mask.shape[1] if lists.full else lists.size.to(dtype)
    irrelevant, most = drawn - relevant, max(1, drawn) if isinstance(drawn, int) else drawn.clamp_min(1)
    size, all_relevant = totals.size.to(dtype), totals.relevant.to(dtype)
    weights = None if lists.full else lists.mask.to(dtype)
    if lists.weights is not None:
        given = lists.weights.to(dtype)
        weights = torch.where(chosen, _mean_one(given, chosen), _mean_one(given, lists.mask ^ chosen))
    self_correction: Tensor | None = None
    if self_weight == "naive":
        represented = (size / most)[:, None].expand_as(lists.mask)
    else:
        own = torch.ones_like(size) if self_weight == "exact" else size / most
        # The rest of the list, split into relevant and irrelevant. A stratum with no other sampled item gets weight 0.
        rest, others = size - own, relevant - 1
        expected = rest * (all_relevant - 1) / (size - 1).clamp_min(1)
        of_others = torch.where(irrelevant > 0, expected, rest) * (others > 0)
        of_relevant = torch.where(others > 0, of_others / others.clamp_min(1), own)
        of_irrelevant = (rest - of_others) / irrelevant.clamp_min(1)
        represented = torch.where(chosen, of_relevant[:, None], of_irrelevant[:, None])
    if weights is not None:
        represented = represented * weights
    if self_weight != "naive":
        self_correction = own[:, None] - take(represented, index)
    own_gains, valid = _gains_and_valid(lists, gain, index, mask, *counts)
    counted = own_gains * (all_relevant / relevant.clamp_min(1))[:, None]
    if weights is not None:
        counted = counted * take(weights, index)
    return _sample(dtype, index, mask, counted, represented, self_correction, totals, valid)


def _sample(
    dtype: torch.dtype,
    index: Tensor | None,
    mask: Tensor,
    gains: Tensor,
    represented: Tensor | None,
    self_correction: Tensor | None,
    totals: Totals,
    valid: Tensor,
) -> Sample:
    ideal = totals.ideal.clamp_min(torch.finfo(dtype).tiny).to(dtype)
    valid = valid & (totals.ideal > 0)
    return Sample(index, mask, gains.to(dtype), represented, self_correction, totals.size, ideal, valid)


def _gains_and_valid(
    lists: Lists, gain: Callable[[Tensor], Tensor], index: Tensor | None, mask: Tensor, relevant: Tensor, size: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the gains (Q, A) of the relevant items, 0 in the padding, and the lists (Q,) with two different gains."""
    gains = gain(take(lists.labels, index))
    if index is None and lists.full and gains.shape[1]:
        lowest, highest = torch.aminmax(gains, dim=1)
        return gains, lowest < highest
    gains = gains * mask
    return gains, _has_unequal_gains(gains, mask, relevant, size)


def _has_unequal_gains(gains: Tensor, mask: Tensor, relevant: Tensor, size: Tensor) -> Tensor:
    """Return which lists (Q,) have a relevant item and one of smaller gain, from the gains (Q, A) of relevant items."""
    if not mask.shape[1]:
        return torch.zeros_like(size, dtype=torch.bool)
    others = relevant < size
    if not surely_all(others):
        others |= ((gains < gains.amax(1, keepdim=True)) & mask).any(1)
    return (relevant > 0) & others


def _mean_one(weights: Tensor, mask: Tensor) -> Tensor:
    """Divide the weights of each list by their mean over `mask`; set them to 0 outside it."""
    weights = weights * mask
    mean = weights.sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp_min(1)
    return weights / mean.clamp_min(torch.finfo(weights.dtype).tiny)


def _check_counts(relevant: Tensor, irrelevant: Tensor, totals: Totals) -> None:
    too_many = (relevant > totals.relevant) | (irrelevant > totals.size - totals.relevant)
    check_later(too_many, partial(_refuse_counts, relevant, irrelevant, totals))


def _refuse_counts(relevant: Tensor, irrelevant: Tensor, totals: Totals) -> None:
    for name, drawn, available in (
        ("relevant", relevant, totals.relevant),
        ("irrelevant", irrelevant, totals.size - totals.relevant),
    ):
        wrong = drawn > available
        if bool(wrong.any()):
            raise ValueError(
                f"labels: expected at most the {int(available[wrong][0])} {name} items that the statistics count in a "
                f"list, got {int(drawn[wrong][0])} ({int(wrong.sum())} such lists)"
            )


class ListStatistics:
    """Number of items of each grade in every list of the training data; built once, from all labels.

    Args:
        labels: (N,) grades of 0 or more.
        query_ids: (N,) id of the list of each item, any integers.
        size: number of items of every list, including irrelevant ones that `labels` leaves out; for data of relevant
            items only (the purchases of a user out of all products). None: `labels` has all items.

    Attributes:
        query_ids: (G,) ids of the lists, ascending.
        grades, counts: (G, D) the different grades of each list, and how often each occurs (0 in the padding).

    Example:
        >>> statistics = ListStatistics([0, 2, 0, 1], query_ids=[7, 7, 7, 3])
        >>> statistics.query_ids, statistics.counts
        (tensor([3, 7]), tensor([[1, 0],
                [2, 1]]))
    """

    def __init__(self, labels: object, query_ids: object, *, size: int | None = None) -> None:
        grades = check_tensor("labels", labels).detach().cpu()
        if grades.ndim != 1 or not len(grades):
            raise ValueError(f"labels: expected shape (N,) with at least one item, got {tuple(grades.shape)}")
        ids = check_ids("query_ids", query_ids).cpu()
        check_same_shape("query_ids", ids, "labels", grades.shape)
        check_labels(grades, "grades")
        self.query_ids, row = ids.unique(return_inverse=True)
        levels, level = grades.double().unique(return_inverse=True)
        cells, counts = (row * len(levels) + level).unique(return_counts=True)
        rows = cells // len(levels)
        columns = torch.arange(len(rows)) - torch.searchsorted(rows, rows)
        width = int(columns.max()) + 1
        self.grades = torch.zeros(len(self.query_ids), width, dtype=torch.float64)
        self.counts = torch.zeros(len(self.query_ids), width, dtype=torch.int64)
        self.grades[rows, columns], self.counts[rows, columns] = levels[cells % len(levels)], counts
        if size is not None:
            self._fill_up(size)

    @classmethod
    def of_counts(cls, counts: Tensor, *, size: int) -> ListStatistics:
        """Return the statistics of lists 0, 1, ... of `size` items, of which `counts` (Q,) have grade 1 and others 0.

        Example:
            >>> ListStatistics.of_counts(torch.tensor([2, 0, 1]), size=5).counts
            tensor([[2, 3],
                    [1, 4]])
        """
        lists = counts.nonzero().squeeze(1)
        made = cls(torch.ones(len(lists)), lists)
        made.counts = counts[lists][:, None]
        made._fill_up(size)
        return made

    def __len__(self) -> int:
        return len(self.query_ids)

    def __repr__(self) -> str:
        return f"ListStatistics(lists={len(self)}, items={int(self.counts.sum())})"

    def _fill_up(self, size: int) -> None:
        named = self.counts.sum(1)
        longest = int(named.max())
        if isinstance(size, bool) or not isinstance(size, int) or size < longest:
            raise ValueError(f"size: expected a whole number of at least {longest}, the longest list, got {size!r}")
        self.grades = torch.nn.functional.pad(self.grades, (0, 1))
        self.counts = torch.cat([self.counts, (size - named)[:, None]], 1)


class Totals(NamedTuple):
    """Totals of Q whole lists: size, relevant: (Q,) numbers of items; ideal: (Q,) ideal DCG."""

    size: Tensor
    relevant: Tensor
    ideal: Tensor


class ListTotals(ExactModule):
    """Totals of every list by its id, as buffers."""

    ids: Tensor
    size: Tensor
    relevant: Tensor
    ideal: Tensor

    def __init__(self, statistics: ListStatistics, gain: Gain, k: int | None) -> None:
        super().__init__()
        gains = gain_function(gain)(statistics.grades).masked_fill(statistics.counts == 0, 0)
        self.register_buffer("ids", statistics.query_ids.clone())
        self.register_buffer("size", statistics.counts.sum(1))
        self.register_buffer("relevant", (statistics.counts * (gains > 0)).sum(1))
        self.register_buffer("ideal", ideal_dcg(gains, weights=statistics.counts, k=k))

    def extra_repr(self) -> str:
        return f"lists={len(self.ids)}"

    def forward(self, query_ids: Tensor | None) -> Totals:
        """Return the totals of the lists `query_ids` (Q,)."""
        if query_ids is None:
            raise ValueError("query_ids: expected the id of each list, because statistics of the lists were given")
        check_moved(self.ids, query_ids.device)
        index = torch.searchsorted(self.ids, query_ids).clamp_max(len(self.ids) - 1)
        unknown = self.ids[index] != query_ids
        check_later(unknown, partial(_refuse_lists, query_ids, unknown))
        return Totals(self.size[index], self.relevant[index], self.ideal[index])


def _refuse_lists(query_ids: Tensor, unknown: Tensor) -> None:
    raise ValueError(
        f"query_ids: expected lists that the statistics know, got {int(query_ids[unknown][0])} "
        f"({int(unknown.sum())} of {len(query_ids)} lists are unknown)"
    )
