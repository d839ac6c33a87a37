"""Tables: which column is what, what labels become, and which cells are refused."""

from __future__ import annotations

import gzip
import json
import lzma
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rankwise.data import DataNote, TableSchema, read_table

GOOD = b"size,round,cancer\n1.5,0.2,no\n2.5,0.1,yes\n1.0,0.3,no\n"


def write(folder: Path, content: bytes | str, name: str = "cells.csv") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def check_good(table):
    assert torch.equal(table.part.features, torch.tensor([[1.5, 0.2], [2.5, 0.1], [1.0, 0.3]]))
    assert table.part.labels.tolist() == [0, 1, 0]
    assert table.part.query_ids is None
    assert table.schema.features == ("size", "round")
    assert table.schema.label == "cancer"
    assert table.schema.classes == ("no", "yes")


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
            assert table.schema.features == ("a", "b")
            assert table.part.features.tolist() == [[1, 2], [3, 4], [5, 6]]
            assert table.part.labels.tolist() == [0, 1, 2]
            assert table.part.query_ids.tolist() == [3, 3, -8]
            assert table.part.query_names is None
        assert read_table(path, features=["b"]).schema.features == ("b",)

    def test_queries_with_names_are_numbered_in_order(self, tmp_path):
        table = read_table(write(tmp_path, self.CONTENT), query="name", drop=["q"])
        assert table.part.query_ids.tolist() == [0, 1, 0]
        assert table.part.query_names == ("x", "z")

    def test_without_a_header_columns_are_numbered(self, tmp_path):
        table = read_table(write(tmp_path, "1,2,0\n3,4,1\n"))
        assert table.schema.features == ("column 1", "column 2")
        assert table.part.features.tolist() == [[1, 2], [3, 4]]

    def test_the_header_can_be_stated(self, tmp_path):
        path = write(tmp_path, "1,2,0\n3,4,1\n5,6,1\n")
        assert read_table(path, header="yes").schema.features == ("1", "2")
        assert len(read_table(path, header="no").part) == 3
        path = write(tmp_path, "1,2,x\n3,4,y\n5,6,y\n")
        with pytest.raises(ValueError, match="first line of names or of values, got '1, 2, x', which may be either"):
            read_table(path, header="auto")
        assert read_table(path, header="no").part.labels.tolist() == [1, 0, 0]

    def test_booleans_are_numbers(self, tmp_path):
        table = read_table(write(tmp_path, "a,y\ntrue,true\nfalse,true\ntrue,false\n"))
        assert table.part.features.tolist() == [[1], [0], [1]]
        assert table.part.labels.tolist() == [1, 1, 0]
        assert table.schema.classes == ("false", "true")

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
        assert table.schema.classes == classes

    def test_of_two_equally_frequent_kinds_the_later_word_is_positive(self, tmp_path):
        for first, second in (("-1", "1"), ("1", "-1"), ("no", "yes"), ("yes", "no")):
            table = read_table(write(tmp_path, f"a,y\n1,{first}\n2,{second}\n"))
            assert table.schema.classes in (("-1", "1"), ("no", "yes"))

    def test_the_positive_kind_can_be_named(self, tmp_path):
        path = write(tmp_path, GOOD)
        assert read_table(path, positive="no").part.labels.tolist() == [1, 0, 1]
        path = write(tmp_path, "a,y\n1,a\n1,b\n1,c\n")
        table = read_table(path, positive="b")
        assert table.part.labels.tolist() == [0, 1, 0]
        assert table.schema.classes == ("not b", "b")
        with pytest.raises(ValueError, match=r"positive: .* has no label 'B'"):
            read_table(path, positive="B")

    def test_a_label_column_may_have_any_name(self, tmp_path):
        assert read_table(write(tmp_path, "a,count\n1,x\n2,y\n3,y\n")).part.labels.tolist() == [1, 0, 0]

    def test_grades_of_queries_stay(self, tmp_path):
        assert read_table(write(tmp_path, "q,a,y\n1,1,0\n1,2,2\n"), query="q").part.labels.tolist() == [0, 2]


class TestSchema:
    """Another table means what the training table means, however its columns are ordered."""

    def test_columns_are_matched_by_name_in_any_order(self, tmp_path):
        part, schema = read_table(write(tmp_path, GOOD))
        # Here "no" is the rarer class, and the columns have another order.
        test = schema.read(write(tmp_path, "cancer,round,size\nyes,1,2\nyes,3,4\nno,5,6\n"))
        assert test.labels.tolist() == [1, 1, 0]
        assert test.features.tolist() == [[2, 1], [4, 3], [6, 5]]
        assert torch.equal(schema.read(write(tmp_path, GOOD)).features, part.features)

    def test_labels_are_optional_if_asked(self, tmp_path):
        _, schema = read_table(write(tmp_path, GOOD))
        path = write(tmp_path, "round,size\n1,2\n3,4\n")
        test = schema.read(path, labels="optional")
        assert test.features.tolist() == [[2, 1], [4, 3]]
        assert test.targets is None
        with pytest.raises(ValueError, match=r"cells\.csv: expected the label column 'cancer', got none"):
            schema.read(path)
        with pytest.raises(ValueError, match="data: expected labels, to train or to evaluate, got data without them"):
            _ = test.labels

    def test_extra_columns_are_ignored_with_a_note(self, tmp_path):
        _, schema = read_table(write(tmp_path, GOOD))
        with pytest.warns(DataNote, match="ignored 2 columns that the training data did not have: name, more"):
            test = schema.read(write(tmp_path, "name,cancer,more,round,size\nx,yes,9,1,2\n"))
        assert test.features.tolist() == [[2, 1]]

    def test_a_column_that_was_dropped_in_training_is_no_extra_one(self, tmp_path):
        _, schema = read_table(write(tmp_path, GOOD), drop=["round"])
        assert schema.read(write(tmp_path, GOOD)).features.flatten().tolist() == [1.5, 2.5, 1.0]

    def test_all_missing_columns_are_named_in_one_error(self, tmp_path):
        _, schema = read_table(write(tmp_path, "a,b,c,y\n1,2,3,0\n1,2,3,1\n"))
        with pytest.raises(ValueError, match=r"expected all columns of the training data, got none called 'a', 'c'$"):
            schema.read(write(tmp_path, "b,y\n1,0\n"))
        _, schema = read_table(write(tmp_path, GOOD))
        with pytest.raises(ValueError, match=r"got none called 'round'; did you mean 'rounds'"):
            schema.read(write(tmp_path, "size,rounds,cancer\n1,2,no\n"))

    def test_a_doubled_column_and_one_of_text_are_refused_by_name(self, tmp_path):
        _, schema = read_table(write(tmp_path, GOOD))
        with pytest.raises(ValueError, match="expected a different name for every column, got 'size' twice"):
            schema.read(write(tmp_path, "size,round,size\n1,2,3\n"), labels="optional")
        with pytest.raises(ValueError, match="column 'round', line 2: expected numbers, got text such as 'red'"):
            schema.read(write(tmp_path, "size,round\n1,red\n2,3\n"), labels="optional")

    @pytest.mark.parametrize("content", ["1,2,0\n3,4,1\n", "1,2\n3,4\n"], ids=["with labels", "without"])
    def test_a_table_without_names_has_the_columns_of_the_training_table(self, tmp_path, content):
        for names in ("a,b,y\n", ""):
            _, schema = read_table(write(tmp_path, f"{names}5,6,0\n7,8,1\n"))
            test = schema.read(write(tmp_path, content, "new.csv"), labels="optional")
            assert test.features.tolist() == [[1, 2], [3, 4]]
            assert (test.targets is None) == (content == "1,2\n3,4\n")

    def test_a_table_without_names_of_another_width_is_refused(self, tmp_path):
        _, schema = read_table(write(tmp_path, "a,b,y\n5,6,0\n7,8,1\n"))
        with pytest.raises(ValueError, match="expected 2 or 3 columns, as in the training data, because they have no"):
            schema.read(write(tmp_path, "1,2,3,4\n", "new.csv"))

    def test_names_that_are_numbers_are_names(self, tmp_path):
        part, schema = read_table(write(tmp_path, "2019,2020,label\n1,2,0\n3,4,1\n"))
        assert schema.features == ("2019", "2020")
        assert len(part) == 2
        assert schema.read(write(tmp_path, "2020,2019\n2,1\n"), labels="optional").features.tolist() == [[1, 2]]

    def test_numbers_stay_numbers(self, tmp_path):
        _, schema = read_table(write(tmp_path, "a,y\n1,0\n1,1\n1,2\n"))
        assert schema.read(write(tmp_path, "a,y\n1,0\n1,2\n")).labels.tolist() == [0, 2]
        with pytest.raises(ValueError, match="column 'y', line 3: expected numbers, as in the training data"):
            schema.read(write(tmp_path, "a,y\n1,0\n1,x\n"))

    def test_unknown_labels_are_refused_by_line(self, tmp_path):
        _, schema = read_table(write(tmp_path, GOOD))
        with pytest.raises(ValueError, match=r"'cancer', line 2: expected labels of the training data \(no, yes\)"):
            schema.read(write(tmp_path, "size,round,cancer\n1,2,maybe\n"))

    @pytest.mark.parametrize(
        "labels, options, expected",
        [("True,false", {}, [1, 0]), ("b,c", {"positive": "b"}, [1, 0])],
    )
    def test_truth_and_one_against_all(self, tmp_path, labels, options, expected):
        rows = "1,true\n1,false\n" if not options else "1,a\n1,b\n1,c\n"
        _, schema = read_table(write(tmp_path, "a,y\n" + rows), **options)
        content = "a,y\n" + "".join(f"1,{label}\n" for label in labels.split(","))
        assert schema.read(write(tmp_path, content)).labels.tolist() == expected

    def test_lists_are_known_by_name(self, tmp_path):
        _, schema = read_table(write(tmp_path, "q,a,y\nx,1,0\nz,1,1\n"), query="q")
        test = schema.read(write(tmp_path, "q,a,y\nw,1,0\nz,1,1\nw,1,1\n"))
        assert test.query_ids.tolist() == [0, 1, 0]
        assert test.query_names == ("w", "z")

    def test_a_missing_query_column_is_one_clear_error(self, tmp_path):
        _, schema = read_table(write(tmp_path, "q,a,y\nx,1,0\nz,1,1\n"), query="q")
        with pytest.raises(ValueError, match=r"cells\.csv: expected the query column 'q', got none$"):
            schema.read(write(tmp_path, "a,y\n1,0\n"))

    def test_sizes_in_a_file_beside_it_stand_in_for_the_query_column(self, tmp_path):
        _, schema = read_table(write(tmp_path, "q,a,y\nx,1,0\nz,1,1\n"), query="q")
        write(tmp_path, "1\n2\n", "new.csv.group")
        test = schema.read(write(tmp_path, "a\n1\n2\n3\n", "new.csv"), labels="optional")
        assert test.query_ids.tolist() == [0, 1, 1]

    def test_missing_cells_are_read_as_they_were_in_training(self, tmp_path):
        _, schema = read_table(write(tmp_path, GOOD), missing="median")
        test = schema.read(write(tmp_path, "size,round\n,1\n2,\n"), labels="optional")
        assert test.features.isnan().tolist() == [[True, False], [False, True]]
        _, strict = read_table(write(tmp_path, GOOD), missing="error")
        with pytest.raises(ValueError, match="column 'size', line 2: expected a value in every line"):
            strict.read(write(tmp_path, "size,round\n,1\n2,\n"), labels="optional")
        _, schema = read_table(write(tmp_path, GOOD))
        with pytest.warns(DataNote, match="1 missing cells in column 'size', which had none in the training data"):
            test = schema.read(write(tmp_path, "size,round\n,1\n2,3\n"), labels="optional")
        assert test.features.isnan().tolist() == [[True, False], [False, False]]

    def test_times_keep_their_differences(self, tmp_path):
        """float32 holds 1,700,000,000 to the next 128: all of these would be equal."""
        content = "time,y\n" + "".join(f"{1_700_000_000 + 3 * row},{row % 2}\n" for row in range(20))
        part, schema = read_table(write(tmp_path, content))
        assert (part.features[:, 0] - part.features[0, 0]).tolist() == [3.0 * row for row in range(20)]
        test = schema.read(write(tmp_path, "time\n1700000001\n1700000002\n"), labels="optional")
        assert (test.features[:, 0] - part.features[0, 0]).tolist() == [1.0, 2.0]

    @pytest.mark.parametrize(
        "options",
        [{}, {"query": "q"}, {"positive": "yes", "missing": "median"}, {"drop": ["round"]}],
        ids=["plain", "query", "positive", "drop"],
    )
    def test_a_saved_schema_reads_the_same(self, tmp_path, options):
        content = "q,size,round,cancer\nx,1700000001,0.2,no\nx,1700000002,0.1,yes\nz,1700000003,0.3,no\n"
        options = options | ({} if "query" in options else {"drop": [*options.get("drop", ()), "q"]})
        path = write(tmp_path, content)
        part, schema = read_table(path, **options)
        again = TableSchema.from_saved(json.loads(json.dumps(schema.to_json())), schema.tensors())
        assert again == schema
        assert torch.equal(again.read(path).features, part.features)
        assert again.read(path).query_names == part.query_names


class TestMemory:
    """Frames and arrays are read as files are."""

    def test_frames(self, tmp_path):
        frame = pl.read_csv(GOOD)
        check_good(read_table(frame))
        _, schema = read_table(write(tmp_path, GOOD))
        shuffled = frame.select("cancer", "round", "size")
        assert torch.equal(schema.read(shuffled).features, read_table(frame).part.features)
        pandas = pytest.importorskip("pandas")
        columns = {name: frame[name].to_list() for name in frame.columns}
        check_good(read_table(pandas.DataFrame(columns)))

    def test_arrays(self):
        features, labels, queries = np.array([[1.0, 2], [3, 4], [5, 6]]), np.array([0, 2, 1]), np.array([7, 7, 8])
        part, schema = read_table((features, labels, queries))
        assert part.features.tolist() == features.tolist()
        assert (part.labels.tolist(), part.query_ids.tolist()) == ([0, 2, 1], [7, 7, 8])
        unlabelled = schema.read((features, None, queries), labels="optional")
        assert torch.equal(unlabelled.features, part.features)
        assert unlabelled.query_ids.tolist() == [7, 7, 8]
        with pytest.raises(ValueError, match="arrays: expected the query column 'query_ids', got none"):
            schema.read(features, labels="optional")

    @pytest.mark.parametrize("source", [7, None, (None, np.ones(2)), (np.ones((2, 1)),) * 4, ("a", "b")])
    def test_other_objects_are_refused(self, source):
        with pytest.raises(TypeError, match="source: expected a path, a polars or pandas frame, an array"):
            read_table(source)

    @pytest.mark.parametrize("ending", ["arrow", "feather", "ipc"])
    def test_arrow(self, tmp_path, ending):
        path = tmp_path / f"cells[1]*.{ending}"
        pl.read_csv(GOOD).write_ipc(path)
        check_good(read_table(path))


class TestLetorSchema:
    """A schema learned from a LETOR file reads tables whose columns are called 1, 2, ..."""

    LINES = b"2 qid:7 1:0.5 3:1.5\n0 qid:7 2:1\n1 qid:9 1:2\n"
    ROWS = ([0.5, 0.0, 1.5], [0.0, 1.0, 0.0], [2.0, 0.0, 0.0])

    @pytest.fixture
    def learned(self, tmp_path):
        return read_table(write(tmp_path, self.LINES, "train.txt"))

    def frame(self):
        columns = {str(index + 1): [row[index] for row in self.ROWS] for index in range(3)}
        return pl.DataFrame({"label": [2, 0, 1], **columns, "qid": [7, 7, 9]})

    @pytest.mark.parametrize("kind", ["csv", "parquet", "frame", "pandas with whole numbers"])
    def test_tables_in_any_order_are_read(self, tmp_path, learned, kind):
        part, schema = learned
        frame = self.frame().select("3", "qid", "1", "label", "2")
        source = tmp_path / f"test.{kind}"
        if kind == "csv":
            frame.write_csv(source)
        elif kind == "parquet":
            frame.write_parquet(source)
        elif kind == "frame":
            source = frame
        else:
            pandas = pytest.importorskip("pandas")
            source = pandas.DataFrame(
                {int(name) if name.isdigit() else name: frame[name].to_list() for name in frame.columns}
            )
        test = schema.read(source)
        assert torch.equal(test.features, part.features)
        assert torch.equal(test.labels, part.labels)
        assert torch.equal(test.query_ids, part.query_ids)

    def test_names_alone_are_no_row(self, tmp_path, learned):
        """A first line of `3,1,2,qid` or, with sizes in a file beside it, `3,1,2` holds names."""
        _, schema = learned
        content = self.frame().select("3", "1", "2", "qid").write_csv()
        assert len(schema.read(write(tmp_path, content, "test.csv"), labels="optional")) == 3
        write(tmp_path, "2\n1\n", "bare.csv.query")
        bare = schema.read(
            write(tmp_path, self.frame().select("3", "1", "2").write_csv(), "bare.csv"), labels="optional"
        )
        assert bare.features.tolist() == [list(row) for row in self.ROWS]

    def test_features_beyond_the_width_are_ignored_with_a_note_and_absent_ones_are_0(self, tmp_path, learned):
        _, schema = learned
        with pytest.warns(DataNote, match=r"ignored features 4 to 9, which the training data did not have"):
            test = schema.read(write(tmp_path, b"0 qid:1 1:3 9:1\n0 qid:1 2:1 4:2\n", "wide.txt"))
        assert test.features.tolist() == [[3, 0, 0], [0, 1, 0]]
        short = schema.read(write(tmp_path, b"0 qid:1 1:3\n", "short.txt"))
        assert short.features.tolist() == [[3, 0, 0]]

    def test_a_wide_file_takes_no_memory_for_what_is_ignored(self, tmp_path, learned):
        _, schema = learned
        lines = b"".join(b"0 qid:1 1:%d 100000:1\n" % row for row in range(30_000))  # 12 GB if all were kept
        with pytest.warns(DataNote, match="ignored features 4 to 100000"):
            test = schema.read(write(tmp_path, lines, "wide.txt"))
        assert test.features[:, 0].tolist() == list(range(30_000))

    def test_a_width_can_be_stated(self, tmp_path):
        part, schema = read_table(write(tmp_path, self.LINES, "train.txt"), width=5)
        assert part.features.shape == (3, 5)
        assert schema.features == ("1", "2", "3", "4", "5")
        with pytest.raises(ValueError, match=r"width: expected nothing, as .* is not a LETOR file, got 5"):
            read_table(write(tmp_path, GOOD), width=5)

    def test_lines_without_queries_are_refused_if_the_training_data_had_them(self, tmp_path, learned):
        with pytest.raises(ValueError, match=r"new\.txt: expected `qid:number` behind the grade in every line"):
            learned.schema.read(write(tmp_path, b"0 1:3\n", "new.txt"))
        _, schema = read_table(write(tmp_path, b"1 1:3 2:1\n0 1:2\n", "rows.txt"))
        assert schema.read(write(tmp_path, b"0 1:3\n", "new.txt")).query_ids is None

    def test_a_schema_of_a_table_refuses_letor_files(self, tmp_path):
        _, schema = read_table(write(tmp_path, GOOD))
        with pytest.raises(ValueError, match="expected a table with the columns of the training data, got a LETOR"):
            schema.read(write(tmp_path, self.LINES, "new.txt"))

    def test_tables_are_shifted_as_the_training_file_was(self, tmp_path):
        lines = "".join(f"{row % 2} qid:1 1:{16_777_216 + row}\n" for row in range(8))
        part, schema = read_table(write(tmp_path, lines, "train.txt"))
        content = "1,qid\n" + "".join(f"{16_777_216 + row},1\n" for row in range(8))
        test = schema.read(write(tmp_path, content, "test.csv"), labels="optional")
        assert torch.equal(test.features, part.features)
        assert len(part.features.unique()) == 8

    def test_a_saved_schema_reads_the_same(self, tmp_path):
        lines = "".join(f"{row % 2} qid:1 1:{16_777_216 + row} 2:1\n" for row in range(8))
        path = write(tmp_path, lines, "train.txt")
        part, schema = read_table(path)
        again = TableSchema.from_saved(json.loads(json.dumps(schema.to_json())), {})
        assert again == schema
        assert torch.equal(again.read(path).features, part.features)


MANY = "a,y\n" + "1,0\n" * 3000


def test_a_late_line_of_another_type_is_read_or_named(tmp_path):
    table = read_table(write(tmp_path, MANY + "2.5,1\n"))
    assert table.part.features[-1].item() == 2.5
    assert table.part.labels[-1].item() == 1
    assert read_table(write(tmp_path, MANY + "2,yes\n3,yes\n")).schema.classes == ("0", "yes")
    with pytest.raises(ValueError, match="column 'a', line 3002: expected numbers, got text such as 'x'"):
        read_table(write(tmp_path, MANY + "x,1\n"))
    with pytest.raises(ValueError, match="line 3002: expected 2 fields as in the first line, got 3"):
        read_table(write(tmp_path, MANY + "1,1,1\n"))


def test_a_name_with_signs_of_a_pattern_is_a_name(tmp_path):
    check_good(read_table(write(tmp_path, GOOD, "cells[1]*.csv")))
    pl.read_csv(GOOD).write_parquet(tmp_path / "cells[1]*.parquet")
    check_good(read_table(tmp_path / "cells[1]*.parquet"))


BAD_TABLES = {
    "decimal commas": (
        "a;b;y\n1;1,5;0\n2;2,5;1\n",
        {},
        "column 'b': expected numbers with a decimal point, got decimal commas such as '1,5'",
    ),
    "one bad cell": ("a,b,y\n1,1,0\n2,x,1\n3,3,1\n", {}, "column 'b', line 3: expected numbers, got text such as 'x'"),
    "missing": (
        "a,b,y\n1,,0\n2,NA,1\n3,?,1\n4,nan,0\n5,1,1\n",
        {"missing": "error"},
        "column 'b', lines 2, 3, 4 and 1 more: expected a value in every line, got missing cells",
    ),
    "short line": ("a,b,y\n1,2,0\n1,2\n", {}, "column 'y', line 3: expected something in every line"),
    "missing label": ("a,y\n1,\n2,1\n", {}, "column 'y', line 2: expected something"),
    "missing query": ("q,a,y\n,1,0\n2,2,1\n", {"query": "q"}, "column 'q', line 2: expected something"),
    "nothing to fill in": (
        "a,b,y\n1,,0\n2,,1\n",
        {"features": ["a", "b"]},
        "column 'b': expected numbers, categories or dates, got no value in any row",
    ),
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
    "query as label": (GOOD, {"query": "cancer"}, "label: expected another column of .* than the query 'cancer'"),
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


def test_missing_cells_are_left_to_the_model_if_asked(tmp_path):
    table = read_table(write(tmp_path, "a,y\n1,0\n,1\n5,0\n6,0\n"), missing="median")
    assert table.part.features.isnan().flatten().tolist() == [False, True, False, False]


@pytest.mark.parametrize(
    "arrays, message",
    [
        ({"x": np.ones((2, 2))}, r"expected an array called features \(or X\), got x"),
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
    assert table.schema.classes == ("-1", "1")


@pytest.mark.parametrize(
    "form",
    ["1.2{},5", "1,2{}.5", "1 2{}.5", "1'2{}.5", "{}.5%", "${}.50", "{},50 €", "\u2212{}.5", "1.2{}.567"],
)
def test_numbers_as_people_write_them_are_refused_not_left_out(tmp_path, form):
    """Read as text they would differ in every row, and the column would be left out."""
    rows = [f"{form.format(number + 10)};{number % 7};{number % 3 == 0:d}" for number in range(30)]
    (tmp_path / "t.csv").write_text("\n".join(["size;x;y", *rows]) + "\n")
    with pytest.raises(ValueError, match=r"column 'size': expected plain numbers such as -1234\.5"):
        read_table(tmp_path / "t.csv")
    schema = read_table(tmp_path / "t.csv", drop=["size"]).schema
    assert schema.features == ("x",)
    assert read_table(tmp_path / "t.csv", categories=["size"], features=["size", "x"]).schema.encoding.categories


def test_few_values_with_decimal_commas_are_no_categories(tmp_path):
    rows = [f"{('0', '1', '2,5', '1', '2')[number % 5]};{number % 7};{number % 3 == 0:d}" for number in range(30)]
    (tmp_path / "t.csv").write_text("\n".join(["grade;x;y", *rows]) + "\n")
    with pytest.raises(ValueError, match="column 'grade': expected numbers with a decimal point, got '2,5'"):
        read_table(tmp_path / "t.csv")


@pytest.mark.parametrize("form", ["{:02d}.01.2026", "01/{:02d}/2026", "{:02d}-01-26", "{:02d}.01.2026 12:30"])
def test_dates_as_people_write_them_are_refused_not_left_out(tmp_path, form):
    rows = [f"{form.format(number + 1)};{number % 7};{number % 3 == 0:d}" for number in range(30)]
    (tmp_path / "t.csv").write_text("\n".join(["day;x;y", *rows]) + "\n")
    with pytest.raises(ValueError, match="column 'day': expected dates such as 2026-01-31"):
        read_table(tmp_path / "t.csv")


def test_a_class_is_the_same_as_a_whole_number_and_as_a_float(tmp_path):
    pl.DataFrame({"x": [1.0, 2.0, 3.0], "y": [1, 2, 2]}).write_parquet(tmp_path / "whole.parquet")
    pl.DataFrame({"x": [1.0, 2.0, 3.0], "y": [1.0, 2.0, 2.0]}).write_parquet(tmp_path / "float.parquet")
    for first, second in (("whole", "float"), ("float", "whole")):
        part, schema = read_table(tmp_path / f"{first}.parquet", target="classes")
        assert schema.classes == ("2", "1")
        assert schema.read(tmp_path / f"{second}.parquet").labels.tolist() == part.labels.tolist()
