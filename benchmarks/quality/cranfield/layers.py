"""`python -m benchmarks.quality.cranfield.layers --encoder FOLDER [--what LoRA]`: the last layer of an encoder.

MNRL and `CorpusRankingLoss` train the last transformer layer, all of its weights or a LoRA of rank 16 (needs peft).
Both take the same batches of 32 queries and at most 3 documents for each (MNRL: a relevant one at random and 2 hard
negatives of the frozen encoder, known positives masked; ours: the relevant 2 and the best-ranked 1, softmax over all
documents), AdamW, 12 steps, bf16, no dropout; the rate of two is chosen on validation, a fifth of the training queries.
The share of BM25 is chosen as in text search. There is no second training on the validation queries, so these rows
compare with each other, not with those of heads. The hidden states that enter the layer are computed once.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize
from torch.nn.utils.rnn import pad_sequence

from benchmarks.quality.cranfield.data import FOLDS, folds, load
from benchmarks.quality.cranfield.results import METRICS, read_rows, table, write_rows
from rankwise.data import TextPart, TextSchema, cut_queries, learn_texts
from rankwise.losses import ListwiseCELoss
from rankwise.models import TextRanker
from rankwise.problems import TextSearch
from rankwise.text import CorpusRankingLoss

QUERIES, STEPS, CHUNK = 32, 12, 32
RELEVANT, BEST, HARD = 2, 1, 2
LORA = {"r": 16, "lora_alpha": 32, "target_modules": ["query", "key", "value", "dense"]}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
RATES = {"last layer": (1e-4, 3e-4), "LoRA": (1e-3, 3e-3)}


def entering_states(encoder: Any, texts: Sequence[str]) -> dict[str, Tensor]:
    """Return by text the hidden states (T, d) that enter the last layer."""
    states: dict[str, Tensor] = {}
    entering: list[Tensor] = []
    hook = encoder[0].auto_model.encoder.layer[-1].register_forward_pre_hook(lambda _, given: entering.append(given[0]))
    ordered = sorted(set(texts), key=len)
    for first in range(0, len(ordered), CHUNK):
        chunk = ordered[first : first + CHUNK]
        with torch.no_grad():
            features = encoder.preprocess(chunk)
            encoder(features)
        lengths = features["attention_mask"].sum(1).tolist()
        found = zip(chunk, entering.pop(), lengths, strict=True)
        states |= {text: each[:length].clone() for text, each, length in found}
    hook.remove()
    return states


class CachedLayer(nn.Module):
    """The last layer of an encoder and mean pooling, on hidden states that entered it before.

    Args:
        layer: the layer.
        states: by text, of all texts that it will see.
    """

    device = torch.device("cpu")

    def __init__(self, layer: nn.Module, states: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.layer, self.states = layer, states

    def get_embedding_dimension(self) -> int:
        return int(next(iter(self.states.values())).shape[1])

    def preprocess(self, texts: Sequence[str], **_: Any) -> dict[str, Tensor]:
        """Return the padded hidden states (B, T, d) of texts and which of them are real (B, T)."""
        states = [self.states[text] for text in texts]
        lengths = torch.tensor([len(each) for each in states])
        padded = pad_sequence(states, batch_first=True)
        return {"states": padded, "real": torch.arange(padded.shape[1]) < lengths[:, None]}

    def forward(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        real = features["real"]
        attended = torch.zeros(real.shape).masked_fill(~real, torch.finfo(torch.float32).min)
        states = self.layer(features["states"], attended[:, None, None]).float() * real[..., None]
        return {"sentence_embedding": states.sum(1) / real.sum(1, keepdim=True)}

    def embed(self, texts: Sequence[str]) -> Tensor:
        """Return the unit vectors (N, d) of texts, encoded in chunks of like lengths."""
        order = sorted(range(len(texts)), key=lambda row: len(self.states[texts[row]]))
        chunks = [order[first : first + CHUNK] for first in range(0, len(order), CHUNK)]
        found = [self(self.preprocess([texts[row] for row in chunk]))["sentence_embedding"] for chunk in chunks]
        return normalize(torch.cat(found)[torch.tensor(order).argsort()], dim=1)


class Material(NamedTuple):
    """A collection with the vectors of the frozen encoder."""

    schema: TextSchema
    whole: TextPart
    corpus: tuple[str, ...]
    frozen: CachedLayer


BatchLoss = Callable[[Tensor], Tensor]


def in_batch(model: CachedLayer, train: TextPart, material: Material) -> BatchLoss:
    """Return the loss of a batch of queries by MNRL with masks and hard negatives."""
    labels = train.labels.dense(torch.arange(len(train)))
    frozen = (train.vectors @ material.schema.vectors.T).masked_fill(labels > 0, -torch.inf)
    hard = frozen.topk(HARD, dim=1).indices

    def value(rows: Tensor) -> Tensor:
        grades = labels[rows]
        positives = torch.rand(grades.shape).mul_(grades > 0).argmax(1)
        columns = torch.cat([positives, hard[rows].flatten()])
        # A document that is drawn twice is encoded once.
        documents, number = columns.unique(return_inverse=True)
        vectors = model.embed([material.corpus[each] for each in documents.tolist()])[number]
        scores = 20 * model.embed([train.texts[row] for row in rows.tolist()]) @ vectors.T
        known = grades[:, columns] > 0
        known[torch.arange(len(rows)), torch.arange(len(rows))] = False
        return cross_entropy(scores.masked_fill(known, -torch.inf), torch.arange(len(rows)))

    return value


def whole_corpus(model: CachedLayer, train: TextPart, material: Material) -> BatchLoss:
    """Return the loss of a batch of queries by `CorpusRankingLoss`."""
    # Documents that are encoded together are of like lengths if the corpus is in the order of lengths.
    texts = dict(zip(material.schema.documents, material.corpus, strict=True))
    corpus = dict(sorted(texts.items(), key=lambda each: len(model.states[each[1]])))
    judged: dict[str, dict[str, float]] = {name: {} for name in train.names}
    labels = train.labels.dense(torch.arange(len(train)))
    for row, column in labels.nonzero().tolist():
        judged[train.names[row]][material.schema.documents[column]] = float(labels[row, column])
    loss = CorpusRankingLoss(
        model, corpus, judged, ListwiseCELoss(gain="linear"),
        relevant=RELEVANT, best=BEST, chunk=CHUNK,
    ).train()  # fmt: skip

    def value(rows: Tensor) -> Tensor:
        return loss([model.preprocess([train.texts[row] for row in rows.tolist()])], rows)

    return value


LOSSES = {"MNRL": in_batch, "rankwise": whole_corpus}


def prepare(name: str, kept: Path | None) -> Material:
    """Return Cranfield with the vectors of a frozen encoder, and its hidden states, kept in a file if one is given."""
    texts = load()
    corpus, queries = tuple(texts.corpus.values()), tuple(texts.queries.values())
    encoder = SentenceTransformer(name, device="cpu", config_kwargs=NO_DROPOUT)
    if kept is not None and kept.is_file():
        states = torch.load(kept, weights_only=True)
    else:
        states = entering_states(encoder, [*corpus, *queries])
        if kept is not None:
            torch.save(states, kept)
    frozen = CachedLayer(encoder[0].auto_model.encoder.layer[-1], states).eval()
    static = learn_texts(texts.corpus, encoder=None, dimensions=8, k1=1.5, b=0.75)
    with torch.no_grad():
        schema = replace(static, vectors=frozen.embed(corpus))
        whole = replace(static.read(texts), vectors=frozen.embed(queries))
    return Material(schema, whole, corpus, frozen)


def fine_tune(what: str, name: str, rate: float, train: TextPart, material: Material, seed: int) -> CachedLayer:
    """Return the model after training."""
    model = CachedLayer(copy.deepcopy(material.frozen.layer), material.frozen.states)
    torch.manual_seed(seed)
    if what == "LoRA":
        from peft import LoraConfig, inject_adapter_in_model

        inject_adapter_in_model(LoraConfig(**LORA), model)
    weights = [each for each in model.parameters() if each.requires_grad]
    optimiser = torch.optim.AdamW(weights, lr=rate, weight_decay=0.01)
    value = LOSSES[name](model.train(), train, material)
    order = torch.Generator().manual_seed(seed)
    batches: list[Tensor] = []
    for _ in range(STEPS):
        if not batches:
            batches = list(torch.randperm(len(train), generator=order).split(QUERIES)[: len(train) // QUERIES])
        with torch.autocast("cpu", torch.bfloat16):
            current = value(batches.pop())
        optimiser.zero_grad()
        current.backward()
        optimiser.step()
    return model.eval()


def measure(what: str, name: str, material: Material, fold: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield a row for each method and each query of a fold."""
    queries = folds(len(material.whole))[fold]
    rest = sorted(set(range(len(material.whole))) - set(queries))
    test, others = (material.whole.take(torch.tensor(each)) for each in (queries, rest))
    train, validation = cut_queries(others, shares=(0.8, 0.2), seed=seed)
    problem = TextSearch(metrics=METRICS)
    shares = problem.model.share
    frozen = TextRanker(material.schema.vectors, heads=1)

    def ndcg(model: TextRanker, part: TextPart) -> Tensor:
        """Return NDCG@10 (S, Q) of each query for every share of BM25."""
        values = []
        for share in shares:
            with model.using(-1, share):
                values.append(torch.as_tensor(problem.evaluate(model, part).per_query["ndcg@10"]))
        return torch.stack(values)

    def note(method: str, model: TextRanker, part: TextPart, share: float) -> Iterator[dict[str, Any]]:
        with model.using(-1, share):
            found = problem.evaluate(model, part).per_query
        for row, query in enumerate(test.names):
            values = {metric: round(float(found[metric][row]), 5) for metric in METRICS}
            yield {
                "encoder": what, "family": name, "method": method, "fold": fold, "seed": seed, "query": query, **values
            }  # fmt: skip

    # As in text search: the training queries, ranked by the frozen embeddings, count for the share of BM25, too.
    of_training = ndcg(frozen, train).sum(1)
    tried = []
    for rate in RATES[what]:
        tuned = fine_tune(what, name, rate, train, material, seed)
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            model = TextRanker(tuned.embed(material.corpus), heads=1)
            asked = replace(validation, vectors=tuned.embed(validation.texts))
            searched = replace(test, vectors=tuned.embed(test.texts))
        by_share = ndcg(model, asked)
        best = int((by_share.sum(1) + of_training).argmax())
        tried.append((float(by_share[best].mean()), shares[best], model, searched))
        print(f"  {what}, {name}, rate {rate:g}: validation {tried[-1][0]:.4f}, share {shares[best]:g}", flush=True)
    _, share, model, searched = max(tried, key=lambda each: each[0])
    yield from note(f"{name} + BM25", model, searched, share)
    yield from note(f"{name}, alone", model, searched, 0.0)
    if name == "MNRL":
        best = int((ndcg(frozen, validation).sum(1) + of_training).argmax())
        for other, share in {"BM25": 1.0, "zero-shot": 0.0, "fusion": shares[best]}.items():
            yield from note(other, frozen, test, share)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--encoder", required=True, help="a sentence-transformers model, by name or folder")
    parser.add_argument("--states", type=Path, help="where to keep the hidden states, a .pt file")
    parser.add_argument("--what", choices=tuple(RATES), default="last layer")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--folds", type=int, default=FOLDS)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("layers.csv"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    material = prepare(options.encoder, options.states)
    rows = read_rows(options.out)
    done = {(row["encoder"], row["family"], int(row["fold"]), int(row["seed"])) for row in rows}
    for seed, fold, name in product(range(options.seeds), range(options.folds), LOSSES):
        if (options.what, name, fold, seed) in done:
            continue
        begin = time.process_time()
        rows += measure(options.what, name, material, fold, seed)
        print(f"{options.what}, {name}, fold {fold}, seed {seed}: {time.process_time() - begin:.0f} s CPU", flush=True)
        write_rows(options.out, rows)
    rivals = {"fusion": "fusion", "MNRL + BM25": "MNRL + BM25", "MNRL, alone": "MNRL, alone"}
    for what in dict.fromkeys(row["encoder"] for row in rows):
        print(f"\n## {what}\n\n{table(rows, what, lambda _: rivals)}")


if __name__ == "__main__":
    main()
