"""Texts with many labels in the form of LibMultiLabel: words in order, by number, and a model on them."""

from __future__ import annotations

import bz2

import pytest
import torch

import rankwise
from rankwise.cli import main
from rankwise.data import DataNote, SparseSchema, read_multilabel
from rankwise.data.tokens import TokenRows, read_labelled_texts
from rankwise.problems import MultiLabel
from rankwise.rehearsal import make_data

TOPICS = ("fish", "law", "trade", "tax")


def write(path, rows, *, ids=True):
    """Texts whose words say their labels."""
    lines = []
    for row in range(rows):
        own = [TOPICS[row % 4], *([TOPICS[(row + 1) % 4]] if row % 3 == 0 else [])]
        text = " ".join([f"{topic}word" for topic in own] * 2 + [f"noise{row * 7 % 11}"])
        lines.append("\t".join([*([str(row)] if ids else []), " ".join(own), text.capitalize()]))
    path.write_text("\n".join(lines) + "\n")
    return path


def test_words_are_numbered_by_frequency_and_cut(tmp_path):
    part = read_multilabel(write(tmp_path / "train.txt", 40), vocabulary=5, longest=3)
    assert isinstance(part.features, TokenRows)
    assert part.features.width == 7
    assert part.features.dense().shape == (40, 3)
    assert int(part.features.dense().max()) == 6
    assert part.label_names == ("fish", "law", "tax", "trade")
    assert part.labels.dense()[1].tolist() == [0, 1, 0, 0]


def test_both_forms_and_compressed_files_hold_the_same(tmp_path):
    three, two = write(tmp_path / "a.txt", 9), write(tmp_path / "b.txt", 9, ids=False)
    packed = tmp_path / "c.txt.bz2"
    packed.write_bytes(bz2.compress(three.read_bytes()))
    assert read_labelled_texts(three) == read_labelled_texts(two) == read_labelled_texts(packed)


def test_rows_are_taken_and_joined_in_order(tmp_path):
    rows = read_multilabel(write(tmp_path / "train.txt", 9)).features
    some = rows.take(torch.tensor([8, 0]))
    assert torch.equal(some.join(rows).dense(), rows.dense(torch.tensor([8, 0, *range(9)])))


def test_a_schema_reads_other_texts_alike_and_ignores_new_labels(tmp_path):
    train = read_multilabel(write(tmp_path / "train.txt", 40))
    schema = SparseSchema.of(train, longest=500)
    other = tmp_path / "test.txt"
    other.write_text("1\tfish war\tFishword unheard\n2\t\tLawword\n")
    with pytest.warns(DataNote, match="ignored 1 labels that the training data did not have: 'war'"):
        part = schema.read(other)
    assert part.labels.dense().tolist() == [[1, 0, 0, 0], [0, 0, 0, 0]]
    assert part.features.dense()[0].tolist()[1] == 1
    again = SparseSchema.from_saved(schema.to_json(), {})
    assert again == schema


@pytest.mark.parametrize(
    "text, message",
    [
        ("1\tfish\ttext\n2\tlaw\n", "line 2: expected `labels<TAB>text` or `id<TAB>labels<TAB>text`"),
        ("fish fish\ttext\n", "line 1: expected different labels"),
        ("a\tb\tc\td\n", "line 1: expected `labels<TAB>text`"),
    ],
)
def test_wrong_lines_are_named(text, message, tmp_path):
    path = tmp_path / "bad.txt"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"bad\.txt") as caught:
        read_labelled_texts(path)
    assert message in str(caught.value)


def test_xml_cnn_learns_the_labels_of_texts_and_is_used_again(tmp_path):
    train, test = write(tmp_path / "train.txt", 160), write(tmp_path / "test.txt", 40)
    problem = MultiLabel(
        model={"name": "xml-cnn", "dimensions": 16, "filters": 8, "parts": 2, "bottleneck": 16, "dropout": 0.1},
        data={"train": train, "test": test},
        batches={"size": 32},
        optimiser={"learning_rate": 0.01, "weight_decay": 0.0},
        budget={"steps": 60},
        evaluation={"every": 30},
        refit=False,
        metrics=("ndcg@3", "precision@1"),
    )
    run = rankwise.train(problem, out=tmp_path / "run")
    assert run.test.means["precision@1"] > 0.9
    again = rankwise.load_run(tmp_path / "run")
    assert torch.equal(again.predict(test).outputs, run.predict(test).outputs)
    with pytest.raises(ValueError, match="expected a model of counts of words to export, got one of texts"):
        again.export(tmp_path / "model.onnx")


def test_texts_need_xml_cnn_and_counts_do_not(tmp_path):
    texts = write(tmp_path / "train.txt", 40)
    with pytest.raises(ValueError, match=r"model\.name: expected xml-cnn for texts, got bag-of-words"):
        MultiLabel(data={"train": texts}).read({})
    with pytest.raises(ValueError, match=r"model\.name: expected bag-of-words for counts of words, got xml-cnn"):
        MultiLabel(model={"name": "xml-cnn"}).read({"train": (torch.rand(9, 3), torch.eye(3).repeat(3, 1))})


@pytest.mark.parametrize(
    "options, message",
    [
        ({"filters": 8}, "filters is an option of xml-cnn, got it with bag-of-words"),
        ({"name": "xml-cnn", "hidden": [8]}, "hidden and ridge are options of bag-of-words"),
    ],
)
def test_options_of_the_other_model_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        MultiLabel(model=options)


def test_check_data_reads_texts_and_counts(tmp_path, capsys):
    shapes = {
        "texts": {"rows": [30, 9], "vocabulary": 50, "labels": 6, "words": 20, "own": 2},
        "extreme": {"rows": [30, 9], "features": 50, "labels": 6, "words": 20, "own": 2},
        "arff": {"rows": [30, 9], "features": 50, "labels": 6, "words": 20, "own": 2},
    }
    for layout, sizes in shapes.items():
        (tmp_path / layout).mkdir()
        make_data(tmp_path / layout, {"layout": layout, **sizes})
        path = next(iter(sorted((tmp_path / layout).glob("*train*"))))
        assert main(["check-data", str(path)]) == 0
        assert "30 examples" in capsys.readouterr().out
