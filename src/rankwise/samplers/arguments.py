"""What samplers check alike."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from rankwise.checks import check_count, check_tensor

__all__ = ["Indices", "check_at_most", "check_item_labels", "number_of_batches"]

Indices = NDArray[np.int64]


def number_of_batches(items: int, per_batch: int, drop_last: bool) -> int:
    if not isinstance(drop_last, bool):
        raise TypeError(f"drop_last: expected True or False, got {drop_last!r}")
    return items // per_batch if drop_last else -(-items // per_batch)


def check_item_labels(labels: object) -> Tensor:
    tensor = check_tensor("labels", labels).detach().cpu()
    if tensor.dim() != 1 or len(tensor) == 0:
        raise ValueError(f"labels: expected shape (N,) with at least one item, got {tuple(tensor.shape)}")
    return tensor


def check_at_most(name: str, value: int, available: int, what: str) -> int:
    count = check_count(name, value, least=1)
    if count > available:
        raise ValueError(f"{name}: expected at most the number of {what}, {available}, got {count}")
    return count
