"""The schema of sparse examples: features and labels by name, numbers where there are no names, labels optional."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from scipy import sparse

from rankwise.data import DataNote, SparseSchema, read_arff, read_extreme, read_multilabel

NAMES = ("loud", "long", "sad", "fast")
ROWS = [[0.5, -2.0, 0, 1], [0, 3.0, 1, 0], [1.5, 0, 1, 1]]


def write_arff(path, names, rows):
    kinds = [f"@attribute {name} {'{0,1}' if name in ('sad', 'fast') else 'numeric'}\n" for name in names]
    path.write_text(
        "@relation songs\n" + "".join(kinds) + "@data\n" + "".join(",".join(map(str, r)) + "\n" for r in rows)
    )
    return path


def arff_with(path, names):
    """The same rows with these attributes; those that are not in NAMES hold 7."""
    return write_arff(path, names, [[row[NAMES.index(name)] if name in NAMES else 7 for name in names] for row in ROWS])


@pytest.fixture
def train(tmp_path):
    return read_arff(write_arff(tmp_path / "songs.arff", NAMES, ROWS), labels=2)


def check_same(part, train):
    assert torch.equal(part.features.dense(), train.features.dense())
    assert part.label_names == ("sad", "fast")
    assert part.feature_names == ("loud", "long")


@pytest.mark.parametrize("labels", ["required", "optional"])
def test_attributes_are_found_by_name(train, tmp_path, labels):
    path = arff_with(tmp_path / "new.arff", ("fast", "long", "sad", "loud"))
    part = SparseSchema.of(train).read(path, labels=labels)
    check_same(part, train)
    assert torch.equal(part.labels.dense(), train.labels.dense())


def test_further_attributes_are_ignored_with_a_note(train, tmp_path):
    path = arff_with(tmp_path / "new.arff", ("new", "loud", "long", "other", "sad", "fast"))
    with pytest.warns(DataNote, match="ignored 2 features that the training data did not have: 'new', 'other'"):
        part = SparseSchema.of(train).read(path)
    check_same(part, train)
    assert torch.equal(part.labels.dense(), train.labels.dense())


@pytest.mark.parametrize(
    "names, message",
    [
        (("long", "sad", "fast"), "expected all features of the training data, got none called 'loud'"),
        (("sad", "fast"), "expected all features of the training data, got none called 'loud', 'long'"),
        (("loud", "long", "fast"), "expected all labels of the training data, got none called 'sad'"),
    ],
)
@pytest.mark.parametrize("labels", ["required", "optional"])
def test_missing_attributes_are_named(train, tmp_path, names, message, labels):
    with pytest.raises(ValueError, match=message):
        SparseSchema.of(train).read(arff_with(tmp_path / "new.arff", names), labels=labels)


def test_labels_may_be_absent(train, tmp_path):
    text = "3 2 {labels}\n 0:0.5 1:-2\n 1:3\n 0:1.5\n"
    (tmp_path / "none.txt").write_text(text.format(labels=0))
    (tmp_path / "empty.txt").write_text(text.format(labels=2))
    dense = train.features.dense()
    sources = [
        arff_with(tmp_path / "new.arff", ("long", "loud")),
        tmp_path / "none.txt",
        tmp_path / "empty.txt",
        dense.numpy(),
        sparse.coo_matrix(dense.numpy()),
    ]
    schema = SparseSchema.of(train)
    for source in sources:
        part = schema.read(source, labels="optional")
        check_same(part, train)
        assert part.targets is None
        with pytest.raises(ValueError, match="expected labels, to train or to evaluate, got none"):
            schema.read(source)
        with pytest.raises(ValueError, match="expected labels, to train or to evaluate"):
            _ = part.labels


def test_labels_in_a_file_that_says_it_has_none_are_refused(tmp_path):
    (tmp_path / "wrong.txt").write_text("1 2 0\n1 0:0.5\n")
    with pytest.raises(ValueError, match=r"line 2: expected .* with no label, got '1'"):
        read_extreme(tmp_path / "wrong.txt")


def test_without_names_the_numbers_must_be_equal(train):
    plain = SparseSchema.of(read_multilabel((train.features.dense().numpy(), train.labels.dense().numpy())))
    assert plain.feature_names is None
    for schema in (plain, SparseSchema.of(train)):
        part = schema.read((np.eye(2), np.eye(2)))
        assert torch.equal(part.features.dense(), torch.eye(2))
        with pytest.raises(ValueError, match=r"expected 2 features, as in the training data, .* got 3"):
            schema.read((np.eye(3), np.eye(3)[:, :2]))
        with pytest.raises(ValueError, match=r"expected 2 labels, as in the training data, .* got 3"):
            schema.read((np.eye(3)[:, :2], np.eye(3)))
    assert torch.equal(plain.read(train).labels.dense(), train.labels.dense())


def test_a_saved_schema_is_the_same(train):
    for schema in (SparseSchema.of(train), SparseSchema(5, 3)):
        assert SparseSchema.from_saved(json.loads(json.dumps(schema.to_json())), schema.tensors()) == schema


def test_matrices_of_every_form_are_the_same():
    features, labels = np.array([[0, 2.5], [1, 0], [0, 0]]), np.array([[1, 0], [0, 0], [1, 1]])
    doubled = sparse.coo_matrix(([1.5, 1.0, 1.0, 0.0], ([0, 0, 1, 2], [1, 1, 0, 0])), shape=(3, 2))
    for form in (features, torch.tensor(features), sparse.csr_matrix(features), sparse.csc_array(features), doubled):
        part = read_multilabel((form, labels.astype(bool)))
        assert part.features.dense().tolist() == features.tolist()
        assert part.labels.dense().tolist() == labels.tolist()
        assert len(part.features.values) == 2


@pytest.mark.parametrize(
    "source, error, message",
    [
        (np.eye(2)[0], ValueError, r"features: expected a matrix of one row per example, got shape \(2,\)"),
        ((np.eye(2), 2 * np.eye(2)), ValueError, "labels: expected 0 and 1, got other numbers"),
        ((np.eye(2), np.eye(3)), ValueError, "labels: expected those of 2 examples, got 3"),
        (np.array([[np.inf]]), ValueError, r"features: expected finite numbers \(float32\), got others"),
        (np.array([[1e39]]), ValueError, r"features: expected finite numbers \(float32\), got others"),
        ((1, 2, 3), TypeError, "source: expected a path, a SparsePart, a matrix of features, or a tuple"),
    ],
)
def test_what_is_no_matrix_is_refused(source, error, message):
    with pytest.raises(error, match=message):
        read_multilabel(source)


def test_an_attribute_twice_is_refused(tmp_path):
    path = write_arff(tmp_path / "twice.arff", ("loud", "loud", "sad", "fast"), ROWS)
    with pytest.raises(ValueError, match="line 3: expected a different name for every attribute, got 'loud' again"):
        read_arff(path, labels=2)


@pytest.mark.parametrize("count, end", [(10, "'n19'$"), (11, "'n19' and 1 more$")])
def test_of_many_names_ten_are_shown(train, tmp_path, count, end):
    path = arff_with(tmp_path / "new.arff", (*(f"n{10 + number}" for number in range(count)), *NAMES))
    with pytest.warns(DataNote, match=f"ignored {count} features .*{end}"):
        SparseSchema.of(train).read(path)
