"""MovieLens features: the first 20 ratings make features and nothing else, the rest is cut 60 / 20 / 20 per user."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarks.quality.ml100k.features import cut_rated_films, read_rated_films


@pytest.fixture
def folder(tmp_path):
    """40 users with 20 to 49 ratings of 60 films, in no order of time."""
    generator = np.random.default_rng(0)
    rows = []
    for user in range(1, 41):
        films = generator.choice(60, 20 + (user * 7) % 30, replace=False) + 1
        times = generator.permutation(len(films)) * 10 + 1000
        rows += [(user, film, generator.integers(1, 6), time) for film, time in zip(films, times, strict=True)]
    np.savetxt(tmp_path / "u.data", generator.permutation(rows), fmt="%d", delimiter="\t")
    return tmp_path


def test_first_ratings_are_not_ranked_and_the_rest_is(folder):
    rows = np.loadtxt(folder / "u.data", dtype=int)
    films = read_rated_films(folder, rank=4)
    late = []
    for user in range(1, 41):
        own = rows[rows[:, 0] == user]
        late += [(user - 1, int(r == 5)) for r in own[np.argsort(own[:, 3])][20:, 2]]
    assert list(zip(films.users.tolist(), films.labels.tolist(), strict=True)) == late
    assert films.features.shape == (len(late), 12)
    user, film, product = films.features.split(4, 1)
    torch.testing.assert_close(product, user * film, rtol=1e-5, atol=1e-6)


def test_later_ratings_do_not_reach_the_features(folder):
    before = read_rated_films(folder, rank=4)
    rows = np.loadtxt(folder / "u.data", dtype=int)
    late = rows[:, 3] >= 1200
    rows[late, 2] = 6 - rows[late, 2]
    np.savetxt(folder / "u.data", rows, fmt="%d", delimiter="\t")
    after = read_rated_films(folder, rank=4)
    assert torch.equal(before.features, after.features)
    assert not torch.equal(before.labels, after.labels)


def test_every_user_is_cut_60_20_20(folder):
    films = read_rated_films(folder, rank=4)
    split = cut_rated_films(films, seed=0)
    for user, count in zip(*films.users.unique(return_counts=True), strict=True):
        sizes = [int((p.query_ids == user).sum()) for p in (split.train, split.validation, split.test)]
        assert sum(sizes) == count
        assert all(abs(size - share * count) <= 1 for size, share in zip(sizes, (0.6, 0.2, 0.2), strict=True))
    torch.testing.assert_close(split.train.features.mean(0), torch.zeros(12), rtol=0, atol=1e-4)
    assert not torch.equal(split.train.labels, cut_rated_films(films, seed=1).train.labels)


def test_a_missing_file_says_where_to_get_it(tmp_path):
    with pytest.raises(FileNotFoundError, match="grouplens"):
        read_rated_films(tmp_path)


@pytest.mark.realdata
def test_the_real_data_have_their_size(real_data):
    films = read_rated_films(real_data("movielens-100k"))
    assert films.features.shape == (100_000 - 943 * 20, 90)
    assert len(films.users.unique()) == 911
