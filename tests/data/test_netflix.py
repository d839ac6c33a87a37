"""The Netflix Prize files: both forms, and lines that cannot be read."""

from __future__ import annotations

import pytest

from rankwise.data import leave_one_out, read_netflix
from rankwise.data.interactions import is_netflix

FIRST = "10:\n7,4,2005-09-06\n3,1,2004-01-31\n"
SECOND = "2:\n7,5,2005-09-05\n\n11:\n"


def check_ratings(found):
    assert found.user_names == ("3", "7")
    assert found.item_names == ("2", "10")
    assert found.users.tolist() == [1, 0, 1]
    assert found.items.tolist() == [1, 1, 0]
    assert found.ratings.tolist() == [4, 1, 5]
    # 2005-09-06 is day 13,032 of 1970 and later.
    assert found.times.tolist() == [13032, 12448, 13031]


def test_four_files_together(tmp_path):
    (tmp_path / "combined_data_1.txt").write_text(FIRST)
    (tmp_path / "combined_data_2.txt").write_text(SECOND)
    assert is_netflix(tmp_path)
    check_ratings(read_netflix(tmp_path))


def test_a_file_a_film(tmp_path):
    (tmp_path / "mv_0000002.txt").write_text(FIRST.replace("\n", "\r\n"))
    (tmp_path / "mv_0000010.txt").write_text(SECOND)
    check_ratings(read_netflix(tmp_path))


def test_times_order_a_user(tmp_path):
    (tmp_path / "combined_data_1.txt").write_text(
        "1:\n5,3,2001-01-03\n2:\n5,3,2001-01-01\n3:\n5,3,2001-01-04\n4:\n5,3,2001-01-02\n"
    )
    split = leave_one_out(read_netflix(tmp_path), by="time")
    assert [split.train.item_names[item] for item in split.test.items] == ["3"]
    assert [split.train.item_names[item] for item in split.validation.items] == ["1"]


@pytest.mark.parametrize(
    "text, message",
    [
        ("7,4,2005-09-06\n", "line 1: expected `film:` before the first rating, got '7,4,2005-09-06'"),
        ("1:\n7,4\n", "line 2: expected `user,rating,date`, got '7,4'"),
        ("1:\n7,4,2005-09-06\n8,x,2005-09-06\n", "line 3: expected `user,rating,date`, got '8,x,2005-09-06'"),
        ("1:\n7,4,2005-13-06\n", "line 2: expected `user,rating,date`, got '7,4,2005-13-06'"),
        ("1:\n\nann,4,2005-09-06\n", "line 3: expected `user,rating,date`, got 'ann,4,2005-09-06'"),
        ("1:\n", "expected ratings, got none"),
        ("", "expected ratings, got none"),
    ],
)
def test_bad_lines_are_refused(tmp_path, text, message):
    (tmp_path / "combined_data_1.txt").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_netflix(tmp_path)


def test_a_folder_without_ratings(tmp_path):
    assert not is_netflix(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"expected combined_data_\*.txt or mv_\*.txt in this folder"):
        read_netflix(tmp_path)
