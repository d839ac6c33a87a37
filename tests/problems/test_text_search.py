"""Text search: from files to a run that searches its corpus."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
import torch

import rankwise as rw
from rankwise.data import DataNote, TextCollection
from rankwise.problems import TextSearch, infer_problem
from rankwise.testing import check_problem
from rankwise.training import fit
from workers.texts import make_texts, write_beir

pytest.importorskip("bm25s")

SHORT = {"budget": {"steps": 6}, "evaluation": {"every": 3}, "model": {"dimensions": 12}}
NAMES = ["query", "document", "grade"]


@pytest.fixture(scope="module")
def collection():
    documents, queries, pairs = make_texts()
    return TextCollection(documents, queries, pl.DataFrame(pairs, NAMES, orient="row"))


@pytest.fixture(scope="module")
def run(collection):
    return rw.train(TextSearch(model={"dimensions": 12}), train=collection)


def test_contract(collection, tmp_path):
    named = collection.judgements.with_columns(pl.col("query").replace(collection.queries))
    named.write_csv(tmp_path / "pairs.csv")
    same = {
        "in another order": named.select(NAMES[::-1]),
        "with further columns": named.with_columns(further=pl.lit("x")),
        "without grades": named.drop("grade"),
        "a file": tmp_path / "pairs.csv",
    }
    refused = {
        "of unknown documents": named.with_columns(document=pl.lit("d999")),
        "without queries": named.drop("query"),
        "empty": named.head(0),
    }
    problem = TextSearch(**SHORT)
    check_problem(problem, {"train": collection}, named, same=same, refused=refused, ignoring=[DataNote])


def test_a_folder_is_inferred_and_trained_and_the_run_needs_neither(tmp_path, monkeypatch):
    folder = write_beir(tmp_path / "set")
    inferred = infer_problem(folder, ["budget.steps=4", "evaluation.every=2"])
    assert inferred.problem.kind == "text-search"
    run = rw.train(inferred.problem, out=tmp_path / "run")
    expected = run.search(["topic1word2 common3"], k=5)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").rename(tmp_path / "elsewhere" / "run")
    monkeypatch.chdir(tmp_path / "elsewhere")
    folder.rename(tmp_path / "gone")
    found = rw.load_run("run").search(["topic1word2 common3"], k=5)
    assert found.columns() == expected.columns()


def test_baselines_are_reported_and_equal_their_definitions(run, collection):
    part = run.part("test")
    rows, labels = torch.arange(len(part)), part.labels.dense()
    keywords, cosines = part.index.scores(part.counts, rows), part.vectors @ run.schema.vectors.T
    share = run.record["settings"]["fusion_share"]

    def standardised(scores):
        return (scores - scores.mean(1, keepdim=True)) / scores.std(1, correction=0, keepdim=True)

    mixed = share * standardised(keywords) + (1 - share) * standardised(cosines)
    for name, scores in {"bm25": keywords, "zero-shot": cosines, "fusion": mixed}.items():
        expected = rw.evaluate(scores, labels, ["ndcg@10"], gain="linear", bootstrap=0).means["ndcg@10"]
        assert run.record["baselines"][name]["ndcg@10"] == pytest.approx(expected, abs=1e-5), name
    assert set(run.test.means) == {"ndcg@10", "map", "recall@100", "mrr"}


def test_training_finds_what_neither_keywords_nor_embeddings_know():
    """Queries in words that no relevant document holds: only judgements tell which documents they want."""
    documents = {f"d{n}": f"body{n % 4} extra{n % 4} filler{n % 5}" for n in range(40)}
    documents |= {f"x{n}": f"ask{n % 4} please{n % 4} other{n % 5}" for n in range(40)}
    queries = {f"q{n}": f"ask{n % 4} please{n % 4}" for n in range(40)}
    pairs = [(f"q{n}", f"d{m}", 1) for n in range(40) for m in range(40) if m % 4 == n % 4]
    judgements = pl.DataFrame(pairs, NAMES, orient="row")
    problem = TextSearch(model={"dimensions": 16}, optimiser={"learning_rate": 0.1})
    run = rw.train(problem, train=TextCollection(documents, queries, judgements))
    assert run.record["baselines"]["fusion"]["ndcg@10"] < 0.7
    assert run.test.means["ndcg@10"] > 0.95


def test_search_is_exact_in_blocks(run, collection, monkeypatch):
    texts = list(collection.queries.values())
    whole = run.search(texts, k=7)
    scores = run.predict(texts).outputs
    torch.testing.assert_close(whole.scores, scores.sort(dim=1, descending=True).values[:, :7])
    monkeypatch.setattr("rankwise.runs.run.SCORES_AT_ONCE", 100)
    blocks = run.search(texts, k=7)
    assert torch.equal(blocks.items, whole.items)
    assert run.search("topic1word1", k=1000).items.shape == (1, 48)


def test_pairs_are_ranked_as_search_ranks_them(run, collection):
    text = next(iter(collection.queries.values()))
    found = run.search(text, k=48).columns()
    shuffled = pl.DataFrame({"query": [text] * 48, "document": sorted(collection.corpus)})
    ranked = run.rank(shuffled)
    assert ranked["row"] == found["document"]
    assert ranked["query"] == [text] * 48


def test_the_scores_of_pairs_do_not_depend_on_the_blocks(run, collection, monkeypatch):
    named = collection.judgements.with_columns(pl.col("query").replace(collection.queries)).sample(fraction=1.0, seed=0)
    whole = run.predict(named).outputs
    monkeypatch.setattr("rankwise.problems.text_search.CELLS", 100)
    torch.testing.assert_close(run.predict(named).outputs, whole)
    texts = list(dict.fromkeys(named["query"]))
    everything = run.predict(texts).outputs
    names = list(collection.corpus)
    expected = [everything[texts.index(query), names.index(document)] for query, document, _ in named.iter_rows()]
    torch.testing.assert_close(whole, torch.stack(expected))


def test_vectors_of_queries_give_the_cosines_of_the_search(run, collection):
    texts = list(collection.queries.values())
    vectors = run.embed(texts).outputs
    torch.testing.assert_close(vectors.norm(dim=1), torch.ones(len(texts)))
    with run.model.using(int(run.model.chosen), 0.0):
        best = run.search(texts, k=1)
    torch.testing.assert_close((vectors @ run.model.document_vectors().T).argmax(1), best.items[:, 0])


def test_only_documents_relevant_to_training_queries_are_moved(collection):
    problem = TextSearch(**SHORT)
    row = pl.int_range(pl.len())
    one_each = collection.judgements.filter(row % 8 == row // 8 % 8)
    schema, split = problem.read({"train": replace(collection, judgements=one_each)})
    cut = problem.cut(split, seed=0)
    model = fit(problem.changed(evaluation={"weights": "last"}), schema, cut, seed=0).model
    relevant = cut.train.labels.dense().gt(0).any(0)
    assert 0 < int(relevant.sum()) < int(split.train.labels.dense().gt(0).any(0).sum())
    model.choose(1, 0.0)  # the softmax moves every one of them
    moved = (model.document_vectors() != schema.vectors).any(1)
    assert torch.equal(moved, relevant)
    torch.testing.assert_close(model.document_vectors().norm(dim=1)[relevant], torch.ones(int(relevant.sum())))
    scores = model.cosines(cut.train.vectors)
    torch.testing.assert_close(scores, model.embed(cut.train.vectors) @ model.document_vectors().T)


def test_evaluation_of_a_source_is_that_of_its_pairs(run, collection):
    named = collection.judgements.with_columns(pl.col("query").replace(collection.queries))
    found = run.evaluate(named, bootstrap=0)
    labels = run.schema.read(named).labels.dense()
    scores = run.predict(list(dict.fromkeys(named["query"]))).outputs
    assert found.means["ndcg@10"] == pytest.approx(
        rw.evaluate(scores, labels, ["ndcg@10"], gain="linear", bootstrap=0).means["ndcg@10"]
    )


def test_the_embeddings_of_the_corpus_are_mapped_from_the_file(collection, tmp_path):
    if not Path("/proc/self/maps").exists():
        pytest.skip("only Linux says which files are mapped")
    rw.train(TextSearch(**SHORT), train=collection, out=tmp_path / "run")
    opened = rw.load_run(tmp_path / "run")
    path = str((tmp_path / "run" / "schema.safetensors").resolve())
    ranges = [line.split()[0].split("-") for line in Path("/proc/self/maps").read_text().splitlines() if path in line]
    address = opened.model.documents.data_ptr()
    assert any(int(low, 16) <= address < int(high, 16) for low, high in ranges)


def test_a_stopped_training_goes_on(collection, tmp_path):
    problem = TextSearch(**{**SHORT, "budget": {"steps": 8}, "evaluation": {"every": 2}})
    whole = rw.train(problem, train=collection, out=tmp_path / "whole")
    rw.train(problem, train=collection, out=tmp_path / "parts")
    folder = tmp_path / "parts"
    for path in [folder / "model.safetensors", folder / "test.json"]:
        path.unlink()
    again = rw.train(problem, train=collection, out=folder, resume=True)
    for name, value in whole.model.state_dict().items():
        assert torch.equal(again.model.state_dict()[name], value), name


def test_what_lacks_documents_is_refused():
    with pytest.raises(ValueError, match=r"data\.corpus: missing"):
        TextSearch().read({"train": pl.DataFrame({"query": ["a"], "document": ["1"]})})
    judgements = pl.DataFrame({"query": ["a"], "document": ["1"], "grade": [0]})
    useless = TextCollection(["red wing", "blue tail"], None, judgements)
    with pytest.raises(ValueError, match="expected queries with a relevant document"):
        TextSearch(model={"dimensions": 1}).read({"train": useless})


def test_a_sentence_transformers_model_encodes(tmp_path, collection):
    """A tiny encoder with random weights: the run knows it by its folder."""
    pytest.importorskip("sentence_transformers")
    from workers.encoders import make_encoder

    folder = make_encoder(tmp_path / "encoder", list(collection.corpus.values()))
    problem = TextSearch(**{**SHORT, "model": {"encoder": str(folder)}})
    run = rw.train(problem, train=collection, out=tmp_path / "run")
    again = rw.load_run(tmp_path / "run")
    texts = list(collection.queries.values())[:3]
    assert again.search(texts, k=4).columns() == run.search(texts, k=4).columns()
    assert run.schema.vectors.shape[1] == 16
    saved = json.loads((tmp_path / "run" / "schema.json").read_text())
    assert saved["encoder"] == str(folder)
    with pytest.raises(ValueError, match=r"model\.encoder: expected a sentence-transformers model"):
        TextSearch(model={"encoder": str(tmp_path / "none")}).read({"train": collection})
