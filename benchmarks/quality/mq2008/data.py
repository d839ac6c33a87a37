"""The MQ2008 data of LETOR 4.0, cut into train, validation and test as its readme says for each fold."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.find import find_data
from rankwise.data import Part, Split, join_parts, read_letor_folds

__all__ = ["join_validation", "load_fold", "with_ranks"]


def load_fold(fold: int) -> Split:
    """Fold 1 to 5: three sections to learn from, one for choices, one for the figure.

    The files `S1.txt` .. `S5.txt` are looked for in `letor-mq2008` under the folder that `RANKWISE_DATA` names.
    """
    return read_letor_folds(find_data("letor-mq2008"))[fold - 1]


def with_ranks(split: Split) -> Split:
    """Every feature a second time as its rank within the query, from -1 (lowest) to 1; equal values share a rank."""
    return Split(*(_with_ranks(part) for part in (split.train, split.validation, split.test)))


def join_validation(split: Split) -> Split:
    """The validation part is learned from as well."""
    return Split(join_parts([split.train, split.validation]), split.validation, split.test)


def _with_ranks(part: Part) -> Part:
    assert part.query_ids is not None
    ranks = torch.empty_like(part.features)
    for query in part.query_ids.unique():
        rows = part.query_ids == query
        ranks[rows] = _ranks(part.features[rows])
    return Part(torch.cat([part.features, ranks], 1), part.labels, part.query_ids)


def _ranks(values: Tensor) -> Tensor:
    """(N, D) to (N, D), each column by itself."""
    below = (values[None] < values[:, None]).sum(1)
    beside = (values[None] == values[:, None]).sum(1)
    return (2 * below + beside) / len(values) - 1
