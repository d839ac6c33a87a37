"""From files of texts to `rankwise search`, in an empty folder and without a network."""

from __future__ import annotations

import csv
import io
import socket

import polars as pl
import pytest

from rankwise.cli import main
from rankwise.data import read_trec_run
from workers.texts import make_texts, write_beir

pytest.importorskip("bm25s")

SHORT = ["budget.steps=10", "evaluation.every=5", "model.dimensions=12"]


@pytest.fixture
def offline(tmp_path, monkeypatch):
    """An empty folder, and no way to any other machine."""

    def refuse(*_):
        raise OSError("the network was used")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_from_two_files_to_search(offline, capsys):
    documents, queries, pairs = make_texts()
    (offline / "texts").mkdir()
    pl.DataFrame({"id": list(documents), "text": list(documents.values())}).write_csv("texts/documents.csv")
    rows = [(queries[query], document, grade) for query, document, grade in pairs]
    pl.DataFrame(rows, ["query", "document", "grade"], orient="row").write_csv("texts/judgements.csv")
    assert main(["train", "texts", *SHORT, "--out", "run"]) == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("text-search", "bm25", "zero-shot", "fusion"))
    (offline / "queries.txt").write_text("topic1word2 topic1word3\ntopic4word1\n")
    assert main(["search", "run", "--queries", "queries.txt", "-k", "3"]) == 0
    found = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [(row["query"], row["rank"]) for row in found] == [(q, r) for q in "12" for r in "123"]
    topics = [int(row["document"][1:]) % 6 for row in found]
    assert topics == [1, 1, 1, 4, 4, 4]


def test_from_the_layout_of_beir_to_a_run_file_that_is_judged(offline, capsys):
    write_beir(offline / "set")
    assert main(["train", "set", *SHORT, "--out", "run"]) == 0
    assert main(["search", "run", "--queries", "set/queries.jsonl", "-k", "20", "--out", "found.trec"]) == 0
    run = read_trec_run("found.trec")
    assert len(run.queries) == 30
    assert len(run.documents) == 600
    capsys.readouterr()
    assert main(["evaluate", "found.trec", "--judgements", "set/qrels/test.tsv", "--metric", "mrr"]) == 0
    assert "mrr" in capsys.readouterr().out
    assert main(["evaluate", "run"]) == 0
    assert "ndcg@10" in capsys.readouterr().out


def test_names_with_spaces_are_no_run_file(offline, capsys):
    write_beir(offline / "set")
    assert main(["train", "set", *SHORT, "--out", "run"]) == 0
    (offline / "queries.csv").write_text("id,text\na b,topic1word1\n")
    assert main(["search", "run", "--queries", "queries.csv", "--out", "found.trec"]) != 0
    assert "expected names without spaces" in capsys.readouterr().err
    assert not (offline / "found.trec").exists()


def test_a_gallery_and_an_export_are_refused(offline, capsys):
    write_beir(offline / "set")
    assert main(["train", "set", *SHORT, "--out", "run"]) == 0
    (offline / "queries.txt").write_text("topic1word1\n")
    assert main(["search", "run", "--queries", "queries.txt", "--gallery", "queries.txt"]) != 0
    assert "searches its corpus" in capsys.readouterr().err
    assert main(["export", "run", "model.onnx"]) != 0
    assert "run.search" in capsys.readouterr().err
