"""MovieLens-100K as lists of rated films with features from each user's first ratings."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rankwise.data import Part, Split, read_interactions

__all__ = ["RatedFilms", "cut_rated_films", "read_rated_films"]

HISTORY = 20
LIKED = 5


@dataclass(frozen=True)
class RatedFilms:
    """Ratings that are left to rank when the first 20 of each user have gone into the features.

    Attributes:
        features: (N, 3 r) of user, of film, and their product, element by element.
        labels: (N,) 1 for a rating of 5, else 0.
        users: (N,) the user of each rating.
    """

    features: Tensor
    labels: Tensor
    users: Tensor


def read_rated_films(folder: Path, *, rank: int = 30) -> RatedFilms:
    """Read `u.data` and make the features: the first 20 ratings of each user, factorised.

    The user-by-film matrix of the first 20 ratings (0 elsewhere) is approximated by non-negative factors of rank r
    (scikit-learn's NMF, at most 1,000 iterations). Users with no rating beyond the first 20 have nothing to rank.

    Args:
        folder: holds `u.data` of MovieLens-100K.
        rank: r.
    """
    path = folder / "u.data"
    if not path.exists():
        raise FileNotFoundError(
            f"{path}: not there; MovieLens-100K is at https://grouplens.org/datasets/movielens/100k"
        )
    read = read_interactions(path, rating=2, time=3, header="no", separator="\t")
    assert read.ratings is not None
    assert read.times is not None
    if bool((read.ratings < 0).any()):
        raise ValueError(f"{path}: expected ratings of 0 or more, got {float(read.ratings.min()):g}")
    # By user and time; ratings of the same second stay in the order of the file.
    order = np.lexsort((read.times.numpy(), read.users.numpy()))
    users, films, ratings = (each.numpy()[order] for each in (read.users, read.items, read.ratings))
    begin = np.searchsorted(users, users)
    early = np.arange(len(users)) - begin < HISTORY
    matrix = np.zeros((len(read.user_names), len(read.item_names)), dtype=np.float64)
    matrix[users[early], films[early]] = ratings[early]
    of_users, of_films = _factorise(matrix, rank)
    user, film = of_users[users[~early]], of_films[films[~early]]
    features = np.concatenate([user, film, user * film], axis=1)
    labels = (ratings[~early] == LIKED).astype(np.int64)
    return RatedFilms(torch.as_tensor(features).float(), torch.as_tensor(labels), torch.as_tensor(users[~early]))


def cut_rated_films(films: RatedFilms, seed: int) -> Split[Part]:
    """Cut each user's ratings at random: 60 % to learn from, 20 % for choices, 20 % for the final figure.

    Features are shifted and scaled to mean 0 and deviation 1 over the part to learn from.

    Args:
        films: made by `read_rated_films`.
        seed: decides which ratings go where.

    Example:
        >>> films = RatedFilms(torch.rand(10, 3), torch.tensor([1, 0] * 5), torch.tensor([7] * 10))
        >>> split = cut_rated_films(films, seed=0)
        >>> len(split.train), len(split.validation), len(split.test)
        (6, 2, 2)
    """
    generator = torch.Generator().manual_seed(seed)
    chance = torch.rand(len(films.users), generator=generator, dtype=torch.float64)
    order = torch.argsort(films.users + chance)
    users = films.users[order]
    begin, end = torch.searchsorted(users, users), torch.searchsorted(users, users, right=True)
    quantile = torch.empty(len(order), dtype=torch.float64)
    quantile[order] = (torch.arange(len(order)).double() - begin + 0.5) / (end - begin)
    learn = quantile < 0.6
    mean, deviation = films.features[learn].mean(0), films.features[learn].std(0).clamp_min(1e-6)
    features = (films.features - mean) / deviation
    parts = (learn, (quantile >= 0.6) & (quantile < 0.8), quantile >= 0.8)
    return Split(*(Part(features[rows], films.labels[rows], films.users[rows]) for rows in parts))


def _factorise(matrix: NDArray[np.float64], rank: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    from sklearn.decomposition import NMF
    from sklearn.exceptions import ConvergenceWarning

    model = NMF(rank, init="nndsvda", max_iter=1000, tol=1e-6, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # 1,000 iterations are what was asked for
        of_rows = model.fit_transform(matrix)
    return of_rows, model.components_.T
