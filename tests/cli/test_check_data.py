"""`rankwise check-data`: one page of findings, and an exit code that a script can use."""

from __future__ import annotations

import re

import pytest

from rankwise.cli import main

GOOD = "a,b,y\n" + "".join(f"{row * 0.1},{row % 7},{'yes' if row % 4 == 0 else 'no'}\n" for row in range(200))


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "cells.csv"
    path.write_text(GOOD)
    return path


def test_usable_data_end_with_0(capsys, table):
    assert main(["check-data", str(table)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "label 0 is 'no', 1 is 'yes' (column 'y')" in out
    assert re.search(r"^note +cells.csv: 200 rows, 2 features, one list$", out, re.MULTILINE)
    assert "usable: 0 errors, 0 warnings, 2 notes" in out
    assert "\x1b" not in out


def test_errors_end_with_1_and_come_first(capsys, tmp_path, table):
    broken = tmp_path / "broken.csv"
    broken.write_text(GOOD.replace("0.1,1,no", ",1,no"))
    assert main(["check-data", str(broken)]) == 1
    out = capsys.readouterr().out
    assert "not usable as it is: 1 errors" in out
    assert out.index("1 missing or infinite value in feature a") < out.index("200 rows")
    assert main(["check-data", str(broken), "--missing", "median"]) == 0


def test_several_files_are_compared(capsys, tmp_path, table):
    (tmp_path / "other").mkdir()
    again = tmp_path / "other" / "cells.csv"
    again.write_text(GOOD)
    assert main(["check-data", str(table), str(again)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert re.search(r"warning other/cells.csv: 200 rows \(100 %\) with the features of a row of cells.csv", out)


def test_classes_mean_the_same_in_every_file(capsys, tmp_path, table):
    test = tmp_path / "test.csv"
    test.write_text("a,b,y\n" + "".join(f"{row + 0.05},1,{'no' if row % 4 == 0 else 'yes'}\n" for row in range(200)))
    assert main(["check-data", str(table), str(test)]) == 0
    assert "labels: 0 (50 rows), 1 (150 rows); 75 % positive" in capsys.readouterr().out


def test_letor_files_and_batches(capsys, tmp_path, table):
    path = tmp_path / "train.txt"
    path.write_text("".join(f"{row % 3} qid:{row // 5} 1:{row} 2:{row % 5}\n" for row in range(100)))
    assert main(["check-data", str(path)]) == 0
    assert "100 rows, 2 features, 20 lists" in capsys.readouterr().out
    assert main(["check-data", str(table), "--positives", "32", "--batch-size", "64"]) == 0
    assert re.search(r"reads 0\.\d\d instead of 0\.\d\d", " ".join(capsys.readouterr().out.split()))


def test_columns_can_be_chosen(capsys, table):
    assert main(["check-data", str(table), "--label", "y", "--positive", "no", "--query", "b"]) == 0
    out = capsys.readouterr().out
    assert "label 0 is 'yes', 1 is 'no'" in out
    assert "200 rows, 1 feature, 7 lists" in out
    assert main(["check-data", str(table), "--label", "b", "--drop", "y"]) == 0
    assert "200 rows, 1 feature, one list" in capsys.readouterr().out


@pytest.mark.parametrize(
    "options, message",
    [
        (["no such file"], "no such file"),
        (["."], "."),
        (["FILE", "--missing", "mean"], "unknown word 'mean'"),
        (["FILE", "--positives", "8"], "needs --batch-size"),
        (["FILE", "--batch-size", "8"], "needs --batch-size"),
        (["FILE", "--positives", "8", "--batch-size", "8"], "must be larger"),
        (["FILE", "--positives", "x"], "--positives"),
        (["FILE", "FILE"], "got one twice"),
        (["FILE", "--label", "z"], "has no column 'z'"),
        (["FILE", "--query", "z"], "has no column 'z'"),
        (["FILE", "--drop", "z"], "has no column 'z'"),
        (["FILE", "--positive", "maybe"], "has no label 'maybe'"),
        ([], "files"),
    ],
)
def test_wrong_arguments_end_with_2_and_one_line(capsys, table, options, message):
    assert main(["check-data", *(str(table) if option == "FILE" else option for option in options)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert message in err


def test_a_bad_line_ends_with_2_and_is_named(capsys, tmp_path):
    path = tmp_path / "train.txt"
    path.write_text("1 qid:1 1:2\n1 qid:x 1:2\n")
    assert main(["check-data", str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "train.txt, line 2: expected `qid:` and a whole number, got 'qid:x'" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("module", ["polars", "sklearn"])
def test_a_missing_extra_is_named(capsys, monkeypatch, table, module):
    from rankwise import extras

    found = extras.find_spec
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == module else found(name))
    assert main(["check-data", str(table)]) == 1
    assert f"check-data needs {module}: pip install 'rankwise[data]'" in capsys.readouterr().err
