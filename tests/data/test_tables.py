"""Tables: which column is what, what labels become, and which cells are refused."""

from __future__ import annotations

import gzip
import lzma
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rankwise.data import read_table

GOOD = b"size,round,cancer\n1.5,0.2,no\n2.5,0.1,yes\n1.0,0.3,no\n"


def write(folder: Path, content: bytes | str, name: str = "cells.csv") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def check_good(table):
    assert torch.equal(table.part.features, torch.tensor([[1.5, 0.2], [2.5, 0.1], [1.0, 0.3]]))
    assert table.part.labels.tolist() == [0, 1, 0]
    assert table.part.query_ids is None
    assert table.feature_names == ("size", "round")
    assert table.label_name == "cancer"
    assert table.classes == ("no", "yes")


@pytest.mark.parametrize(
    "content",
    [
        GOOD,
        gzip.compress(GOOD),
        lzma.compress(GOOD),
        b"\xef\xbb\xbf" + GOOD,
        GOOD.replace(b"\n", b"\r\n"),
        GOOD.removesuffix(b"\n"),
        GOOD.replace(b",", b"\t"),
        GOOD.replace(b",", b";"),
        GOOD + b"\n\n",
        GOOD.replace(b",", b", "),
        GOOD.replace(b"yes", b"'yes'").replace(b"no\n", b'"no"\n'),
    ],
    ids=[
        "plain",
        "gzip",
        "xz",
        "bom",
        "crlf",
        "no last newline",
        "tabs",
        "semicolons",
        "blank-lines",
        "spaces",
        "quotes",
    ],
)
def test_every_form_of_the_file_gives_the_same_table(tmp_path, content):
    check_good(read_table(write(tmp_path, content)))


def test_parquet(tmp_path):
    frame = pl.DataFrame({"size": [1.5, 2.5, 1.0], "round": [0.2, 0.1, 0.3], "cancer": ["no", "yes", "no"]})
    frame.write_parquet(tmp_path / "cells.parquet")
    check_good(read_table(tmp_path / "cells.parquet"))


def test_npz(tmp_path):
    path = tmp_path / "cells.npz"
    np.savez(path, X=np.array([[1.0, 2], [3, 4]]), y=np.array([0, 1]), qid=np.array([5, 6]))
    table = read_table(path)
    assert table.part.features.tolist() == [[1, 2], [3, 4]]
    assert table.part.labels.tolist() == [0, 1]
    assert table.part.query_ids.tolist() == [5, 6]
    np.savez(path, features=np.ones((2, 1)), labels=np.array(["a", "b"]))
    assert read_table(path, positive="a").part.labels.tolist() == [1, 0]


class TestColumns:
    CONTENT = "q,a,b,name,y\n3,1,2,x,0\n3,3,4,z,1\n-8,5,6,x,2\n"

    def test_the_label_by_name_or_position_and_the_rest_by_name(self, tmp_path):
        path = write(tmp_path, self.CONTENT)
        for label in ("y", -1, 4):
            table = read_table(path, label=label, query="q", drop=["name"])
            assert table.feature_names == ("a", "b")
            assert table.part.features.tolist() == [[1, 2], [3, 4], [5, 6]]
            assert table.part.labels.tolist() == [0, 1, 2]
            assert table.part.query_ids.tolist() == [3, 3, -8]
            assert table.query_names is None
        assert read_table(path, features=["b"]).feature_names == ("b",)

    def test_queries_with_names_are_numbered_in_order(self, tmp_path):
        table = read_table(write(tmp_path, self.CONTENT), query="name", drop=["q"])
        assert table.part.query_ids.tolist() == [0, 1, 0]
        assert table.query_names == ("x", "z")

    def test_without_a_header_columns_are_numbered(self, tmp_path):
        table = read_table(write(tmp_path, "1,2,0\n3,4,1\n"))
        assert table.feature_names == ("column 1", "column 2")
        assert table.part.features.tolist() == [[1, 2], [3, 4]]

    def test_the_header_can_be_stated(self, tmp_path):
        path = write(tmp_path, "1,2,0\n3,4,1\n5,6,1\n")
        assert read_table(path, header="yes").feature_names == ("1", "2")
        assert len(read_table(path, header="no").part) == 3
        path = write(tmp_path, "1,2,x\n3,4,y\n5,6,y\n")
        assert read_table(path, header="auto").part.labels.tolist() == [1, 0, 0]

    def test_booleans_are_numbers(self, tmp_path):
        table = read_table(write(tmp_path, "a,y\ntrue,true\nfalse,true\ntrue,false\n"))
        assert table.part.features.tolist() == [[1], [0], [1]]
        assert table.part.labels.tolist() == [1, 1, 0]
        assert table.classes == ("false", "true")

    def test_sizes_in_a_file_beside_it_are_queries(self, tmp_path):
        write(tmp_path, "2\n1\n", "cells.csv.query")
        assert read_table(write(tmp_path, "1,0\n2,2\n3,0\n")).part.labels.tolist() == [0, 2, 0]
        path = write(tmp_path, "1,0\n2,2\n3,1\n")
        table = read_table(path)
        assert table.part.query_ids.tolist() == [0, 0, 1]
        assert table.part.labels.tolist() == [0, 2, 1]


class TestLabels:
    @pytest.mark.parametrize(
        "labels, expected, classes",
        [
            (["0", "1", "1"], [0, 1, 1], None),
            (["-1", "1", "-1"], [0, 1, 0], ("-1", "1")),
            (["'-1'", "'1'", "'1'"], [1, 0, 0], ("1", "-1")),
            (["2", "1", "1"], [1, 0, 0], ("1", "2")),
            (["yes", "no", "no"], [1, 0, 0], ("no", "yes")),
            (["negative", "positive", "negative"], [0, 1, 0], ("negative", "positive")),
            (["b", "c", "a"], [1, 2, 0], ("a", "b", "c")),
            (["0", "3", "1"], [0, 3, 1], None),
            (["0.5", "3", "1"], [0.5, 3.0, 1.0], None),
            (["7", "7", "7"], [7, 7, 7], None),
            (["True", "False", "True"], [1, 0, 1], ("false", "true")),
            (["true", "true", "true"], [1, 1, 1], ("false", "true")),
            (["x", "x", "x"], [0, 0, 0], ("x",)),
        ],
    )
    def test_what_they_become(self, tmp_path, labels, expected, classes):
        table = read_table(write(tmp_path, "\n".join(["a,y", *(f"1,{label}" for label in labels)])))
        assert table.part.labels.tolist() == expected
        assert table.classes == classes

    def test_of_two_equally_frequent_kinds_the_later_word_is_positive(self, tmp_path):
        for first, second in (("-1", "1"), ("1", "-1"), ("no", "yes"), ("yes", "no")):
            table = read_table(write(tmp_path, f"a,y\n1,{first}\n2,{second}\n"))
            assert table.classes in (("-1", "1"), ("no", "yes"))

    def test_the_positive_kind_can_be_named(self, tmp_path):
        path = write(tmp_path, GOOD)
        assert read_table(path, positive="no").part.labels.tolist() == [1, 0, 1]
        path = write(tmp_path, "a,y\n1,a\n1,b\n1,c\n")
        table = read_table(path, positive="b")
        assert table.part.labels.tolist() == [0, 1, 0]
        assert table.classes == ("not b", "b")
        with pytest.raises(ValueError, match=r"positive: .* has no label 'B'"):
            read_table(path, positive="B")

    def test_a_label_column_may_have_any_name(self, tmp_path):
        assert read_table(write(tmp_path, "a,count\n1,x\n2,y\n3,y\n")).part.labels.tolist() == [1, 0, 0]

    def test_grades_of_queries_stay(self, tmp_path):
        assert read_table(write(tmp_path, "q,a,y\n1,1,0\n1,2,2\n"), query="q").part.labels.tolist() == [0, 2]


class TestLike:
    """A table to test on means what the table to learn from means."""

    def test_classes_and_columns_are_those_of_the_other_table(self, tmp_path):
        train = read_table(write(tmp_path, GOOD))
        # Here "no" is the rarer one, the columns stand in another order, and there is one more.
        test = read_table(write(tmp_path, "cancer,more,round,size\nyes,9,1,2\nyes,9,3,4\nno,9,5,6\n"), like=train)
        assert test.part.labels.tolist() == [1, 1, 0]
        assert test.part.features.tolist() == [[2, 1], [4, 3], [6, 5]]
        assert (test.classes, test.feature_names) == (train.classes, train.feature_names)
        only = read_table(write(tmp_path, "size,round,cancer\n1,2,no\n"), like=train)
        assert only.part.labels.tolist() == [0]

    def test_numbers_stay_numbers(self, tmp_path):
        train = read_table(write(tmp_path, "a,y\n1,0\n1,1\n1,2\n"))
        assert read_table(write(tmp_path, "a,y\n1,0\n1,2\n"), like=train).part.labels.tolist() == [0, 2]
        with pytest.raises(ValueError, match="column 'y', line 3: expected numbers, as in the other table"):
            read_table(write(tmp_path, "a,y\n1,0\n1,x\n"), like=train)

    def test_unknown_labels_are_refused_by_line(self, tmp_path):
        train = read_table(write(tmp_path, GOOD))
        with pytest.raises(ValueError, match=r"'cancer', line 2: expected labels of the other table \(no, yes\)"):
            read_table(write(tmp_path, "size,round,cancer\n1,2,maybe\n"), like=train)

    @pytest.mark.parametrize(
        "labels, options, expected",
        [("True,false", {}, [1, 0]), ("b,c", {"positive": "b"}, [1, 0])],
    )
    def test_truth_and_one_against_all(self, tmp_path, labels, options, expected):
        rows = "1,true\n1,false\n" if not options else "1,a\n1,b\n1,c\n"
        train = read_table(write(tmp_path, "a,y\n" + rows), **options)
        content = "a,y\n" + "".join(f"1,{label}\n" for label in labels.split(","))
        assert read_table(write(tmp_path, content), like=train).part.labels.tolist() == expected

    def test_lists_of_the_same_name_have_the_same_id(self, tmp_path):
        train = read_table(write(tmp_path, "q,a,y\nx,1,0\nz,1,1\n"), query="q")
        test = read_table(write(tmp_path, "q,a,y\nw,1,0\nz,1,1\n"), query="q", like=train)
        assert test.part.query_ids.tolist() == [2, 1]
        assert test.query_names == ("x", "z", "w")


MANY = "a,y\n" + "1,0\n" * 3000


def test_a_late_line_of_another_type_is_read_or_named(tmp_path):
    table = read_table(write(tmp_path, MANY + "2.5,1\n"))
    assert table.part.features[-1].item() == 2.5
    assert table.part.labels[-1].item() == 1
    assert read_table(write(tmp_path, MANY + "2,yes\n3,yes\n")).classes == ("0", "yes")
    with pytest.raises(ValueError, match="column 'a', line 3002: expected numbers, got text such as 'x'"):
        read_table(write(tmp_path, MANY + "x,1\n"))
    with pytest.raises(ValueError, match="line 3002: expected 2 fields as in the first line, got 3"):
        read_table(write(tmp_path, MANY + "1,1,1\n"))


def test_a_name_with_signs_of_a_pattern_is_a_name(tmp_path):
    check_good(read_table(write(tmp_path, GOOD, "cells[1]*.csv")))
    pl.read_csv(GOOD).write_parquet(tmp_path / "cells[1]*.parquet")
    check_good(read_table(tmp_path / "cells[1]*.parquet"))


BAD_TABLES = {
    "text column": (
        "a,b,y\n1,red,0\n2,green,1\n",
        {},
        r"column 'b': expected numbers, got text such as 'red'; leave it out with drop=\['b'\]",
    ),
    "one bad cell": ("a,b,y\n1,1,0\n2,x,1\n3,3,1\n", {}, "column 'b', line 3: expected numbers, got text such as 'x'"),
    "missing": (
        "a,b,y\n1,,0\n2,NA,1\n3,?,1\n4,nan,0\n5,1,1\n",
        {},
        "column 'b', lines 2, 3, 4 and 1 more: expected a number in every line, got missing cells",
    ),
    "short line": ("a,b,y\n1,2,0\n1,2\n", {}, "column 'y', line 3: expected something in every line"),
    "missing label": ("a,y\n1,\n2,1\n", {}, "column 'y', line 2: expected something"),
    "missing query": ("q,a,y\n,1,0\n2,2,1\n", {"query": "q"}, "column 'q', line 2: expected something"),
    "nothing to fill in": ("a,b,y\n1,,0\n2,,1\n", {"missing": "median"}, "column 'b': expected some numbers, got none"),
    "long line": ("a,b,y\n1,2,0\n1,2,3,4\n", {}, "line 3: expected 3 fields as in the first line, got 4"),
    "infinite": ("a,y\n1,0\ninf,1\n", {}, "column 'a', line 3: expected finite numbers"),
    "too large": ("a,y\n1,0\n1e39,1\n", {}, r"column 'a', line 3: .* up to 3.4e38 \(float32\), got larger"),
    "names twice": ("a,a,y\n1,2,0\n", {}, "line 1: expected a different name for every column, got 'a' twice"),
    "only names": ("a,b,y\n", {}, "expected rows below the names of the columns, got none"),
    "one column": ("y\n1\n0\n", {}, "expected at least one column of features, got none besides the label 'y'"),
    "empty first line": ("\na,y\n1,0\n", {}, "line 1: expected the names of the columns or numbers"),
    "free text as labels": (
        "a,y\n" + "".join(f"{row},word {row}\n" for row in range(50)),
        {},
        "expected labels, got 50 different words in 50 rows",
    ),
    "other encoding": (b"a,y\n1,caf\xe9\n2,tea\n", {}, "line 2: expected text in UTF-8, got the byte 0xe9"),
    "other encoding in the names": (b"caf\xe9,y\n1,2\n", {}, "line 1: expected text in UTF-8, got the byte 0xe9"),
    "utf-16": ("a,y\n1,0\n".encode("utf-16"), {}, "line 1: expected text in UTF-8, got UTF-16"),
    "unknown label": (GOOD, {"label": "cancr"}, "label: .* has no column 'cancr'; did you mean 'cancer'"),
    "label position": (GOOD, {"label": 3}, "label: expected a position among the 3 columns of .*, got 3"),
    "unknown query": (GOOD, {"query": "q"}, "query: .* has no column 'q'"),
    "unknown drop": (GOOD, {"drop": ["sizes"]}, "drop: .* has no column 'sizes'; did you mean 'size'"),
    "unknown feature": (GOOD, {"features": ["sizes"]}, "features: .* has no column 'sizes'"),
    "label as feature": (GOOD, {"features": ["cancer"]}, "features: expected columns that are not the label"),
    "unknown word": (GOOD, {"missing": "mean"}, "missing: unknown word 'mean'"),
    "unknown header": (GOOD, {"header": "si"}, "header: unknown word 'si'"),
}


@pytest.mark.parametrize("content, options, message", BAD_TABLES.values(), ids=BAD_TABLES)
def test_a_bad_table_is_refused(tmp_path, content, options, message):
    with pytest.raises(ValueError, match=message) as caught:
        read_table(write(tmp_path, content), **options)
    if not re.match("missing|header|features: expected", message):
        assert str(tmp_path / "cells.csv") in str(caught.value)


def test_missing_cells_take_the_median_if_asked(tmp_path):
    table = read_table(write(tmp_path, "a,y\n1,0\n,1\n5,0\n6,0\n"), missing="median")
    assert table.part.features.flatten().tolist() == [1, 5, 5, 6]


@pytest.mark.parametrize(
    "arrays, message",
    [
        ({"x": np.ones((2, 2))}, "expected arrays called features .* got x"),
        ({"X": np.ones(2), "y": np.ones(2)}, r"features of shape \(N, D\), got \(2,\)"),
        ({"X": np.ones((2, 1)), "y": np.ones(3)}, r"labels of shape \(2,\), got \(3,\)"),
        ({"X": np.array([[{}]]), "y": np.ones(1)}, "expected a whole npz file of arrays of numbers or text"),
    ],
)
def test_a_bad_npz_is_refused(tmp_path, arrays, message):
    np.savez(tmp_path / "cells.npz", **arrays)
    with pytest.raises(ValueError, match=message):
        read_table(tmp_path / "cells.npz")


@pytest.mark.parametrize("name", ["cells.npz", "cells.parquet"])
def test_a_file_that_is_not_what_its_name_says_is_refused(tmp_path, name):
    with pytest.raises(ValueError, match=rf"{name}: expected an? (whole )?\w+ file"):
        read_table(write(tmp_path, b"nonsense", name))


KINDS = ("csv", "parquet")
number = st.floats(width=32, allow_nan=False, allow_infinity=False)
table_rows = st.integers(1, 4).flatmap(
    lambda width: st.lists(
        st.tuples(st.lists(number, min_size=width, max_size=width), st.integers(0, 4)), min_size=1, max_size=20
    )
)


@given(
    rows=table_rows, header=st.booleans(), separator=st.sampled_from(",;\t"), kind=st.sampled_from(["csv", "parquet"])
)
def test_what_was_written_is_read(tmp_path_factory, rows, header, separator, kind):
    names = [f"f{place}" for place in range(len(rows[0][0]))]
    path = tmp_path_factory.mktemp("table") / f"t.{kind}"
    frame = pl.DataFrame([[*values, grade] for values, grade in rows], schema=[*names, "y"], orient="row")
    if kind == "csv":
        frame.write_csv(path, include_header=header, separator=separator)
    else:
        frame.write_parquet(path)
    grades = [grade for _, grade in rows]
    table = read_table(path, header="auto")
    assert torch.equal(table.part.features, torch.tensor([values for values, _ in rows]))
    if len(set(grades)) != 2:
        assert table.part.labels.tolist() == grades


@pytest.mark.realdata
def test_mammography(real_data):
    table = read_table(real_data("mammography") / "mammography.csv")
    assert table.part.features.shape == (11_183, 6)
    assert int(table.part.labels.sum()) == 260
    assert table.classes == ("-1", "1")
