"""A file of scores in chunks gives what it gives in one piece."""

from __future__ import annotations

import gzip

import numpy as np
import polars as pl
import pytest
import torch

from rankwise.data import open_score_lists, read_scores, score_lists
from rankwise.metrics import evaluate_grades, merge_evaluations

METRICS = ["ap", "ndcg@3"]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Blocks of 1000 bytes, chunks of about 30 rows."""
    monkeypatch.setattr(
        "rankwise.data.files.read_line_blocks.__kwdefaults__", {"block_bytes": 1000, "on_progress": None}
    )
    monkeypatch.setattr(score_lists, "ROWS_AT_ONCE", 30)


def frame(queries="numbers", shuffled=True, groups=False, lists=40, grades=3):
    random = np.random.default_rng(0)
    rows = 12 * lists
    numbers = np.arange(rows) // 12 * 7 - 30
    columns = {
        "query": numbers if queries == "numbers" else [f"user {number}" for number in numbers],
        "score": random.normal(size=rows).round(1),
        "label": random.integers(0, grades, rows),
    }
    if groups:
        columns["group"] = np.where(np.arange(rows) % 5 == 0, "web", "mail")
    made = pl.DataFrame(columns)
    return made.sample(fraction=1.0, shuffle=True, seed=1) if shuffled else made


def write(path, rows):
    if path.suffix == ".parquet":
        rows.write_parquet(path, row_group_size=50)
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress(rows.write_csv().encode()))
    else:
        rows.write_csv(path, separator="\t" if path.suffix == ".tsv" else ",")
    return path


def evaluate_chunks(path, **columns):
    with open_score_lists(path, **columns) as lists:
        chunks = list(lists)
    judged = [evaluate_grades(c.scores, c.labels, METRICS, query_ids=c.query_ids, bootstrap=0) for c in chunks]
    return len(chunks), merge_evaluations(judged)


@pytest.mark.parametrize("name", ["scores.csv", "scores.tsv", "scores.csv.gz", "scores.parquet"])
@pytest.mark.parametrize("queries", ["numbers", "text"])
@pytest.mark.parametrize("shuffled", [True, False])
def test_chunks_give_the_values_of_the_whole_file(tmp_path, name, queries, shuffled):
    path = write(tmp_path / name, frame(queries, shuffled))
    whole = read_scores(path)
    expected = evaluate_grades(whole.scores, whole.labels, METRICS, query_ids=whole.query_ids)
    chunks, merged = evaluate_chunks(path)
    assert chunks > 3
    assert torch.equal(merged.query_ids, expected.query_ids)
    for metric in METRICS:
        torch.testing.assert_close(
            merged.per_query[metric], expected.per_query[metric], rtol=0, atol=1e-15, equal_nan=True
        )
    assert merged.means == pytest.approx(expected.means, abs=1e-14)
    assert merged.intervals == {name: pytest.approx(each, abs=1e-14) for name, each in expected.intervals.items()}
    assert merged.skipped == expected.skipped
    assert merged.tied == pytest.approx(expected.tied)


def test_ids_that_turn_out_to_be_text_are_numbered_from_the_start(tmp_path):
    rows = frame(shuffled=False).with_columns(pl.col("query").cast(str))
    path = write(
        tmp_path / "scores.csv", pl.concat([rows, pl.DataFrame({"query": ["007"], "score": [0.5], "label": [1]})])
    )
    whole = read_scores(path)
    assert whole.query_names[0] == "-30"
    _, merged = evaluate_chunks(path)
    assert torch.equal(merged.query_ids, whole.query_ids.unique())


def test_groups_keep_their_names_and_rows(tmp_path):
    path = write(tmp_path / "scores.csv", frame(groups=True))
    whole = read_scores(path)
    with open_score_lists(path) as lists:
        assert lists.group_names == dict(enumerate(whole.group_names))
        counts = torch.stack([torch.bincount(chunk.group_ids, minlength=2) for chunk in lists]).sum(0)
    assert torch.equal(counts, torch.bincount(whole.group_ids))


def test_a_file_without_queries_is_one_chunk(tmp_path):
    path = write(tmp_path / "scores.csv", frame(shuffled=False).drop("query"))
    with open_score_lists(path) as lists:
        (chunk,) = lists
        assert (lists.by_query, lists.rows, lists.graded) == (False, 480, True)
    whole = read_scores(path)
    assert torch.equal(chunk.scores, whole.scores)
    assert torch.equal(chunk.labels, whole.labels)


@pytest.mark.parametrize("line", [400, 3])
@pytest.mark.parametrize(
    "cells, said", [("1,x,1", "a finite number, got 'x'"), ("1,,1", "a finite number, got nothing")]
)
def test_a_bad_line_is_named_wherever_it_is(tmp_path, line, cells, said):
    text = frame().write_csv().splitlines()
    text[line - 1] = cells
    path = tmp_path / "scores.csv"
    path.write_text("\n".join(text))
    match = rf"scores.csv, line {line}, column 'score': expected {said}"
    with pytest.raises(ValueError, match=match), open_score_lists(path):
        pass


def test_true_and_false_are_labels_in_every_block(tmp_path):
    rows = frame(grades=2).with_columns(pl.col("label").cast(bool))
    path = write(tmp_path / "scores.csv", rows)
    with open_score_lists(path) as lists:
        assert not lists.graded
        assert sum(int(chunk.labels.sum()) for chunk in lists) == rows["label"].sum()
