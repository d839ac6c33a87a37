"""Batch samplers for `DataLoader(batch_sampler=...)`, with relevant and irrelevant items in every batch.

A ranking loss compares relevant with irrelevant items, so a batch needs both. The samplers use their own generator,
seeded by `seed` and the epoch; they neither read nor change the global random state.
"""

from __future__ import annotations

from typing import Any

from rankwise.registry import Registry, SamplerRecord
from rankwise.samplers.labelled import BinaryBatchSampler, ClassBatchSampler, ShuffledBatchSampler
from rankwise.samplers.queries import QueryBatchSampler
from rankwise.samplers.seeded import SeededBatchSampler

__all__ = [
    "SAMPLERS",
    "BinaryBatchSampler",
    "ClassBatchSampler",
    "QueryBatchSampler",
    "SeededBatchSampler",
    "ShuffledBatchSampler",
    "create_sampler",
]

SAMPLERS: Registry[SamplerRecord] = Registry("sampler")
SAMPLERS.add(
    SamplerRecord(
        name="shuffled",
        summary="all items in random order, for any labels",
        build=ShuffledBatchSampler,
    )
)
SAMPLERS.add(
    SamplerRecord(
        name="binary",
        summary="a fixed number of positives and negatives in every batch",
        build=BinaryBatchSampler,
    )
)
SAMPLERS.add(
    SamplerRecord(
        name="classes",
        summary="a fixed number of classes and of samples per class in every batch",
        build=ClassBatchSampler,
    )
)
SAMPLERS.add(
    SamplerRecord(
        name="queries",
        summary="a fixed number of queries in every batch, with some or all of their relevant and irrelevant items",
        build=QueryBatchSampler,
    )
)


def create_sampler(name: str, labels: object, **options: Any) -> SeededBatchSampler:
    """Create a batch sampler by its registered name.

    Args:
        name: "shuffled", "binary", "classes" or "queries".
        labels: (N,) label of every item of the data set.
        options: arguments of that sampler.

    Example:
        >>> create_sampler("binary", [0, 0, 1, 0, 1, 0], positives=1, negatives=2)
        BinaryBatchSampler(positives=1, negatives=2, batches=2, seed=0)
    """
    sampler: SeededBatchSampler = SAMPLERS.get(name).build(labels, **options)
    return sampler
