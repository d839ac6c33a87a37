"""Positives and negatives of a user's lists, batches drawn from them, and the exact values that AP losses estimate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, isnan, zeros_like

from rankwise.checks import check_labels
from rankwise.lists import PackedLists, pack
from rankwise.losses import AUPRCLoss, ListLoss, Prior
from rankwise.metrics import average_precision, create_metric
from rankwise.metrics.metric import measure_lists

__all__ = ["BatchAP", "Batches", "ExactAUPRC", "Pools", "Steps", "make_pools", "tell_left_out"]


@dataclass(frozen=True)
class Batches:
    """One batch from each of Q lists: `scores`, `labels`, `mask`, all (Q, B)."""

    scores: Tensor
    labels: Tensor
    mask: Tensor


@dataclass(frozen=True)
class Pools:
    """Lists that have both kinds, their items in one row: list after list, of each the positives first.

    Attributes:
        scores, labels, list_of_item: (N,).
        counts: (Q, 2) positives and negatives of each list.
        left_out: lists without a positive or without a negative.
    """

    scores: Tensor
    labels: Tensor
    list_of_item: Tensor
    counts: Tensor
    left_out: int

    @property
    def size(self) -> int:
        return len(self.counts)

    @property
    def ids(self) -> Tensor:
        """Return the numbers of the lists, (Q,)."""
        return torch.arange(self.size)

    @property
    def priors(self) -> Tensor:
        """Return the share of positives in each list, (Q,)."""
        return self.counts[:, 0].double() / self.counts.sum(1)

    def error(self) -> float:
        """Return 1 - AP of the data, the mean over lists."""
        return 1 - float(average_precision(self.scores, self.labels, query_ids=self.list_of_item))

    def draw(self, positives: int, negatives: int, generator: torch.Generator) -> Batches:
        """Return a batch from each list, no item twice; a list that has fewer than asked for gives all of them."""
        segment = 2 * self.list_of_item + (self.labels == 0)
        order = torch.argsort(segment + torch.rand(len(segment), generator=generator, dtype=torch.float64))
        counts = self.counts.flatten()
        starts = (counts.cumsum(0) - counts).view(-1, 2)
        indices, masks = [], []
        for kind, wanted in enumerate((positives, negatives)):
            slots = torch.arange(wanted)
            mask = slots < self.counts[:, kind, None]
            indices.append(order[torch.where(mask, starts[:, kind, None] + slots, 0)])
            masks.append(mask)
        index, mask = torch.cat(indices, 1), torch.cat(masks, 1)
        labels = (torch.arange(index.shape[1]) < positives).long().expand_as(index)
        return Batches(self.scores[index].masked_fill(~mask, 0), labels, mask)


def tell_left_out(count: int) -> str:
    """Return the end of a sentence on lists that have no positive or no negative."""
    return f" ({count} list{'s' if count > 1 else ''} without both labels left out)" if count else ""


def make_pools(scores: object, labels: object, query_ids: object = None) -> Pools:
    """Return the lists of a caller; scores become float64.

    Example:
        >>> pools = make_pools([.1, .9, .4, .3], [0, 1, 1, 0], query_ids=[7, 7, 7, 2])
        >>> pools.scores, pools.counts, pools.left_out
        (tensor([0.9000, 0.4000, 0.1000], dtype=torch.float64), tensor([[2, 1]]), 1)
    """
    packed = pack(torch.as_tensor(scores, dtype=torch.float64), labels, query_ids=query_ids)
    parts = []
    for block in packed.blocks:
        check_labels(block.labels, "binary", block.mask)
        lists = block.positions[:, None].expand_as(block.mask)
        parts.append([t[block.mask] for t in (block.scores.detach(), block.labels.long(), lists)])
    every_score, every_label, every_list = (torch.cat(column) for column in zip(*parts, strict=True))
    counts = torch.stack([torch.bincount(every_list[every_label == kind], minlength=packed.size) for kind in (1, 0)], 1)
    usable = (counts > 0).all(1)
    if not bool(usable.any()):
        raise ValueError("labels: expected a list with both a 1 and a 0, got none")
    chosen = usable[every_list].nonzero().squeeze(1)
    number = usable.cumsum(0) - 1
    chosen = chosen[torch.argsort(2 * every_list[chosen] - every_label[chosen], stable=True)]
    return Pools(
        every_score[chosen],
        every_label[chosen],
        number[every_list[chosen]],
        counts[usable],
        int((~usable).sum()),
    )


class Steps:
    """Count steps of equal size and report the share done to a callback.

    Args:
        total: how many there are.
        on_progress: called after each with the share that is done, from 0 to 1.
    """

    def __init__(self, total: int, on_progress: Callable[[float], None] | None) -> None:
        self.total, self.count, self.on_progress = total, 0, on_progress

    def done(self) -> None:
        self.count += 1
        if self.on_progress is not None:
            self.on_progress(self.count / self.total)


class BatchAP(ListLoss):
    """One minus the average precision of what is in the batch: the plain AP loss. It has no gradient.

    Example:
        >>> import torch
        >>> BatchAP()(torch.tensor([.9, .8, .7, .6]), torch.tensor([1, 0, 1, 0]))
        tensor(0.1667, dtype=torch.float64)
    """

    def per_list(self, packed: PackedLists, group_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        values, _ = measure_lists(packed, [create_metric("ap")])
        return (1 - values["ap"]).nan_to_num(0.0), ~isnan(values["ap"])


class ExactAUPRC(AUPRCLoss):
    """The estimate of 1 - AUPRC that SOPRC makes from a batch, with counts instead of surrogates. It has no gradient.

    The mean over the positives i of `x / (1 + x)`, `x = (1 - prior) / prior * FPR_i / TPR_i`, FPR_i the share of the
    batch's negatives at or above i, TPR_i the share of positives above it, itself counted.

    Args:
        prior, recall, update_rate, reduction: see `AUPRCLoss`. With `prior="batch"` and `recall="batch"` it is one
            minus the average precision of the batch, where positives are not tied.

    Example:
        >>> import torch
        >>> exact = ExactAUPRC("batch", recall="batch")
        >>> exact(torch.tensor([.9, .8, .7, .6]), torch.tensor([1, 0, 1, 0]))
        tensor(0.1667)
    """

    def __init__(
        self,
        prior: float | str | Tensor | Prior,
        *,
        recall: str = "quantiles",
        update_rate: float = 0.1,
        reduction: str = "mean",
    ) -> None:
        super().__init__(prior, recall=recall, update_rate=update_rate, link="none", reduction=reduction)
        self.precision_surrogate = AtMostZero()
        self.recall_surrogate = BelowZero()


class AtMostZero:
    """1[x <= 0]."""

    pieces = None

    def value(self, x: Tensor) -> Tensor:
        return (x <= 0).to(x.dtype)

    def slope(self, x: Tensor) -> Tensor:
        return zeros_like(x)

    def curvature(self, x: Tensor) -> Tensor:
        return zeros_like(x)


class BelowZero(AtMostZero):
    """1[x < 0]."""

    def value(self, x: Tensor) -> Tensor:
        return (x < 0).to(x.dtype)
