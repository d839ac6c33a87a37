"""Rows of numbers, dense or sparse, brought to one scale and a bounded range."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.preprocessing import StandardScaler
from torch import Tensor

# Beyond so many spreads a value counts for less and less; none counts for more than this.
_BOUND = 3.0
# The square of a larger number, which the spread is made of, leaves the range of float64.
_LARGEST = 1e150

__all__ = ["Table", "bound", "merge_rows", "row_keys", "scaler_of"]


class Table:
    """Features (N, D) that give some of their rows, scaled, as a dense tensor.

    A dense array is scaled once; of a sparse one only the rows of a batch are ever made dense.
    """

    def __init__(self, features: Any, scaler: StandardScaler, dtype: torch.dtype) -> None:
        self._dtype = dtype
        scaled = scaler.transform(features)
        self._sparse, self._dense = None, None
        if sparse.issparse(scaled):
            self._sparse = bound(scaled)
        else:
            self._dense = torch.from_numpy(bound(scaled)).to(dtype)

    def __getitem__(self, rows: NDArray[np.intp]) -> Tensor:
        """Read rows of any shape (...,) as (..., D)."""
        if self._dense is not None:
            return self._dense[torch.from_numpy(rows)]
        assert self._sparse is not None
        values = self._sparse[rows.ravel()].toarray()
        return torch.from_numpy(values).to(self._dtype).reshape(*rows.shape, values.shape[1])


def bound(scaled: Any) -> Any:
    """Squash scaled columns into (-3, 3), nearly unchanged near 0; an array, or a CSR array of a sparse table."""
    if sparse.issparse(scaled):
        table = sparse.csr_array(scaled)
        table.data = bound(table.data)
        return table
    # hypot: the square of a huge value would overflow.
    return np.asarray(scaled) * (_BOUND / np.hypot(_BOUND, scaled))


def scaler_of(features: Any, weights: NDArray[np.float64], scaler: StandardScaler | None = None) -> StandardScaler:
    """Scale to mean 0 and spread 1 every column that varies; sparse columns are not shifted. Goes on from `scaler`."""
    values = features.data if sparse.issparse(features) else features
    largest = float(np.abs(values).max(initial=0.0))
    if largest > _LARGEST:
        raise ValueError(
            f"X: expected numbers up to {_LARGEST:g} in size, got {largest:.3g}; divide the column by a power of ten, "
            "or take logarithms"
        )
    if scaler is None:
        scaler = StandardScaler(with_mean=not sparse.issparse(features))
    return scaler.partial_fit(features, sample_weight=weights)


def row_keys(features: Any, seed: int) -> NDArray[np.uint64]:
    """Return a random number for each row, the same for equal rows, dense or sparse."""
    mixer = np.random.default_rng(seed).integers(1, 2**63, size=features.shape[1], dtype=np.uint64) | np.uint64(1)
    if sparse.issparse(features):
        table = sparse.csr_array(features)
        bits = sparse.csr_array((_bits(table.data), table.indices, table.indptr), shape=table.shape)
        keys = np.asarray(bits @ mixer)
    else:
        keys = _bits(np.asarray(features)) @ mixer
    # The sum is linear in the bits; these steps break that up.
    for shift, factor in ((33, 0xFF51AFD7ED558CCD), (29, 0xC4CEB9FE1A85EC53)):
        keys = (keys ^ (keys >> np.uint64(shift))) * np.uint64(factor)
    mixed: NDArray[np.uint64] = keys ^ (keys >> np.uint64(32))
    return mixed


def merge_rows(
    keys: NDArray[np.uint64], kinds: NDArray[np.intp], weights: NDArray[np.float64]
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Return one of each set of rows with the same key and kind, in an order of their own, and the weight of the
    set.
    """
    pairs = np.stack([kinds.astype(np.uint64), keys])
    _, rows, index = np.unique(pairs, axis=1, return_index=True, return_inverse=True)
    return rows, np.bincount(index.ravel(), weights=weights).astype(np.float64)


def _bits(values: NDArray[Any]) -> NDArray[np.uint64]:
    # Adding 0 makes a negative zero a plain one.
    return np.ascontiguousarray(values.astype(np.float64) + 0.0).view(np.uint64)
