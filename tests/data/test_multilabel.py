"""Multi-label files: rows come back as they were written, labels where they belong."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rankwise.data import SparseRows, read_arff, read_extreme

HEAD = "@relation 'songs: x'\n% a comment\n@attribute loud numeric\n@ATTRIBUTE 'long name' real\n@attribute sad {0,1}\n"
HEAD += "@attribute fast {0,1}\n\n@data\n"
XML = '<labels xmlns="http://mulan.sourceforge.net/labels"><label name="fast"></label><label name="loud"/></labels>'


def write(folder, content, name="songs.arff"):
    path = folder / name
    path.write_text(content)
    return path


@pytest.mark.parametrize("rows", ["0.5,-1e3,0,1\n% no row\n0,0,1,0\n", "{0 0.5, 1 -1e3,3 1}\n\n{2 1}\n"])
def test_dense_and_sparse_rows_are_the_same(tmp_path, rows):
    data = read_arff(write(tmp_path, HEAD + rows), labels=2)
    assert data.features.dense().tolist() == [[0.5, -1000], [0, 0]]
    assert data.labels.dense().tolist() == [[0, 1], [1, 0]]
    assert data.feature_names == ("loud", "long name")
    assert data.label_names == ("sad", "fast")
    assert len(data) == 2


@pytest.mark.parametrize("name", ["songs.arff", "songs-train.arff", "songs-test.arff"])
def test_labels_named_in_the_xml_file_beside_it(tmp_path, name):
    write(tmp_path, XML, "songs.xml")
    data = read_arff(write(tmp_path, HEAD + "1,5,0,1\n", name))
    assert data.label_names == ("loud", "fast")
    assert data.feature_names == ("long name", "sad")
    assert data.labels.dense().tolist() == [[1, 1]]


@pytest.mark.parametrize(
    "option, labels", [("-C 2", ("loud", "long name")), ("-C -1", ("fast",)), ("-C -2", ("sad", "fast"))]
)
def test_labels_counted_in_the_name_of_the_relation(tmp_path, option, labels):
    data = read_arff(write(tmp_path, HEAD.replace("songs: x", f"songs: {option}") + "{}\n"))
    assert data.label_names == labels


BAD_ARFF = {
    "no data": (HEAD.removesuffix("@data\n"), {"labels": 2}, "expected a line @data, got none"),
    "no rows": (HEAD, {"labels": 2}, "expected attributes and rows, got 4 and 0"),
    "bad head": ("@relation x\n@atribute a real\n", {"labels": 1}, "line 2: expected @relation, @attribute or @data"),
    "no type": ("@attribute a\n@data\n1\n", {"labels": 1}, "line 1: expected `@attribute name type`"),
    "text": ("@attribute a {red,blue}\n@data\n1\n", {"labels": 1}, "line 1: expected numbers as the values of 'a'"),
    "string": ("@attribute a string\n@data\n1\n", {"labels": 1}, "line 1: expected numbers as the values of 'a'"),
    "short row": (HEAD + "1,2,0,1\n1,2,0\n", {"labels": 2}, "line 10: expected 4 values, got 3"),
    "missing": (HEAD + "1,?,0,1\n", {"labels": 2}, r"line 9: expected finite numbers \(float32\), got '\?'"),
    "infinite": (HEAD + "1,1e39,0,1\n", {"labels": 2}, "line 9: expected finite numbers"),
    "label of 2": (HEAD + "1,1,0,1\n1,1,2,1\n", {"labels": 2}, "line 10: expected 0 or 1 as the label 'sad', got 2"),
    "sparse then dense": (HEAD + "{0 1}\n1,1,2,1\n", {"labels": 2}, "line 10: expected `{index value, ...}`"),
    "dense then sparse": (HEAD + "1,1,1,1\n{0 1}\n", {"labels": 2}, "line 10: expected 4 values"),
    "index": (HEAD + "{4 1}\n", {"labels": 2}, "line 9: .* indices from 0 to 3, got '4 1'"),
    "index twice": (HEAD + "{1 1,1 2}\n", {"labels": 2}, "line 9: .* different indices from 0 to 3, got '1 2'"),
    "no value": (HEAD + "{1}\n", {"labels": 2}, "line 9: expected `index number`"),
    "not closed": (HEAD + "{1 1}\n{1 1\n", {"labels": 2}, "line 10: expected `{index value"),
    "other default": (
        "@attribute a {1,0}\n@attribute b {0,1}\n@data\n{1 1}\n",
        {"labels": 1},
        "expected attributes whose first value is 0.* got 'a'",
    ),
    "labels unknown": (HEAD + "1,1,1,1\n", {}, r"labels: expected how many .* got None"),
    "too many labels": (
        HEAD + "1,1,1,1\n",
        {"labels": 4},
        "labels: expected a number from 1 to 3, as .* has 4 attributes, got 4",
    ),
}


@pytest.mark.parametrize("content, options, message", BAD_ARFF.values(), ids=BAD_ARFF)
def test_a_bad_arff_file_is_refused(tmp_path, content, options, message):
    with pytest.raises(ValueError, match=message):
        read_arff(write(tmp_path, content), **options)


@pytest.mark.parametrize(
    "xml, message",
    [
        ("<labels>", "expected an XML file of labels, got"),
        ("<labels/>", "expected <label name=...>, got none"),
        ('<labels><label name="sadd"/></labels>', "expected labels that are attributes of .*, got 'sadd'"),
    ],
)
def test_a_bad_xml_file_is_refused(tmp_path, xml, message):
    path = write(tmp_path, HEAD + "1,1,1,1\n")
    with pytest.raises(ValueError, match=message):
        read_arff(path, labels=write(tmp_path, xml, "names.xml"))


BAD_EXTREME = {
    "no head": ("0,1 1:2\n", "line 1: expected three whole numbers: examples, features, labels"),
    "too few": ("2 4 3\n0 1:2\n", "expected 2 examples, as its first line says, got 1"),
    "label too large": ("1 4 3\n3 1:2\n", "line 2: .* labels from 0 to 2, got '3'"),
    "label twice": ("1 4 3\n1,1 1:2\n", "line 2: .* different labels from 0 to 2, got '1'"),
    "label is no number": ("1 4 3\na 1:2\n", "line 2: .* labels from 0 to 2, got 'a'"),
    "label with a point": ("1 4 3\n1.5 1:2\n", "line 2: .* labels from 0 to 2, got '1.5'"),
    "index too large": ("2 4 3\n0 1:2\n0 4:2\n", "line 3: .* indices from 0 to 3, got '4:2'"),
    "index not increasing": ("1 4 3\n0 2:2 1:2\n", "line 2: .* indices from 3 to 3, got '1:2'"),
    "no value": ("1 4 3\n0 2:\n", r"line 2: expected a finite number \(float32\) as feature 2"),
    "nan": ("1 4 3\n0 2:nan\n", r"line 2: expected a finite number \(float32\) as feature 2"),
}


@pytest.mark.parametrize("content, message", BAD_EXTREME.values(), ids=BAD_EXTREME)
def test_a_bad_extreme_file_is_refused(tmp_path, content, message):
    with pytest.raises(ValueError, match=message):
        read_extreme(write(tmp_path, content, "train.txt"))


value = st.floats(width=32, allow_nan=False, allow_infinity=False).filter(lambda number: number != 0)
examples = st.lists(
    st.tuples(st.sets(st.integers(0, 4)), st.dictionaries(st.integers(0, 6), value, max_size=7)),
    min_size=1,
    max_size=15,
)


def dense(rows) -> tuple[torch.Tensor, torch.Tensor]:
    features, labels = torch.zeros(len(rows), 7), torch.zeros(len(rows), 5)
    for place, (own, cells) in enumerate(rows):
        labels[place, list(own)] = 1
        for index, number in cells.items():
            features[place, index] = number
    return features, labels


@given(examples)
def test_an_extreme_file_is_read_as_written(tmp_path_factory, rows):
    rows = [(own, cells) if own or cells else ({0}, cells) for own, cells in rows]
    text = f"{len(rows)} 7 5\n" + "".join(
        ",".join(map(str, own)) + " " + " ".join(f"{index}:{cells[index]!r}" for index in sorted(cells)) + "\n"
        for own, cells in rows
    )
    data = read_extreme(write(tmp_path_factory.mktemp("extreme"), text, "x.txt"))
    features, labels = dense(rows)
    assert torch.equal(data.features.dense(), features)
    assert torch.equal(data.labels.dense(), labels)


@given(examples, st.booleans())
def test_an_arff_file_is_read_as_written(tmp_path_factory, rows, sparse):
    features, labels = dense(rows)
    lines = []
    for row in torch.cat([features, labels], 1).tolist():
        if sparse:
            lines.append("{" + ", ".join(f"{place} {cell!r}" for place, cell in enumerate(row) if cell) + "}")
        else:
            lines.append(",".join(map(repr, row)))
    head = "".join(f"@attribute a{place} {'numeric' if place < 7 else '{0,1}'}\n" for place in range(12))
    path = write(tmp_path_factory.mktemp("arff"), "@relation r\n" + head + "@data\n" + "\n".join(lines))
    data = read_arff(path, labels=5)
    assert torch.equal(data.features.dense(), features)
    assert torch.equal(data.labels.dense(), labels)


@given(
    st.lists(st.lists(st.sampled_from([0.0, 0.0, 1.0, 2.5]), min_size=4, max_size=4), min_size=1, max_size=8), st.data()
)
def test_a_batch_of_sparse_rows_is_that_of_dense_rows(rows, data):
    matrix = torch.tensor(rows)
    counts = (matrix != 0).sum(1)
    starts = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    sparse = SparseRows(starts, matrix.nonzero()[:, 1], matrix[matrix != 0], width=4)
    chosen = torch.tensor(data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=9)), dtype=torch.int64)
    assert torch.equal(sparse.dense(chosen), matrix[chosen])
    assert torch.equal(sparse.dense(), matrix)


@pytest.mark.realdata
def test_bibtex(real_data):
    folder = real_data("bibtex")
    train, test, both = (read_arff(folder / f"bibtex{part}.arff") for part in ("-train", "-test", ""))
    assert (len(train), len(test)) == (4_880, 2_515)
    assert {part.features.width for part in (train, test, both)} == {1_836}
    assert {part.labels.width for part in (train, test, both)} == {159}
    assert all(name.startswith("TAG_") for name in train.label_names)
    assert int(train.labels.values.sum() + test.labels.values.sum()) == int(both.labels.values.sum())
    assert np.isin(train.features.values.numpy(), [1]).all()
