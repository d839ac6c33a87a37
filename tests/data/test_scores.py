"""Scores from files: every format says the same, and every mistake is named with its place."""

from __future__ import annotations

import gzip

import numpy as np
import polars
import pytest
import torch

from rankwise.data import read_scores

ROWS = {
    "score": [0.9, -0.25, 0.5, 0.125],
    "label": [1, 0, 1, 0],
    "query": ["b", "a", "b", "c"],
    "group": [3, 3, -1, 3],
    "id": ["007", "8", "9", "10"],
    "x1": [1.0, 2.0, 3.0, 4.0],
    "x2": [0.5, 0.5, 0.0, 0.0],
}


@pytest.fixture(params=["csv", "csv.gz", "tsv", "parquet", "npz"])
def file(request, tmp_path):
    path = tmp_path / f"rows.{request.param}"
    frame = polars.DataFrame(ROWS)
    if request.param == "parquet":
        frame.write_parquet(path)
    elif request.param == "npz":
        np.savez(path, **{name: np.array(values) for name, values in ROWS.items()})
    elif request.param == "csv.gz":
        path.write_bytes(gzip.compress(frame.write_csv().encode()))
    else:
        frame.write_csv(path, separator="\t" if request.param == "tsv" else ",")
    return path


def write(tmp_path, text, name="rows.csv"):
    path = tmp_path / name
    path.write_text(text)
    return path


def test_every_format_gives_the_same_rows(file):
    rows = read_scores(file, features=["x*"])
    assert len(rows) == 4
    assert rows.scores.dtype == torch.float64
    assert rows.scores.tolist() == ROWS["score"]
    assert rows.labels.dtype == torch.int64
    assert rows.labels.tolist() == ROWS["label"]
    assert [rows.query_names[i] for i in rows.query_ids] == ROWS["query"]
    assert rows.query_names == ("b", "a", "c")
    assert rows.group_ids.tolist() == ROWS["group"]
    assert rows.group_names is None
    assert [rows.sample_names[i] for i in rows.sample_ids] == ROWS["id"]
    assert rows.features.tolist() == [[1, 0.5], [2, 0.5], [3, 0], [4, 0]]


def test_columns_are_found_by_their_usual_names_in_any_case(tmp_path):
    rows = read_scores(write(tmp_path, "QID, Prob ,Target,extra\n4,.5,TRUE,z\n-4,1e-3,false,z\n"))
    assert rows.columns == {"score": "Prob", "label": "Target", "query": "QID"}
    assert rows.scores.tolist() == [0.5, 0.001]
    assert rows.labels.tolist() == [1, 0]
    assert rows.query_ids.tolist() == [4, -4]
    assert rows.query_names is None
    assert rows.group_ids is None
    assert rows.features is None


def test_the_first_name_wins_and_a_named_column_over_all(tmp_path):
    path = write(tmp_path, "score,prob,label\n1,2,0\n")
    assert read_scores(path).scores.tolist() == [1]
    assert read_scores(path, score="prob").scores.tolist() == [2]


def test_grades_need_not_be_whole(tmp_path):
    assert read_scores(write(tmp_path, "score,grade\n1,0.5\n2,2\n")).labels.tolist() == [0.5, 2.0]


def test_a_feature_array_of_an_npz_file_is_taken_whole(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, score=np.zeros(3), label=np.ones(3, dtype=bool), features=np.arange(6.0).reshape(3, 2))
    assert read_scores(path, features=["features"]).features.tolist() == [[0, 1], [2, 3], [4, 5]]


@pytest.mark.parametrize(
    "text, options, message",
    [
        ("score,label\n1,0\nabc,1\n", {}, r"line 3, column 'score': expected a finite number, got 'abc'"),
        ("score,label\n1,0\n2,\n", {}, r"line 3, column 'label': expected a finite number, got nothing"),
        ("score,label\nnan,0\n", {}, r"line 2, column 'score': expected a finite number, got 'nan'"),
        ("score,label\n1,0\n2,-1\n", {}, r"line 3, column 'label': expected a label of 0 or more, got '-1'"),
        ("score,label,query\n1,0,\n", {}, r"line 2, column 'query': expected an id, got nothing"),
        ("skore,label\n1,0\n", {}, r"no score column; expected one of score, .* got the columns skore, label"),
        ("score,label\n1,0\n", {"score": "skore"}, r"no score column 'skore'; did you mean 'score'\? \(columns: "),
        ("pred,logit,label\n1,2,0\n", {}, r"'pred' and 'logit' may both be the score column; say which"),
        ("score,label\n1,0\n", {"features": ["x*"]}, r"no feature column 'x\*'"),
        ("score,label\n", {}, r"expected at least one row, got none"),
        ("", {}, r"expected a line of column names and rows below it, got an empty file"),
        ("score,label\n1,0\n1,2,3,4\n", {}, r"cannot be read as lines of values between commas"),
    ],
)
def test_a_mistake_in_a_text_file_is_named_with_its_place(tmp_path, text, options, message):
    with pytest.raises(ValueError, match=message) as caught:
        read_scores(write(tmp_path, text), **options)
    assert str(caught.value).startswith(str(tmp_path))
    assert "\n" not in str(caught.value)


def test_a_mistake_in_a_binary_file_is_named_by_row(tmp_path):
    np.savez(tmp_path / "a.npz", score=np.array([0.5, np.inf]), label=np.array([0, 1]))
    with pytest.raises(ValueError, match="row 2, column 'score': expected a finite number, got 'inf'"):
        read_scores(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", score=np.zeros(2), label=np.zeros(3))
    with pytest.raises(ValueError, match=r"expected arrays of one length, got score \(2,\), label \(3,\)"):
        read_scores(tmp_path / "b.npz")
    np.savez(tmp_path / "c.npz", score=np.array(["a"]), label=np.zeros(1))
    with pytest.raises(ValueError, match="column 'score': expected numbers, got <U1"):
        read_scores(tmp_path / "c.npz")
    np.savez(tmp_path / "e.npz", score=np.zeros((2, 3)), label=np.zeros(2))
    with pytest.raises(ValueError, match=r"column 'score': expected one number per row, got shape \(2, 3\)"):
        read_scores(tmp_path / "e.npz")
    polars.DataFrame({"score": [0.5, None], "label": [0, 1]}).write_parquet(tmp_path / "d.parquet")
    with pytest.raises(ValueError, match="row 2, column 'score': expected a finite number, got nothing"):
        read_scores(tmp_path / "d.parquet")


def test_a_file_that_is_not_there_or_not_readable_is_named(tmp_path):
    write(tmp_path, "score,label\n1,0\n", "scores.csv")
    with pytest.raises(FileNotFoundError, match=r"score\.csv: no such file; did you mean 'scores\.csv'\?"):
        read_scores(tmp_path / "score.csv")
    with pytest.raises(FileNotFoundError, match="nor a folder"):
        read_scores(tmp_path / "no" / "a.csv")
    with pytest.raises(ValueError, match=r"expected a file ending in \.csv, "):
        read_scores(tmp_path / "scores.xlsx")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(ValueError, match="expected a file, got a folder"):
        read_scores(tmp_path / "folder.csv")
    for name, kind in (("bad.parquet", "a Parquet file"), ("bad.npz", "a whole npz file")):
        with pytest.raises(ValueError, match=f"{name}: expected {kind}"):
            read_scores(write(tmp_path, "this is text", name))
