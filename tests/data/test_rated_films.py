"""MovieLens-100K as in the paper of pAp@k: the rule that gives the figures of its Table 4."""

from __future__ import annotations

import numpy as np
import pytest

from rankwise.data import read_rated_films
from rankwise.data.rated_films import _introsort
from rankwise.problems import Bipartite


@pytest.fixture
def folder(tmp_path):
    """Eight users who rate 45 films each, all at the same time, and one who rates only 30."""
    rows = [
        f"{user + 1}\t{1 + (user * 3 + film) % 60}\t{1 + film % 5}\t1000\n"
        for user in range(9)
        for film in range(45 if user < 8 else 30)
    ]
    (tmp_path / "u.data").write_text("".join(rows))
    return tmp_path


def test_first_ratings_become_features_and_users_with_few_others_are_left_out(folder, monkeypatch):
    monkeypatch.setattr("rankwise.data.rated_films.ITERATIONS", 5)
    part = read_rated_films(folder)
    assert part.query_names == tuple(str(user) for user in range(1, 9))
    counts = part.query_ids.bincount()
    assert int(counts.min()) >= 20
    assert int(counts.max()) <= 25
    assert part.features.shape == (len(part), 90)
    user, film, product = part.features.split(30, dim=1)
    np.testing.assert_allclose(product, user * film, rtol=1e-5)
    assert float(part.features.min()) > 0
    assert set(part.labels.tolist()) == {0, 1}


def test_rows_of_every_user_are_in_all_parts_when_items_are_held_out(folder, monkeypatch):
    monkeypatch.setattr("rankwise.data.rated_films.ITERATIONS", 5)
    problem = Bipartite(data={"train": folder, "held_out": "items"})
    _, split = problem.read({})
    cut = problem.cut(split, seed=0)
    for name in ("train", "validation", "test"):
        assert len(cut.part(name).query_ids.unique()) == 8
    assert sum(len(cut.part(name)) for name in ("train", "validation", "test")) == len(split.train)
    with pytest.raises(ValueError, match="expected shares of MovieLens-100K for validation and test, got files"):
        problem.read({"test": folder})


def test_too_few_ratings_are_refused(tmp_path):
    (tmp_path / "u.data").write_text("".join(f"1\t{film}\t5\t{film}\n" for film in range(30)))
    with pytest.raises(ValueError, match="expected users with 20 ratings after their first 20, got none"):
        read_rated_films(tmp_path)


@pytest.mark.parametrize("count", [0, 1, 16, 17, 18, 100, 3000])
def test_the_order_sorts(count):
    keys = np.random.default_rng(count).integers(0, max(1, count // 5) + 1, count)
    order = _introsort(keys.tolist())
    assert sorted(order) == list(range(count))
    assert (np.diff(keys[np.array(order, dtype=int)]) >= 0).all()


def test_equal_keys_are_ordered_as_numpy_orders_them_without_special_instructions():
    # np.argsort(np.arange(17) % 2) of numpy 2.4.6 with NPY_DISABLE_CPU_FEATURES="X86_V3 X86_V4 AVX512_ICL".
    expected = [0, 14, 12, 10, 6, 8, 4, 2, 16, 7, 15, 9, 3, 11, 13, 1, 5]
    assert _introsort([number % 2 for number in range(17)]) == expected


@pytest.mark.realdata
def test_the_figures_are_those_of_table_4(real_data):
    part = read_rated_films(real_data("movielens-100k"))
    assert len(part.query_ids.unique()) == 638
    assert len(part) == 69_903
    assert int(part.labels.sum()) == 15_486
