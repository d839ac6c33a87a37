"""Interactions: ids become numbers that belong together, and each user's last pairs are held out."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rankwise.data import Interactions, leave_one_out, read_interaction_lists, read_interactions, read_movielens
from rankwise.data.histories import hold_out

PAIRS = [(196, 242, 3, 881250949), (186, 302, 3, 891717742), (196, 302, 1, 878887116)]


def check_pairs(found: Interactions) -> None:
    assert found.user_names == ("186", "196")
    assert found.item_names == ("242", "302")
    assert found.users.tolist() == [1, 0, 1]
    assert found.items.tolist() == [0, 1, 1]
    assert found.ratings.tolist() == [3, 3, 1]
    assert found.times.tolist() == [881250949, 891717742, 878887116]


@pytest.mark.parametrize(
    "name, separator, header",
    [
        ("u.data", "\t", ""),
        ("ratings.dat", "::", ""),
        ("ratings.csv", ",", "userId,movieId,rating,timestamp\n"),
    ],
)
def test_the_three_forms_of_movielens(tmp_path, name, separator, header):
    (tmp_path / name).write_text(header + "".join(separator.join(map(str, pair)) + "\n" for pair in PAIRS))
    check_pairs(read_movielens(tmp_path))


def test_columns_by_name_and_ids_of_text(tmp_path):
    path = tmp_path / "clicks.csv"
    path.write_text("when,who,what\n30,bob,x9\n10,ann,x7\n20,bob,x7\n")
    found = read_interactions(path, user="who", item="what", time="when")
    assert found.user_names == ("ann", "bob")
    assert found.users.tolist() == [1, 0, 1]
    assert found.items.tolist() == [1, 0, 0]
    assert found.times.tolist() == [30, 10, 20]
    assert found.ratings is None


@pytest.mark.parametrize(
    "content, options, message",
    [
        ("u,i\n1,2\n,3\n", {}, "column 'u', line 3: expected something in every line, got missing cells"),
        ("u,i,r\n1,2,x\n1,3,4\n", {"rating": 2}, "column 'r', line 2: expected numbers, got text such as 'x'"),
        ("u,i,t\n1,2,1.5\n", {"time": "t"}, "column 't', line 2: expected whole numbers as times"),
        ("u,i\n1,2\n", {"rating": "stars"}, "rating: .* has no column 'stars'"),
        ("u,i\n1,2\n", {"time": 2}, "time: expected a position among the 2 columns"),
        ("u,i\n", {}, "expected rows below the names of the columns, got none"),
    ],
)
def test_bad_pairs_are_refused(tmp_path, content, options, message):
    path = tmp_path / "clicks.csv"
    path.write_text(content)
    with pytest.raises(ValueError, match=message):
        read_interactions(path, **options)


def test_lists_of_two_files_share_their_numbers(tmp_path):
    (tmp_path / "train.txt").write_text("5 10 30\n\n3 20\n4\n")
    (tmp_path / "test.txt").write_text("5 20\n9 40 10\n")
    train, test = read_interaction_lists([tmp_path / "train.txt", tmp_path / "test.txt"])
    assert train.user_names == test.user_names == ("3", "5", "9")
    assert train.item_names == test.item_names == ("10", "20", "30", "40")
    assert list(zip(train.users.tolist(), train.items.tolist(), strict=True)) == [(1, 0), (1, 2), (0, 1)]
    assert list(zip(test.users.tolist(), test.items.tolist(), strict=True)) == [(1, 1), (2, 3), (2, 0)]


@pytest.mark.parametrize("field", ["x", "1.5", "9" * 25])
def test_a_list_with_something_else_is_refused(tmp_path, field):
    (tmp_path / "train.txt").write_text(f"0 1 2\n1 {field} 3\n")
    with pytest.raises(ValueError, match=r"train.txt, line 2: expected whole numbers `user item item ...`, got"):
        read_interaction_lists([tmp_path / "train.txt"])


pairs = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 8), st.integers(0, 4)), min_size=1, max_size=40)


@given(pairs, st.sampled_from(["time", "random"]), st.integers(0, 3))
def test_one_pair_of_each_user_is_left_out_twice(rows, by, seed):
    users, _, times = map(torch.tensor, zip(*rows, strict=True))
    places = torch.arange(len(rows))
    seen = Interactions(users, places, None, times, tuple("abcdef"), tuple(map(str, range(len(rows)))))
    split = leave_one_out(seen, by=by, seed=seed)
    everything = torch.cat([split.train.items, split.validation.items, split.test.items])
    assert everything.sort().values.tolist() == places.tolist()
    for user in range(6):
        own = [(time, place) for place, (who, _, time) in enumerate(rows) if who == user]
        held_out = [part.items[part.users == user].tolist() for part in (split.validation, split.test)]
        if len(own) < 3:
            assert held_out == [[], []]
        else:
            assert [len(held) for held in held_out] == [1, 1]
            if by == "time":
                assert held_out == [[sorted(own)[-2][1]], [sorted(own)[-1][1]]]


def test_the_seed_decides_a_random_cut():
    users = torch.arange(20).repeat(10)
    seen = Interactions(users, torch.arange(200), None, None, tuple(map(str, range(20))), tuple(map(str, range(200))))
    first, same, other = (leave_one_out(seen, by="random", seed=seed).test.items for seed in (1, 1, 2))
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
    with pytest.raises(ValueError, match="by: expected pairs with times, to cut by time, got none"):
        leave_one_out(seen, by="time")
    with pytest.raises(ValueError, match="by: unknown word 'tim'; did you mean 'time'"):
        leave_one_out(seen, by="tim")


@given(pairs)
def test_what_was_written_is_read(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("pairs") / "pairs.tsv"
    path.write_text("".join(f"{user}\t{item}\t{time}\n" for user, item, time in rows))
    found = read_interactions(path, time=2)
    names = [
        (int(found.user_names[user]), int(found.item_names[item]), time)
        for user, item, time in zip(found.users.tolist(), found.items.tolist(), found.times.tolist(), strict=True)
    ]
    assert names == rows


@pytest.mark.realdata
def test_movielens_100k(real_data):
    found = read_movielens(real_data("movielens-100k"))
    assert (len(found), len(found.user_names), len(found.item_names)) == (100_000, 943, 1_682)
    assert found.ratings.unique().tolist() == [1, 2, 3, 4, 5]
    split = leave_one_out(found, by="time")
    assert (len(split.train), len(split.validation), len(split.test)) == (98_114, 943, 943)
    last = torch.zeros(943, dtype=torch.int64).scatter_reduce_(0, found.users, found.times, "amax")
    assert torch.equal(split.test.times, last[split.test.users])


@pytest.mark.realdata
def test_movielens_1m_as_lists(real_data):
    folder = real_data("movielens-1m-implicit")
    train, test = read_interaction_lists([folder / "train.txt", folder / "test.txt"])
    assert len(train) + len(test) == 1_000_209
    assert (len(train.user_names), len(train.item_names)) == (6_040, 3_706)


def test_a_share_of_short_histories_is_held_out_from_some_users():
    users = torch.arange(40).repeat_interleave(3)
    names = tuple(map(str, range(60)))
    pairs = Interactions(users, torch.arange(120) % 60, None, None, names[:40], names)
    kept, held = hold_out(pairs, share=0.1, seed=0)
    assert (len(kept), len(held)) == (108, 12)
    assert held.users.bincount().max() == 1
    lonely = pairs.take(torch.arange(0, 120, 3))
    assert len(hold_out(lonely, share=0.1, seed=0)[1]) == 0
