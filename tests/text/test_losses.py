"""The losses for sentence-transformers: their values and gradients, without a trainer."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import normalize

import rankwise as rw

pytest.importorskip("sentence_transformers")
pytest.importorskip("datasets")

from sentence_transformers import SentenceTransformer
from sentence_transformers.cross_encoder import CrossEncoder

from rankwise.text import CorpusRankingLoss, CrossEncoderListLoss, GradedRetrievalEvaluator
from workers.encoders import make_cross_encoder, make_encoder
from workers.text_training import collection, lists

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def texts():
    return collection()


@pytest.fixture
def encoder(tmp_path, texts):
    folder = make_encoder(tmp_path, [*texts[0].values(), *texts[1].values()])
    return SentenceTransformer(str(folder), device="cpu").double()


def features(model, rows):
    return [model.preprocess(rows["query"])], torch.tensor(rows["label"])


def gradients(model):
    return {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}


def test_encoding_every_document_gives_the_loss_of_the_whole_corpus_and_its_gradient(encoder, texts):
    documents, queries, judgements = texts
    loss = CorpusRankingLoss(encoder, documents, judgements, relevant=20, best=20, chunk=3)
    rows = loss.dataset(queries)[:5]
    encoder.train()
    value = loss(*features(encoder, rows))
    value.backward()
    found = gradients(encoder)
    encoder.zero_grad()
    asked, all_documents = (
        normalize(encoder(encoder.preprocess(each))["sentence_embedding"], dim=1)
        for each in (rows["query"], list(documents.values()))
    )
    names = list(documents)
    grades = torch.zeros(5, len(names))
    for row, number in enumerate(rows["label"]):
        for name, grade in judgements[list(judgements)[number]].items():
            grades[row, names.index(name)] = grade
    expected = rw.losses.ListwiseCELoss()(20 * asked @ all_documents.T, grades)
    expected.backward()
    torch.testing.assert_close(value, expected)
    for name, gradient in gradients(encoder).items():
        torch.testing.assert_close(found[name], gradient, msg=name)


def test_the_chunks_change_nothing(encoder, texts):
    documents, queries, judgements = texts
    found = []
    encoder.train()
    for chunk in (1, 3, 64):
        encoder.zero_grad()
        loss = CorpusRankingLoss(encoder, documents, judgements, chunk=chunk, best=2)
        loss(*features(encoder, loss.dataset(queries)[:4])).backward()
        found.append(gradients(encoder))
    for other in found[1:]:
        for name, gradient in found[0].items():
            torch.testing.assert_close(other[name], gradient, msg=name)


def test_relevant_documents_are_encoded_and_never_among_the_others(encoder, texts):
    documents, _, judgements = texts
    loss = CorpusRankingLoss(encoder, documents, judgements, relevant=2, best=3)
    grades = torch.tensor([[0.0, 1, 0, 2, 1, 0, 0]])
    scores = torch.tensor([[0.1, 0.9, 0.8, 0.7, 0.2, 0.3, 0.4]])
    # Of the grade 1 the one that is ranked last; of the others the three best.
    assert loss._choose(scores, grades).tolist() == [2, 3, 4, 5, 6]


def test_embeddings_are_renewed_as_promised(encoder, texts):
    documents, queries, judgements = texts
    loss = CorpusRankingLoss(encoder, documents, judgements, refresh=2, relevant=1, best=0)
    rows = loss.dataset(queries)[:1]
    encoder.train()
    loss(*features(encoder, rows))
    first = loss.documents.clone()
    with torch.no_grad():
        next(encoder.parameters()).mul_(-1)
    loss(*features(encoder, rows))
    assert int((loss.documents != first).any(1).sum()) == 1  # the one relevant document
    loss(*features(encoder, rows))
    assert bool((loss.documents != first).any(1).all())
    encoder.eval()
    before = loss.documents.clone()
    with torch.no_grad():
        loss(*features(encoder, rows))
    assert torch.equal(loss.documents, before)
    assert int(loss.step) == 3


def test_state_is_in_the_state_dict(encoder, texts):
    documents, queries, judgements = texts
    loss = CorpusRankingLoss(encoder, documents, judgements)
    encoder.train()
    loss(*features(encoder, loss.dataset(queries)[:2]))
    again = CorpusRankingLoss(encoder, documents, judgements)
    again.load_state_dict(loss.state_dict())
    assert torch.equal(again.documents, loss.documents)
    assert int(again.step) == 1


def test_unknown_documents_and_queries_are_refused(encoder, texts):
    documents, queries, judgements = texts
    with pytest.raises(ValueError, match="got 'd999' for query 'q0'"):
        CorpusRankingLoss(encoder, documents, {"q0": {"d999": 1}})
    with pytest.raises(ValueError, match="got none for 'q0'"):
        CorpusRankingLoss(encoder, documents, judgements).dataset({"q1": queries["q1"]})
    with pytest.raises(TypeError, match="expected a list loss"):
        CorpusRankingLoss(encoder, documents, judgements, torch.nn.MSELoss())


CORPUS = {"d1": "red", "d2": "blue"}
NOT_A_COLLECTION = {
    "documents without names": (["red"], {"q": {"d1": 1}}, "corpus: expected texts by name.*got list"),
    "no documents": ({}, {"q": {"d1": 1}}, "corpus: expected texts, got none"),
    "a document that is no text": ({"d1": 1}, {"q": {"d1": 1}}, "corpus: expected texts by name, got int for 'd1'"),
    "sets of relevant documents": (CORPUS, {"q": {"d1"}}, "expected grades by document.*got set for query 'q'"),
    "pairs": (CORPUS, [("q", "d1")], "expected grades by query and document.*got list"),
    "an unknown document": (CORPUS, {"q": {"d3": 1}}, "expected documents of the corpus, got 'd3' for query 'q'"),
    "grades in words": (CORPUS, {"q": {"d1": "high"}}, "got 'high' for query 'q' and document 'd1'"),
    "nothing relevant": (CORPUS, {"q": {"d1": 0}}, "expected a query with a relevant document, got none"),
}


@pytest.mark.parametrize("what", NOT_A_COLLECTION)
def test_one_sentence_says_what_is_no_collection(encoder, what):
    corpus, judgements, expected = NOT_A_COLLECTION[what]
    with pytest.raises((TypeError, ValueError), match=expected):
        CorpusRankingLoss(encoder, corpus, judgements)
    with pytest.raises((TypeError, ValueError), match=expected):
        GradedRetrievalEvaluator({"q": "red"}, corpus, judgements)


@pytest.mark.parametrize("labels", [None, torch.tensor([99]), torch.tensor([0.5])])
def test_labels_that_are_no_numbers_of_queries_are_refused(encoder, texts, labels):
    documents, _, judgements = texts
    loss = CorpusRankingLoss(encoder, documents, judgements)
    with pytest.raises(ValueError, match=r"expected numbers of the 16 judged queries, as the column `label`"):
        loss([encoder.preprocess(["red"])], labels)


def test_the_evaluator_refuses_unknown_queries_and_metrics_at_once(texts):
    documents, queries, judgements = texts
    with pytest.raises(ValueError, match="expected judged queries among the queries, got 'q0'"):
        GradedRetrievalEvaluator({"q1": queries["q1"]}, documents, judgements)
    with pytest.raises(ValueError, match="unknown metric 'ndgc'"):
        GradedRetrievalEvaluator(queries, documents, judgements, metrics="ndgc@10")


@pytest.mark.parametrize("name", ["listwise-cross-entropy", "ndcg", "top-k-ndcg", "lambdarank"])
def test_lists_of_a_cross_encoder_cost_what_their_scores_cost(tmp_path, texts, name):
    documents, queries, _ = texts
    folder = make_cross_encoder(tmp_path, [*documents.values(), *queries.values()])
    model = CrossEncoder(str(folder), num_labels=1, device="cpu").double()
    rows = {key: values[:6] for key, values in lists(*texts).items()}
    labels = [torch.tensor(each) for each in rows["labels"]]
    model.train()
    value = CrossEncoderListLoss(model, name, chunk=4)([rows["query"], rows["docs"]], labels)
    value.backward()
    found = gradients(model)
    model.zero_grad()
    pairs = [(query, each) for query, docs in zip(rows["query"], rows["docs"], strict=True) for each in docs]
    scores = model(model.preprocess(pairs))["scores"].view(-1)
    sizes = torch.tensor([len(each) for each in labels])
    ids = torch.arange(len(sizes)).repeat_interleave(sizes)
    expected = rw.losses.create_loss(name)(scores, torch.cat(labels), query_ids=ids)
    expected.backward()
    torch.testing.assert_close(value, expected)
    for key, gradient in gradients(model).items():
        torch.testing.assert_close(found[key], gradient, msg=key)


def test_lists_and_labels_of_unlike_lengths_are_refused(tmp_path, texts):
    documents = texts[0]
    model = CrossEncoder(str(make_cross_encoder(tmp_path, documents.values())), num_labels=1, device="cpu")
    loss = CrossEncoderListLoss(model)
    with pytest.raises(ValueError, match=r"expected lists of \[2\] grades.*got \[1\]"):
        loss([["a"], [["b", "c"]]], [torch.tensor([1])])
    with pytest.raises(ValueError, match="got one number each"):
        loss([["a"], [["b"]]], torch.tensor([1]))
    wrong = {
        "2 columns of texts and labels": ([["a"], ["b"]], torch.tensor([1])),
        "3 columns of texts and labels": ([["a"], [["b"]], [["c"]]], [torch.tensor([1])]),
        "2 columns of texts without labels": ([["a"], [["b"]]], None),
    }
    for got, given in wrong.items():
        with pytest.raises(ValueError, match=f"train_dataset: expected a column of queries.*got {got}"):
            loss(*given)


def test_the_evaluator_knows_grades(encoder, texts):
    documents, queries, judgements = texts
    evaluator = GradedRetrievalEvaluator(queries, documents, judgements, name="dev")
    found = evaluator(encoder)
    assert evaluator.primary_metric == "dev_ndcg@10"
    vectors, corpus = (encoder.encode(list(each.values()), convert_to_tensor=True) for each in (queries, documents))
    cosines = normalize(vectors, dim=1) @ normalize(corpus, dim=1).T
    grades = torch.tensor([[judgements[query].get(name, 0) for name in documents] for query in queries])
    expected = rw.evaluate(cosines, grades, ["ndcg@10"], gain="linear", bootstrap=0).means["ndcg@10"]
    assert found["dev_ndcg@10"] == pytest.approx(expected)
    binary = rw.evaluate(cosines, (grades > 0).long(), ["ndcg@10"], bootstrap=0).means["ndcg@10"]
    assert found["dev_ndcg@10"] != pytest.approx(binary)
    assert len(evaluator.evaluation.per_query["map"]) == len(queries)
