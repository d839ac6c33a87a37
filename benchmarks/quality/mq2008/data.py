"""The MQ2008 data of LETOR 4.0, cut into train, validation and test as its readme says for each fold."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from benchmarks.find import find_data
from rankwise.data import Part, Split, read_letor

__all__ = ["join_validation", "load_fold", "read_folds", "with_ranks"]

FOLDS, FEATURES = 5, 46


def load_fold(fold: int) -> Split[Part]:
    """Return fold 1 to 5: three sections to learn from, one for choices, one for the figure.

    The files `S1.txt` .. `S5.txt` are looked for in `letor-mq2008` under the folder that `RANKWISE_DATA` names.
    """
    return read_folds(find_data("letor-mq2008"))[fold - 1]


def read_folds(folder: Path) -> list[Split[Part]]:
    """Return the five official folds of `S1.txt` .. `S5.txt`.

    Fold 1 learns from S1, S2, S3, chooses on S4 and is tested on S5; each further fold is one file on.
    """
    files = [read_letor(folder / f"S{number}.txt", features=FEATURES) for number in range(1, FOLDS + 1)]
    return [
        Split(
            _join([files[(fold + step) % FOLDS] for step in range(3)]),
            files[(fold + 3) % FOLDS],
            files[(fold + 4) % FOLDS],
        )
        for fold in range(FOLDS)
    ]


def with_ranks(split: Split[Part]) -> Split[Part]:
    """Return every feature a second time as its rank within the query, from -1 (lowest) to 1; equal values share a
    rank."""
    return Split(*(_with_ranks(split.part(name)) for name in ("train", "validation", "test")))


def join_validation(split: Split[Part]) -> Split[Part]:
    """Return the split with the validation part in the training part as well."""
    return Split(_join([split.train, split.part("validation")]), split.validation, split.test)


def _join(parts: list[Part]) -> Part:
    queries = [part.query_ids for part in parts if part.query_ids is not None]
    features, labels = [part.features for part in parts], [part.labels for part in parts]
    return Part(torch.cat(features), torch.cat(labels), torch.cat(queries))


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
