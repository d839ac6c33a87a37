"""Readers of text collections, the keyword index and static embeddings."""

from __future__ import annotations

import gzip
import json

import polars as pl
import pytest
import torch

from rankwise.data import (
    TextCollection,
    TextSchema,
    cut_queries,
    learn_texts,
    read_judgements,
    read_texts,
    read_trec_run,
)
from rankwise.data.keywords import KeywordIndex, count_words, split_words
from rankwise.data.text import encode
from rankwise.data.text_files import find_collection
from workers.encoders import make_encoder
from workers.texts import make_texts, write_beir

bm25s = pytest.importorskip("bm25s")

STATIC = {"encoder": None, "dimensions": 8, "k1": 1.5, "b": 0.75}


def test_all_forms_of_texts_say_the_same(tmp_path):
    texts = {"a": "Wings lift. The wing", "b": "Title text of b", "c": 'quoted "words", and a comma'}
    frame = pl.DataFrame({"id": list(texts), "text": list(texts.values())})
    frame.write_csv(tmp_path / "texts.csv")
    frame.write_csv(tmp_path / "texts.tsv", separator="\t")
    frame.rename({"id": "_id"}).write_parquet(tmp_path / "texts.parquet")
    lines = [
        {"_id": "a", "text": texts["a"]},
        {"_id": "b", "title": "Title", "text": "text of b", "metadata": {"x": []}},
    ]
    lines += [{"_id": "c", "title": "quoted", "text": texts["c"]}]  # a text that begins with its title
    content = "\n".join(json.dumps(line, ensure_ascii=False) for line in lines)
    (tmp_path / "texts.jsonl").write_text(content)
    (tmp_path / "more.jsonl.gz").write_bytes(gzip.compress(content.encode()))
    files = ("texts.csv", "texts.tsv", "texts.parquet", "texts.jsonl", "more.jsonl.gz")
    for source in (texts, frame, *(tmp_path / name for name in files)):
        assert dict(zip(*read_texts(source), strict=True)) == texts, source


def test_lines_of_text_are_named_by_number(tmp_path):
    (tmp_path / "queries.txt").write_text("first query\n\nsecond query\n")
    assert read_texts(tmp_path / "queries.txt") == (("1", "2"), ("first query", "second query"))


def test_all_forms_of_judgements_say_the_same(tmp_path):
    frame = pl.DataFrame({"query": ["q1", "q1", "q2"], "document": [7, 8, 9], "grade": [2, 0, 1]})
    frame.write_csv(tmp_path / "pairs.csv")
    frame.write_parquet(tmp_path / "pairs.parquet")
    (tmp_path / "beir.tsv").write_text("query-id\tcorpus-id\tscore\nq1\t7\t2\nq1\t8\t0\nq2\t9\t1\n")
    (tmp_path / "trec.qrels").write_text("q1 0 7 2\nq1 0 8 -1\nq2 0 9 1\n")
    for source in (frame, *(tmp_path / name for name in ("pairs.csv", "pairs.parquet", "beir.tsv", "trec.qrels"))):
        found = read_judgements(source)
        assert found.queries == ("q1", "q2"), source
        assert found.rows.tolist() == [0, 0, 1]
        assert found.documents == ("7", "8", "9")
        assert found.grades.tolist() == [2, 0, 1]


@pytest.mark.parametrize(
    "name, content, said",
    [
        ("a.jsonl", '{"_id": "a", "text": "x"}\nno json\n', "line 2: expected a JSON object"),
        ("a.jsonl", '{"_id": "a"}\n', "line 1: expected a text"),
        ("a.jsonl", '{"_id": "a", "text": "x"}\n{"_id": "a", "text": "y"}\n', "got 'a' twice"),
        ("a.csv", "id,number\n1,2\n", "expected a column of texts"),
        ("a.txt", "\n\n", "expected texts, got none"),
    ],
)
def test_bad_texts_are_refused(tmp_path, name, content, said):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=said):
        read_texts(tmp_path / name)


@pytest.mark.parametrize(
    "name, content, said",
    [
        ("a.qrels", "q1 0 d1 1\nq1 0 d2\n", "line 2: expected `query 0 document grade`"),
        ("a.csv", "query,grade\n1,2\n", "expected a column of documents"),
        ("a.csv", "document,grade\n1,2\n", "expected a column of queries"),
        ("a.csv", "query,document,grade\nq,1,2\nq,2,\n", "expected a grade in every row"),
    ],
)
def test_bad_judgements_are_refused(tmp_path, name, content, said):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=said):
        read_judgements(tmp_path / name)


def test_run_files_are_read(tmp_path):
    (tmp_path / "run.trec").write_text("q1 Q0 d2 1 0.5 tag\nq2 Q0 d1 1 1e-3 tag\n")
    found = read_trec_run(tmp_path / "run.trec")
    assert (found.queries, found.documents, found.scores.tolist()) == (("q1", "q2"), ("d2", "d1"), [0.5, 1e-3])
    (tmp_path / "bad.trec").write_text("q1 Q0 d2 1 high tag\n")
    with pytest.raises(ValueError, match="line 1: expected `query Q0 document rank score tag`"):
        read_trec_run(tmp_path / "bad.trec")


def test_the_files_of_a_folder_are_found(tmp_path):
    assert find_collection(write_beir(tmp_path / "beir")).judgements == {"train": tmp_path / "beir/qrels/test.tsv"}
    (tmp_path / "beir/qrels/train.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\n")
    (tmp_path / "beir/qrels/dev.tsv").write_text("query-id\tcorpus-id\tscore\nq2\td1\t1\n")
    assert sorted(find_collection(tmp_path / "beir").judgements) == ["test", "train", "validation"]
    (tmp_path / "two").mkdir()
    assert find_collection(tmp_path / "two") is None
    (tmp_path / "two/documents.csv").write_text("id,text\n1,x\n")
    (tmp_path / "two/judgements.csv").write_text("query,document\nwhat,1\n")
    files = find_collection(tmp_path / "two")
    assert (files.corpus.name, files.queries, files.judgements["train"].name) == (
        "documents.csv",
        None,
        "judgements.csv",
    )


def test_keyword_scores_are_those_of_bm25s():
    documents, queries, _ = make_texts()
    texts, asked = list(documents.values()), [*queries.values(), "common1 common1 topic0word1", "unknown"]
    index = KeywordIndex.build(texts, k1=1.2, b=0.6)
    found = index.scores(count_words(asked, index.vocabulary), torch.arange(len(asked)))
    peer = bm25s.BM25(k1=1.2, b=0.6)
    peer.index(split_words(texts), show_progress=False)
    expected = torch.stack([torch.from_numpy(peer.get_scores(words)) for words in split_words(asked)])
    torch.testing.assert_close(found, expected)


def test_static_embeddings_do_not_depend_on_the_order_of_the_documents():
    documents, queries, _ = make_texts()
    names = list(documents)
    mixed = {name: documents[name] for name in names[::-1]}
    first, second = (learn_texts(each, **STATIC) for each in (documents, mixed))
    vectors = [schema.embed(list(queries.values())) @ schema.vectors.T for schema in (first, second)]
    torch.testing.assert_close(vectors[0], vectors[1].flip(1), atol=1e-4, rtol=0)


def test_words_that_occur_together_are_near():
    texts = ["engine thrust", "thrust jet", "jet engine", "wing lift", "lift drag", "drag wing"] * 3
    schema = learn_texts(texts, **{**STATIC, "dimensions": 2})
    engine, jet, wing = schema.embed(["engine", "jet", "wing"])
    assert engine @ jet > 0.9 > 0.3 > engine @ wing


def test_a_saved_schema_reads_alike(tmp_path):
    documents, queries, pairs = make_texts()
    schema = learn_texts(documents, **STATIC)
    again = TextSchema.from_saved(json.loads(json.dumps(schema.to_json())), schema.tensors())
    source = TextCollection(
        queries=queries, judgements=pl.DataFrame(pairs, ["query", "document", "grade"], orient="row")
    )
    first, second = schema.read(source), again.read(source)
    rows = torch.arange(len(first))
    torch.testing.assert_close(first.features(rows), second.features(rows))
    torch.testing.assert_close(first.labels.dense(), second.labels.dense())


def test_judgements_of_unknown_documents_and_queries_are_refused():
    documents, queries, _ = make_texts()
    schema = learn_texts(documents, **STATIC)
    with pytest.raises(ValueError, match="1 others, such as 'd999'"):
        schema.read(pl.DataFrame({"query": ["what"], "document": ["d999"], "grade": [1]}))
    judgements = pl.DataFrame({"query": ["q999"], "document": ["d1"]})
    with pytest.raises(ValueError, match="names of the queries given, got 1 others, such as 'q999'"):
        schema.read(TextCollection(queries=queries, judgements=judgements))
    with pytest.raises(ValueError, match="expected judgements"):
        schema.read(["what"])


def test_the_highest_grade_of_a_repeated_pair_counts():
    schema = learn_texts({"a": "red wing", "b": "blue tail", "c": "red tail"}, **{**STATIC, "dimensions": 2})
    pairs = pl.DataFrame({"query": ["red", "red", "red"], "document": ["a", "a", "b"], "grade": [1, 3, 0]})
    part = schema.read(pairs)
    assert part.labels.dense().tolist() == [[3, 0, 0]]
    assert part.row_names == ("a", "a", "b")


def test_queries_are_cut_without_overlap():
    documents, queries, pairs = make_texts()
    schema = learn_texts(documents, **STATIC)
    judgements = pl.DataFrame(pairs, ["query", "document", "grade"], orient="row")
    part = schema.read(TextCollection(queries=queries, judgements=judgements))
    cut = cut_queries(part, shares=(0.6, 0.2, 0.2), seed=1)
    assert [len(each) for each in cut] == [18, 6, 6]
    assert sorted(name for each in cut for name in each.names) == sorted(part.names)
    row = part.names.index(cut[1].names[0])
    torch.testing.assert_close(cut[1].labels.dense()[0], part.labels.dense()[row])
    joined = cut[0].join(cut[2])
    torch.testing.assert_close(joined.features(torch.tensor([18])), cut[2].features(torch.tensor([0])))


def test_queries_and_documents_are_encoded_with_their_own_prompts(tmp_path):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    folder = make_encoder(tmp_path, ["ask state wings lift"])
    model = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
    model.prompts = {"query": "ask ", "document": "state "}
    model.save(str(tmp_path / "prompted"))
    plain = model.encode(["ask wings", "state wings"], normalize_embeddings=True, convert_to_tensor=True)
    for role, expected in zip(("query", "document"), plain, strict=True):
        torch.testing.assert_close(encode(str(tmp_path / "prompted"), ["wings"], role)[0], expected)
