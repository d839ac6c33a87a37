"""MovieLens-100K as lists of rated films with features from each user's first ratings, as in the paper of pAp@k."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from rankwise.data.interactions import read_interactions
from rankwise.data.parts import Part
from rankwise.extras import require

__all__ = ["is_rated_films", "read_rated_films"]

HISTORY, LEAST, LIKED, RANK = 20, 20, 5, 30
ITERATIONS, TOLERANCE, TINY = 1000, 1e-6, 1e-5
# Ranges of at most one more element are sorted by insertion in numpy's quicksort.
SMALL = 15


def is_rated_films(source: object) -> bool:
    """Return whether a source is the folder of MovieLens-100K."""
    return isinstance(source, str | Path) and (Path(source) / "u.data").is_file()


def read_rated_films(folder: str | Path, *, seed: int = 5) -> Part:
    """Read `u.data` of MovieLens-100K as Hiranandani et al. did: 638 users, 69,903 rows, 15,486 of them positive.

    The first 20 ratings of each user go into the features. Of the others those of films that are among some user's
    first 20 are left, and of users with at least 20 such. A rating of 5 is positive. The user-by-film matrix of the
    first ratings is factorised into non-negative factors of rank 30 by multiplicative updates over the given entries
    (at most 1,000, until the fit changes by less than 1e-6); the features are those of the user, of the film, and their
    product, 90 in all.

    Many ratings have the same time, and their order decides which are among the first 20: it is that of the unstable
    sort that the authors used (numpy's introsort), which gives the figures of their Table 4 exactly. A stable sort
    gives the same 638 users with 70,032 rows, 15,489 of them positive.

    Args:
        folder: holds `u.data`.
        seed: of the factors at the start; the authors' numbers are not reproduced, only their way.
    """
    read = read_interactions(Path(folder) / "u.data", rating=2, time=3, header="no", separator="\t")
    assert read.ratings is not None
    assert read.times is not None
    order = np.array(_introsort(read.times.tolist()))
    order = order[np.argsort(read.users.numpy()[order], kind="stable")]
    users, films, ratings = (each.numpy()[order] for each in (read.users, read.items, read.ratings))
    first = np.arange(len(users)) - np.searchsorted(users, users) < HISTORY
    known = np.isin(films, films[first])
    left = ~first & known
    left &= (np.bincount(users[left], minlength=len(read.user_names)) >= LEAST)[users]
    if not left.any():
        raise ValueError(f"{folder}: expected users with {LEAST} ratings after their first {HISTORY}, got none")
    shape = (len(read.user_names), len(read.item_names))
    of_users, of_films = _factorise(users[first], films[first], ratings[first], shape, seed)
    own, film = of_users[users[left]], of_films[films[left]]
    features = torch.from_numpy(np.concatenate([own, film, own * film], axis=1)).float()
    named, numbers = np.unique(users[left], return_inverse=True)
    return Part(
        features,
        torch.from_numpy((ratings[left] == LIKED).astype(np.int64)),
        torch.from_numpy(numbers.astype(np.int64)),
        query_names=tuple(read.user_names[user] for user in named.tolist()),
    )


def _factorise(
    rows: NDArray[np.int64],
    columns: NDArray[np.int64],
    values: NDArray[np.float32],
    shape: tuple[int, int],
    seed: int,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return non-negative factors (rows, RANK) and (columns, RANK) of the given entries of a matrix.

    Paper: Lee and Seung, Algorithms for non-negative matrix factorization, NIPS 2000; here over given entries only.
    """
    require("factorising ratings", ("scipy",), extra="data")
    from scipy.sparse import csr_matrix

    given = csr_matrix((values.astype(np.float64), (rows, columns)), shape=shape)
    row = np.repeat(np.arange(shape[0]), np.diff(given.indptr))
    draw = np.random.default_rng(seed)
    left, right = (np.maximum(draw.random((size, RANK)), TINY) for size in shape)
    fit = np.zeros(given.nnz)
    for _ in range(ITERATIONS):
        fitted = csr_matrix(
            (np.einsum("ij,ij->i", left.take(row, 0), right.take(given.indices, 0)), given.indices, given.indptr),
            shape=shape,
        )
        left = np.maximum(left * (given @ right) / (fitted @ right + TINY), TINY)
        fitted.data = np.einsum("ij,ij->i", left.take(row, 0), right.take(given.indices, 0))
        right = np.maximum(right * (given.T @ left) / (fitted.T @ left + TINY), TINY)
        before, fit = fit, fitted.data
        if np.sqrt(((before - fit) ** 2).sum()) < TOLERANCE:
            break
    return left, right


def _introsort(keys: Sequence[int]) -> list[int]:
    """Return the indices that sort keys, equal ones in the order of numpy's own quicksort.

    numpy sorts by other instructions on some CPUs, which order equal keys differently. This is the plain one: the
    median of three as pivot, the larger half later, insertion for up to 16 keys.

    Example:
        >>> _introsort([3, 1, 2, 1])
        [1, 3, 2, 0]
    """
    order = list(range(len(keys)))
    low, high = 0, len(keys) - 1
    waiting: list[tuple[int, int]] = []
    while True:
        while high - low > SMALL:
            middle = low + (high - low) // 2
            for one, other in ((middle, low), (high, middle), (middle, low)):
                if keys[order[one]] < keys[order[other]]:
                    order[one], order[other] = order[other], order[one]
            pivot = keys[order[middle]]
            up, down = low, high - 1
            order[middle], order[down] = order[down], order[middle]
            while True:
                up += 1
                while keys[order[up]] < pivot:
                    up += 1
                down -= 1
                while pivot < keys[order[down]]:
                    down -= 1
                if up >= down:
                    break
                order[up], order[down] = order[down], order[up]
            order[up], order[high - 1] = order[high - 1], order[up]
            if up - low < high - up:
                waiting.append((up + 1, high))
                high = up - 1
            else:
                waiting.append((low, up - 1))
                low = up + 1
        for end in range(low + 1, high + 1):
            index, at = order[end], end
            while at > low and keys[index] < keys[order[at - 1]]:
                order[at] = order[at - 1]
                at -= 1
            order[at] = index
        if not waiting:
            return order
        low, high = waiting.pop()
