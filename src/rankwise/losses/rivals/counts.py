"""How many items there are of each kind."""

from __future__ import annotations

import torch
from torch import Tensor

from rankwise.lists import Lists

__all__ = ["check_counts", "counts_of"]


def check_counts(counts: object) -> tuple[int, int] | None:
    """`counts=` as a user gives it: (negatives, positives) of the data set, or None."""
    if counts is None:
        return None
    pair = tuple(counts) if isinstance(counts, tuple | list) else ()
    if len(pair) != 2 or not all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in pair):
        raise ValueError(f"counts: expected two whole numbers > 0, (negatives, positives), got {counts!r}")
    return pair[0], pair[1]


def counts_of(lists: Lists, counts: tuple[int, int] | None) -> tuple[Tensor, Tensor]:
    """How many items are of the kind (label) of each item and how many of the rarer kind, (Q, L) and (Q, 1).

    Those of the data set where `counts` says so, else those of each list, and never less than 1.
    """
    positive = lists.labels == 1
    if counts is None:
        positives, items = (positive & lists.mask).sum(1, keepdim=True), lists.mask.sum(1, keepdim=True)
        negatives = items - positives
    else:
        negatives, positives = (torch.full_like(lists.positions[:, None], n) for n in counts)
    dtype = lists.scores.dtype
    negatives, positives = negatives.clamp_min(1).to(dtype), positives.clamp_min(1).to(dtype)
    return torch.where(positive, positives, negatives), torch.minimum(positives, negatives)
