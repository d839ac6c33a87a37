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
    assert "usable: 0 errors, 0 warnings, 4 notes" in out
    assert "\x1b" not in out


def test_the_label_is_the_column_that_training_takes(capsys, tmp_path):
    path = tmp_path / "cells.csv"
    path.write_text(
        "label,a,qid,flag\n" + "".join(f"{int(row < 30)},{row * 0.1},{row // 20},{row % 2}\n" for row in range(200))
    )
    assert main(["check-data", str(path)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "labels in column 'label', queries in column 'qid'" in out
    assert "0 (170 rows), 1 (30 rows); 15 % positive" in out
    assert main(["check-data", str(path), "--label", "flag"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "labels in column 'flag'" in out
    assert "50 % positive" in out


def test_the_label_is_the_last_column_if_no_name_tells(capsys, tmp_path):
    path = tmp_path / "cells.csv"
    path.write_text(GOOD.replace("a,b,y", "a,b,c"))
    assert main(["check-data", str(path)]) == 0
    assert "labels in column 'c', no column of queries" in capsys.readouterr().out


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


def written(tmp_path, name, header, row, rows=120):
    path = tmp_path / name
    path.write_text(header + "".join(row(number) for number in range(rows)))
    return str(path)


def test_all_columns_that_cannot_be_used_are_listed_with_their_options(capsys, tmp_path):
    path = written(
        tmp_path,
        "p.csv",
        "size;weight;a;ill\n",
        lambda i: f"{i % 7},5;{'heavy' if i == 5 else i % 11};{i * 0.37 % 1:.3f};{int(i % 4 == 0)}\n",
    )
    assert main(["check-data", path]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "column 'size': expected numbers with a decimal point, got decimal commas such as '0,5'" in out
    assert "-> save the file with decimal points, or leave it out: --drop size" in out
    assert "column 'weight', line 7: expected numbers, got text such as 'heavy'" in out
    assert "-> mend the cells, or leave it out: --drop weight" in out
    assert "data.drop=[size,weight]" in out
    assert main(["check-data", path, "--drop", "size", "--drop", "weight"]) == 0


def test_columns_like_ids_are_named(capsys, tmp_path):
    path = written(
        tmp_path, "p.csv", "number,patient,a,ill\n", lambda i: f"{1000 + i},P{i},{i * 0.37 % 1:.3f},{int(i % 4 == 0)}\n"
    )
    assert main(["check-data", path]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "column 'number' is left out: an id: a different whole number in every row" in out
    assert "column 'patient' is left out: text with 120 different values in 120 rows" in out
    assert "column 'a'" not in out


def test_scales_that_training_standardises_are_no_matter(capsys, tmp_path):
    path = written(tmp_path, "p.csv", "a,b,ill\n", lambda i: f"{i * 0.61803398 % 1 * 1e6},{i % 7},{int(i % 3 == 0)}\n")
    assert main(["check-data", path]) == 0
    assert "0 errors, 0 warnings" in capsys.readouterr().out


def test_times_are_not_read_as_grades(capsys, tmp_path):
    path = written(
        tmp_path, "p.csv", "a,ill,time\n", lambda i: f"{i * 0.37 % 1},{int(i % 4 == 0)},{1_700_000_000 + 977 * i}\n"
    )
    assert main(["check-data", path]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "120 different numbers" in out
    assert "not grades: name the label column with --label" in out
    assert "gain" not in out
    assert main(["check-data", path, "--label", "ill"]) == 0


def test_classes_of_text_are_not_read_as_grades(capsys, tmp_path):
    path = written(tmp_path, "p.csv", "a,kind\n", lambda i: f"{i * 0.37 % 1},{('red', 'blue', 'green')[i % 3]}\n")
    assert main(["check-data", path]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "3 kinds of labels -> name the positive one for one ranking: --positive blue" in out
    assert main(["check-data", path, "--positive", "red"]) == 0
    assert "kinds of labels" not in capsys.readouterr().out


def test_arff_files_are_tables(capsys, tmp_path):
    path = written(
        tmp_path,
        "p.arff",
        "% a comment\n@relation cells\n@attribute 'cell size' numeric\n@attribute b real\n"
        "@attribute ill {no, 'yes, very'}\n@data\n",
        lambda i: f"{i * 0.37 % 1:.3f}, {i % 7}, {chr(39) + 'yes, very' + chr(39) if i % 4 == 0 else 'no'}\n",
    )
    assert main(["check-data", path]) == 0
    out = capsys.readouterr().out
    assert "label 0 is 'no', 1 is 'yes, very' (column 'ill')" in out
    assert "p.arff: 120 rows, 2 features, one list" in out
    broken = tmp_path / "broken.arff"
    broken.write_text("@relation x\n@attribute a numeric\n@attribute y {0,1}\n@data\n1,0\n2\n")
    assert main(["check-data", str(broken)]) == 2
    assert "broken.arff, line 6: expected" in capsys.readouterr().err
    sparse = tmp_path / "sparse.arff"
    sparse.write_text("@relation x\n@attribute a numeric\n@attribute y {0,1}\n@data\n{0 1}\n")
    assert main(["check-data", str(sparse)]) == 2
    assert "sparse.arff, line 5: expected 2 values" in capsys.readouterr().err
