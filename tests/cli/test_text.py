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


WRONG = {
    "a corpus without a column of texts": (
        {"documents.csv": "id,words,more\nd1,red wing,x\nd2,blue tail,x\n"},
        "documents.csv: expected a column of texts, called 'text' or 'contents'",
    ),
    "an empty corpus": ({"documents.csv": "id,text\n"}, "documents.csv: expected rows below the names"),
    "a corpus without words": ({"documents.csv": "id,text\nd1,\nd2,\nd3,\n"}, "corpus: expected documents with words"),
    "a document twice": (
        {"documents.csv": "id,text\nd1,red wing\nd1,blue tail\n"},
        "documents.csv: expected a different name for every text, got 'd1' twice",
    ),
    "another encoding": (
        {"documents.csv": "id,text\nd1,red wing\nd2,caf\xe9\n".encode("latin-1")},
        "documents.csv, line 3: expected text in UTF-8, got the byte 0xe9",
    ),
    "judgements without a column of queries": (
        {"judgements.csv": "a,document,grade\nred,d1,1\n"},
        "judgements.csv: expected a column of queries, called 'query-id' or 'query_id' or 'query'",
    ),
    "judgements of unknown documents": (
        {"judgements.csv": "query,document,grade\nred,d1,1\nblue,d9,1\nblue,d8,1\n"},
        "judgements: expected documents of the corpus, got 2 others, such as 'd9' for the query 'blue'",
    ),
    "judgements of unknown queries": (
        {"queries.csv": "id,text\nred,what is red\n"},
        "judgements: expected names of the queries given, got 2 others, such as 'blue'",
    ),
    "grades in words": (
        {"judgements.csv": "query,document,grade\nred,d1,high\n"},
        "judgements.csv, column 'grade': expected numbers, got text such as 'high'\n",
    ),
    "nothing relevant": (
        {"judgements.csv": "query,document,grade\nred,d1,0\n"},
        "data.train: expected queries with a relevant document, got none",
    ),
    "too few queries": (
        {"judgements.csv": "query,document,grade\nred,d1,1\n"},
        "data: expected at least 3 queries to cut into parts, got 1",
    ),
    "no judgements": (
        {"judgements.csv": None},
        "texts: expected a file of judgements: qrels/train.tsv, qrels or judgements (.jsonl, .csv, .tsv, .parquet), "
        "got ['documents.csv'] alone",
    ),
    "no documents": ({"documents.csv": None}, "texts: expected a file of documents: corpus or documents"),
    "a broken line of JSON": (
        {"documents.csv": None, "corpus.jsonl": '{"_id": "d1", "text": "red wing"}\n{"_id": "d2",\n'},
        "corpus.jsonl, line 2: expected a JSON object",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_one_sentence_says_what_is_wrong(offline, capsys, what):
    files, expected = WRONG[what]
    right = {
        "documents.csv": "id,text\nd1,red wing\nd2,blue tail\nd3,green nose\n",
        "judgements.csv": "query,document,grade\nred,d1,1\nblue,d2,1\ngreen,d3,2\n",
    }
    (offline / "texts").mkdir()
    for name, content in {**right, **files}.items():
        if content is not None:
            (offline / "texts" / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    assert main(["train", "texts", "--out", "run"]) != 0
    said = capsys.readouterr().err
    assert expected in said
    assert said.count("\n") == 1
    assert not (offline / "run").exists()


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
