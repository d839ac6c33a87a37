"""The training of an encoder's last layer from hidden states that were computed once, and the tables of results."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest
import torch

pytest.importorskip("sentence_transformers")
pytest.importorskip("datasets")
pytest.importorskip("bm25s")

from sentence_transformers import SentenceTransformer

from benchmarks.quality.cranfield.layers import LOSSES, CachedLayer, Material, entering_states, fine_tune
from benchmarks.quality.cranfield.results import METRICS, table
from rankwise.data import TextCollection, learn_texts
from workers.encoders import make_encoder
from workers.text_training import collection

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def material(tmp_path_factory):
    documents, queries, judgements = collection()
    texts = [*documents.values(), *queries.values()]
    encoder = SentenceTransformer(str(make_encoder(tmp_path_factory.mktemp("encoder"), texts)), device="cpu")
    frozen = CachedLayer(encoder[0].auto_model.encoder.layer[-1], entering_states(encoder, texts)).eval()
    assert torch.allclose(
        frozen.embed(texts), encoder.encode(texts, convert_to_tensor=True, normalize_embeddings=True), atol=1e-6
    )
    schema = learn_texts(documents, encoder=None, dimensions=4, k1=1.5, b=0.75)
    rows = [(query, name, grade) for query, own in judgements.items() for name, grade in own.items()]

    judged = pl.DataFrame(rows, ["query", "document", "grade"], orient="row")
    whole = schema.read(TextCollection(queries=queries, judgements=judged))
    with torch.no_grad():
        vectors = frozen.embed(list(documents.values()))
        asked = frozen.embed(list(whole.texts))

    return Material(replace(schema, vectors=vectors), replace(whole, vectors=asked), tuple(documents.values()), frozen)


@pytest.mark.parametrize("name", LOSSES)
def test_both_losses_train_a_copy_of_the_layer_from_cached_states(material, monkeypatch, name):
    monkeypatch.setattr("benchmarks.quality.cranfield.layers.QUERIES", 4)
    before = {key: value.clone() for key, value in material.frozen.state_dict().items()}
    tuned = fine_tune("last layer", name, 1e-3, material.whole, material, seed=0)
    assert all(torch.equal(before[key], value) for key, value in material.frozen.state_dict().items())
    after = tuned.state_dict()
    assert all(value.isfinite().all() for value in after.values())
    assert any(not torch.equal(before[key], value) for key, value in after.items())
    again = fine_tune("last layer", name, 1e-3, material.whole, material, seed=0).state_dict()
    assert all(torch.equal(after[key], value) for key, value in again.items())


def test_a_table_has_the_queries_and_seeds_that_were_measured():
    def row(method, query, seed, value):
        return {
            "encoder": "e", "method": method, "query": query, "seed": seed, **dict.fromkeys(METRICS, value)
        }  # fmt: skip

    rows = [row("a", str(query), seed, 0.5) for query in range(4) for seed in ("0", 0, 1)]
    rows += [row("b", str(query), 0, 0.25) for query in range(3)]
    found = table(rows, "e", lambda methods: {"the best": methods[0]})
    assert found.startswith("3 queries.\n")
    assert "| a | 2 | 0.5000 | 0.5000 | 0.5000 |  |" in found
    assert "| b | 1 | 0.2500 | 0.2500 | 0.2500 | -0.2500" in found
