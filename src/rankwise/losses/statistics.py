"""What a loss must know of whole lists when a batch holds only some of their items."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from rankwise.checks import check_ids, check_labels, check_same_shape, check_tensor
from rankwise.gains import Gain, gain_function
from rankwise.metrics.ndcg import ideal_dcg

__all__ = ["ListStatistics", "ListTotals", "Totals"]


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


class ListTotals(nn.Module):
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

    def forward(self, query_ids: Tensor | None) -> Totals:
        """Of the lists `query_ids` (Q,)."""
        if query_ids is None:
            raise ValueError("query_ids: expected the id of each list, because statistics of the lists were given")
        place = torch.searchsorted(self.ids, query_ids).clamp_max(len(self.ids) - 1)
        unknown = self.ids[place] != query_ids
        if bool(unknown.any()):
            raise ValueError(
                f"query_ids: expected lists that the statistics know, got {int(query_ids[unknown][0])} "
                f"({int(unknown.sum())} of {len(query_ids)} lists are unknown)"
            )
        return Totals(self.size[place], self.relevant[place], self.ideal[place])
