"""Losses that are a function of a sum over a whole list, learned from a few of its items."""

from __future__ import annotations

import torch
from torch import Tensor

from rankwise.checks import check_choice
from rankwise.estimators import PairAverages
from rankwise.gains import Gain, gain_function
from rankwise.lists import Lists, PackedLists, every
from rankwise.losses.base import ListLoss
from rankwise.losses.gradients import first_order_only
from rankwise.losses.samples import SELF_WEIGHTS, Sample, sample_of_lists, whole_lists
from rankwise.losses.statistics import ListStatistics, ListTotals, Totals

__all__ = ["CompositionalLoss"]


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
        counted = [_counted(sample) for sample in samples]
        pairs = []
        for block, sample, mask in zip(packed.blocks, samples, counted, strict=True):
            assert block.sample_ids is not None
            items = block.sample_ids.gather(1, sample.places)
            lists = packed.of_block(group_ids, block)[:, None].expand_as(items)
            pairs.append(torch.stack([_chosen(lists, mask), _chosen(items, mask)], 1))
        observed = [_chosen(sums, mask) for sums, mask in zip(inner, counted, strict=True)]
        means = averages(_joined(pairs), _joined(observed)).split([len(part) for part in observed])
        attached = [self.attach(mean, part) for mean, part in zip(means, observed, strict=True)]
        return [
            values.view_as(sums) if mask is None else sums.masked_scatter(mask, values)
            for sums, mask, values in zip(inner, counted, attached, strict=True)
        ]

    def attach(self, mean: Tensor, observed: Tensor) -> Tensor:
        """The value of the mean with the gradient of the observed sum."""
        return mean + (observed - observed.detach())


def _counted(sample: Sample) -> Tensor | None:
    """(Q, A) the relevant items of lists that count; None when that is all."""
    counted = sample.mask & sample.valid[:, None]
    return None if every(counted) else counted


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _chosen(values: Tensor, mask: Tensor | None) -> Tensor:
    return values.flatten() if mask is None else values[mask]
