"""Losses of whole lists, learned from a sample of their items: statistics, samples, moving averages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import torch
from torch import Tensor

from rankwise.checks import check_choice, check_ids, check_labels, check_moved, check_same_shape, check_tensor, when
from rankwise.estimators import PairAverages
from rankwise.gains import Gain, gain_function
from rankwise.lists import Lists, PackedLists, count, find_chosen, surely_all
from rankwise.losses.base import ListLoss
from rankwise.losses.gradients import first_order_only
from rankwise.metrics._ndcg import ideal_dcg
from rankwise.modes import ExactModule

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
    """For every relevant item: an outer function of an inner sum over all items of its list.

    Without `statistics` the batch holds whole lists: inner sums are exact and nothing is remembered. With them the
    batch holds a sample of each list, an inner sum is an estimate, and a moving average of the estimates, kept for each
    relevant item of each list, takes its place: the value is the outer function there, the gradient its slope there
    times the gradient of the estimate. Such a loss needs `query_ids` and `sample_ids` at every call.

    A subclass says what the inner sum and the outer function are.

    Args:
        statistics: of the lists of the training data, or None.
        gain, update_rate, self_weight, lists, empty, reduction: see `NDCGLoss`.
        k: cutoff of the ideal DCG.
        space: "log" if inner sums are given as logarithms, else "linear".
    """

    label_kind = "grades"
    state_by_list = True

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
        """The sum over all items of the list, or its logarithm, for each relevant item: (Q, A), with gradient."""
        raise NotImplementedError

    def outer(self, lists: Lists, sample: Sample, inner: Tensor, group_ids: Tensor | None) -> Tensor:
        """The value of each list (Q,) from the inner sums of its relevant items."""
        raise NotImplementedError

    def per_list(self, packed: PackedLists, group_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        if self.averages is not None and any(block.sample_ids is None for block in packed.blocks):
            raise ValueError(
                "sample_ids: expected the id of every item, because the loss remembers an average for each relevant "
                "one; pass them, or take update_rate=1 and do without a memory, got None"
            )
        totals = None if self.totals is None else self.totals(packed.ids)
        samples = [self._sample(packed, block, totals) for block in packed.blocks]
        inner = [self.inner(block, sample) for block, sample in zip(packed.blocks, samples, strict=True)]
        if self.averages is not None and group_ids is not None:
            inner = self._averaged(self.averages, packed, samples, inner, group_ids)
            for sums in inner:
                first_order_only(sums, type(self).__name__, "its gradient holds the remembered averages fixed")
        values = [
            self.outer(block, sample, sums, None if group_ids is None else packed.of_block(group_ids, block))
            for block, sample, sums in zip(packed.blocks, samples, inner, strict=True)
        ]
        return packed.join(values), packed.join([sample.valid for sample in samples])

    def _sample(self, packed: PackedLists, lists: Lists, totals: Totals | None) -> Sample:
        # With a gain known by a word all grades above 0 gain, and no others.
        chosen = lists.labels > 0 if isinstance(self.gain, str) else self._gain(lists.labels) > 0
        chosen = chosen & lists.mask
        if totals is None:
            return whole_lists(lists, chosen, self._gain, self.k)
        of_lists = Totals(*(packed.of_block(t, lists) for t in totals))
        return sample_of_lists(lists, chosen, self._gain, of_lists, self.self_weight)

    def _averaged(
        self,
        averages: PairAverages,
        packed: PackedLists,
        samples: list[Sample],
        inner: list[Tensor],
        group_ids: Tensor,
    ) -> list[Tensor]:
        """The averages in the place of the observed sums, with a gradient as if they were a function of the sums."""
        counted = [(sample.mask & sample.valid[:, None]).flatten() for sample in samples]
        pairs = []
        for block, sample in zip(packed.blocks, samples, strict=True):
            assert block.sample_ids is not None
            items = block.sample_ids.gather(1, sample.places)
            lists = packed.of_block(group_ids, block)[:, None].expand_as(items)
            pairs.append(torch.stack([lists.flatten(), items.flatten()], 1))
        observed, chosen = _joined([sums.flatten() for sums in inner]), _joined(counted)
        means = averages(_joined(pairs), observed, None if surely_all(chosen) else chosen)
        # Sums that do not count stay as they are.
        attached = torch.where(chosen, self.attach(means, observed), observed)
        parts = attached.split([sums.numel() for sums in inner])
        return [part.view_as(sums) for part, sums in zip(parts, inner, strict=True)]

    def attach(self, mean: Tensor, observed: Tensor) -> Tensor:
        """The value of the mean with the gradient of the observed sum."""
        return mean + (observed - observed.detach())


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


@dataclass(frozen=True)
class Sample:
    """The relevant items of Q lists, and what the sampled items stand for.

    A sum over all items of a list, seen from its relevant item i, is estimated by

        sum_j stands_for_j value_ij + itself_i value_ii.

    Attributes:
        places, mask: (Q, A) where the relevant items stand; gains: (Q, A) what they are worth, 0 in the padding; each
            counts as many times as the relevant items it stands for.
        stands_for: (Q, L), 0 outside the lists; None when every item stands for itself.
        itself: (Q, A) or None when there is nothing to correct.
        size: (Q,) items of the whole lists; ideal: (Q,) their ideal DCG, at least tiny.
        valid: (Q,) lists that hold something to rank: not all gains are the same.
        padding: `mask`, or None when all lists have as many relevant items.
    """

    places: Tensor
    mask: Tensor
    gains: Tensor
    stands_for: Tensor | None
    itself: Tensor | None
    size: Tensor
    ideal: Tensor
    valid: Tensor

    @cached_property
    def padding(self) -> Tensor | None:
        return None if surely_all(self.mask) else self.mask


def whole_lists(lists: Lists, chosen: Tensor, gain: Callable[[Tensor], Tensor], k: int | None) -> Sample:
    """When the batch holds every item of its lists; item weights are scaled to a mean of 1 in each list.

    Args:
        lists: the lists; chosen: (Q, L) which of their items are relevant.
        gain: of grades; k: cutoff of the ideal DCG.
    """
    weights = None if lists.weights is None else _mean_one(lists.weights.to(lists.scores.dtype), lists.mask)
    places, mask = find_chosen(chosen)
    own = gain(lists.labels.gather(1, places)) * mask
    own_weights = None if weights is None else weights.gather(1, places) * mask
    totals = Totals(lists.size, count(mask), ideal_dcg(own, weights=own_weights, k=k))
    valid = _something_to_rank(own, mask, totals.relevant, totals.size)
    counted = own if own_weights is None else own * own_weights
    return _sample(lists.scores.dtype, places, mask, counted, weights, None, totals, valid)


def sample_of_lists(
    lists: Lists, chosen: Tensor, gain: Callable[[Tensor], Tensor], totals: Totals, self_weight: str
) -> Sample:
    """When the batch holds some relevant and some irrelevant items of lists with these totals."""
    dtype = lists.scores.dtype
    places, mask = find_chosen(chosen)
    counts = count(mask), lists.size
    _check_counts(counts[0], counts[1] - counts[0], totals)
    relevant, drawn = (number.to(dtype) for number in counts)
    irrelevant = drawn - relevant
    size, all_relevant = totals.size.to(dtype), totals.relevant.to(dtype)
    weights = None if lists.full else lists.mask.to(dtype)
    if lists.weights is not None:
        given = lists.weights.to(dtype)
        weights = torch.where(chosen, _mean_one(given, chosen), _mean_one(given, lists.mask ^ chosen))
    itself: Tensor | None = None
    if self_weight == "naive":
        stands_for = (size / drawn.clamp_min(1))[:, None].expand_as(lists.mask)
    else:
        own = torch.ones_like(size) if self_weight == "exact" else size / drawn.clamp_min(1)
        # All but the item itself, split as the whole list is; a kind of which nothing else was drawn cannot speak.
        share = (all_relevant - 1).clamp_min(0) / (size - 1).clamp_min(1)
        share = torch.where(irrelevant > 0, torch.where(relevant > 1, share, 0), 1)
        of_relevant = torch.where(relevant > 1, (size - own) * share / (relevant - 1).clamp_min(1), own)
        of_irrelevant = (size - own) * (1 - share) / irrelevant.clamp_min(1)
        stands_for = torch.where(chosen, of_relevant[:, None], of_irrelevant[:, None])
    if weights is not None:
        stands_for = stands_for * weights
    if self_weight != "naive":
        itself = own[:, None] - stands_for.gather(1, places)
    own_gains = gain(lists.labels.gather(1, places)) * mask
    valid = _something_to_rank(own_gains, mask, *counts)
    counted = own_gains * (all_relevant / relevant.clamp_min(1))[:, None]
    if weights is not None:
        counted = counted * weights.gather(1, places)
    return _sample(dtype, places, mask, counted, stands_for, itself, totals, valid)


def _sample(
    dtype: torch.dtype,
    places: Tensor,
    mask: Tensor,
    gains: Tensor,
    stands_for: Tensor | None,
    itself: Tensor | None,
    totals: Totals,
    valid: Tensor,
) -> Sample:
    ideal = totals.ideal.clamp_min(torch.finfo(dtype).tiny).to(dtype)
    return Sample(places, mask, gains.to(dtype), stands_for, itself, totals.size, ideal, valid & (totals.ideal > 0))


def _something_to_rank(gains: Tensor, mask: Tensor, relevant: Tensor, size: Tensor) -> Tensor:
    """(Q,) lists of a relevant item and another that gains less, from the gains (Q, A) of the relevant ones."""
    if not mask.shape[1]:
        return torch.zeros_like(size, dtype=torch.bool)
    others = relevant < size
    if not surely_all(others):
        others |= ((gains < gains.amax(1, keepdim=True)) & mask).any(1)
    return (relevant > 0) & others


def _mean_one(weights: Tensor, mask: Tensor) -> Tensor:
    """Weights of each list divided by their mean over `mask`, 0 outside it."""
    weights = weights * mask
    mean = weights.sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp_min(1)
    return weights / mean.clamp_min(torch.finfo(weights.dtype).tiny)


def _check_counts(relevant: Tensor, irrelevant: Tensor, totals: Totals) -> None:
    too_many = torch.maximum(relevant - totals.relevant, irrelevant + totals.relevant - totals.size) > 0
    when(too_many.any(), partial(_refuse_counts, relevant, irrelevant, totals))


def _refuse_counts(relevant: Tensor, irrelevant: Tensor, totals: Totals) -> None:
    for name, drawn, there in (
        ("relevant", relevant, totals.relevant),
        ("irrelevant", irrelevant, totals.size - totals.relevant),
    ):
        wrong = drawn > there
        if bool(wrong.any()):
            raise ValueError(
                f"labels: expected at most the {int(there[wrong][0])} {name} items that the statistics count in a "
                f"list, got {int(drawn[wrong][0])} ({int(wrong.sum())} such lists)"
            )


class ListStatistics:
    """How many items of which grade every list of the training data holds; built once, from all labels.

    Args:
        labels: (N,) grades of 0 or more.
        query_ids: (N,) the list each item belongs to, any integers.
        size: how many items every list holds in all, those not named in `labels` being irrelevant. For data that names
            only what is relevant (the purchases of a user out of all products). None: `labels` names all items.

    Attributes:
        query_ids: (G,) the lists, in rising order.
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
        places = torch.arange(len(rows)) - torch.searchsorted(rows, rows)
        width = int(places.max()) + 1
        self.grades = torch.zeros(len(self.query_ids), width, dtype=torch.float64)
        self.counts = torch.zeros(len(self.query_ids), width, dtype=torch.int64)
        self.grades[rows, places], self.counts[rows, places] = levels[cells % len(levels)], counts
        if size is not None:
            self._fill_up(size)

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
    """Of Q lists as a whole: size, relevant: (Q,) numbers of items; ideal: (Q,) their ideal DCG."""

    size: Tensor
    relevant: Tensor
    ideal: Tensor


class ListTotals(ExactModule):
    """The totals of every list by its id, as buffers."""

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
        """Of the lists `query_ids` (Q,)."""
        if query_ids is None:
            raise ValueError("query_ids: expected the id of each list, because statistics of the lists were given")
        check_moved(self.ids, query_ids.device)
        place = torch.searchsorted(self.ids, query_ids).clamp_max(len(self.ids) - 1)
        unknown = self.ids[place] != query_ids
        when(unknown.any(), partial(_refuse_lists, query_ids, unknown))
        return Totals(self.size[place], self.relevant[place], self.ideal[place])


def _refuse_lists(query_ids: Tensor, unknown: Tensor) -> None:
    raise ValueError(
        f"query_ids: expected lists that the statistics know, got {int(query_ids[unknown][0])} "
        f"({int(unknown.sum())} of {len(query_ids)} lists are unknown)"
    )
