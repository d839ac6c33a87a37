"""Text search: rank all documents of a corpus for each query, from graded judgements."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.utils.data import DataLoader

from rankwise.data import (
    Batch,
    Split,
    TextCollection,
    TextPart,
    TextSchema,
    cut_queries,
    learn_texts,
    read_judgements,
    read_texts,
)
from rankwise.metrics import Evaluation, Metric
from rankwise.metrics.names import create_metrics
from rankwise.models import TextRanker
from rankwise.problems.batches import JudgedRows, batches_of, evaluate_rows, measure_grades, predict_rows, show_rows
from rankwise.problems.blending import judged_rows
from rankwise.problems.inspection import Inspection, spread_over
from rankwise.problems.problem import DataOptions, LossChoice, Names, Problem, Settings, Sources, batch_size
from rankwise.samplers import ShuffledBatchSampler
from rankwise.training import Budget, EvaluationOptions, OptimiserOptions, Outputs
from rankwise.training.options import Count, NotNegative, Options, Positive

__all__ = ["TextSearch"]

# Queries on whose complete lists running estimates are compared with exact values.
PROBED_QUERIES = 8
GAIN = "linear"
# Scores held at once where only those of some pairs are wanted.
CELLS = 1 << 22


class TextOptions(DataOptions):
    """A `corpus` of documents, `queries`, and judgements of pairs of both in `train`.

    The corpus and the queries are JSON lines (`_id`, `title`, `text`, as BEIR has them) or tables with a column `text`;
    judgements are TREC qrels, BEIR's TSV, or tables with columns `query`, `document` and `grade`. Without `queries` the
    judgements hold the texts of the queries. `validation` and `test` are judgements too, or shares of the queries.
    """

    corpus: Path | None = None
    queries: Path | None = None


class TextModelOptions(Options):
    """A linear head on the queries' embeddings by a frozen `encoder`, and a shift of those of relevant documents.

    The encoder is a sentence-transformers model by name or folder; without one, static embeddings of so many
    `dimensions` are learned from the corpus.

    The loss sees cosines times `scale`. `k1` and `b` are those of BM25, whose `share` in the mean of standardised
    scores validation chooses.
    """

    encoder: str | None = None
    dimensions: Count = 256
    scale: Positive = 20.0
    k1: Positive = 1.5
    b: Annotated[float, Field(ge=0, le=1)] = 0.75
    share: Annotated[tuple[Annotated[float, Field(ge=0, le=1)], ...], Field(min_length=1)] = (
        *(0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
    )


class TextBatches(Options):
    """Number of `queries` in a batch (32, or all if there are fewer), each with all documents."""

    queries: Count | None = None


class HeadOptimiser(OptimiserOptions):
    """AdamW, or SGD with momentum; weight decay pulls towards the embeddings as they are."""

    learning_rate: Positive = 3e-4
    weight_decay: NotNegative = 0.01


class TextSearch(Problem[TextSchema, TextPart]):
    """Rank all documents of a corpus for each query, by the cosine of their embeddings and by keywords.

    Documents that are not judged for a query count as irrelevant. A head on the queries' embeddings, and the embeddings
    of the documents that are relevant to a training query, are trained by `loss`, and others beside them by
    `second_loss`; validation chooses between them and the embeddings as they are, and the share of BM25. The gain of
    NDCG is the grade, as in trec_eval.

    Example:
        >>> corpus = [f"{colour} {thing}" for colour in ("red", "blue", "green") for thing in ("wing", "tail", "nose")]
        >>> queries = {colour: f"what is {colour}" for colour in ("red", "blue", "green")}
        >>> import polars as pl
        >>> rows = [(query, str(3 * number + each + 1)) for number, query in enumerate(queries) for each in range(3)]
        >>> judgements = pl.DataFrame(rows, schema=["query", "document"], orient="row")
        >>> problem = TextSearch(model={"dimensions": 4})
        >>> schema, split = problem.read({"train": TextCollection(corpus, queries, judgements)})
        >>> problem.evaluate(problem.build_model(schema), split.train).means["recall@100"]
        1.0
    """

    kind: ClassVar[str] = "text-search"
    summary: ClassVar[str] = "texts: rank all documents of a corpus for each query"
    outputs: ClassVar[Literal["scores", "vectors", "boxes"]] = "scores"
    schema_type: ClassVar[type[Any]] = TextSchema

    data: TextOptions = TextOptions()
    model: TextModelOptions = TextModelOptions()
    # A margin of 2 at a scale of 20 is .1 of a cosine.
    loss: LossChoice = LossChoice.of("ndcg", margin=2.0, discount_shift=30.0, gain=GAIN)
    second_loss: LossChoice | None = LossChoice.of("listwise-cross-entropy", gain=GAIN)
    batches: TextBatches = TextBatches()
    optimiser: HeadOptimiser = HeadOptimiser()
    budget: Budget = Budget(steps=300)
    evaluation: EvaluationOptions = EvaluationOptions(every=50, weights="last")
    refit: bool = True
    metrics: Names = ("ndcg@10", "map", "recall@100", "mrr")

    def read(self, sources: Sources) -> tuple[TextSchema, Split[TextPart]]:
        given = self.data.sources(sources)
        whole = given["train"] if isinstance(given["train"], TextCollection) else TextCollection()
        corpus = self.data.corpus if whole.corpus is None else whole.corpus
        if corpus is None:
            raise ValueError("data.corpus: missing; give the file of the documents, or a folder of a text collection")
        model = self.model
        schema = learn_texts(corpus, encoder=model.encoder, dimensions=model.dimensions, k1=model.k1, b=model.b)
        return schema, self.read_with(schema, sources)

    def read_with(self, schema: TextSchema, sources: Sources) -> Split[TextPart]:
        given = self.data.sources(sources)
        queries = None if self.data.queries is None else read_texts(self.data.queries)
        parts: dict[str, TextPart] = {}
        for name in ("train", "validation", "test"):
            if name not in given:
                continue
            source = given[name]
            own = source if isinstance(source, TextCollection) else TextCollection(judgements=source)
            texts = queries if own.queries is None else read_texts(own.queries)
            part = schema.part(read_judgements(own.judgements), texts)
            relevant = (part.labels.starts.diff() > 0).nonzero().squeeze(1)
            if not len(relevant):
                raise ValueError(f"data.{name}: expected queries with a relevant document, got none")
            # A query without a relevant document teaches nothing and has no value of any metric.
            parts[name] = part.take(relevant)
        return Split(**parts)

    def cut(self, split: Split[TextPart], seed: int) -> Split[TextPart]:
        shares = self.data.shares(split)
        if not shares:
            return split
        train, *cut = cut_queries(split.train, shares=(1 - sum(shares.values()), *shares.values()), seed=seed)
        pieces = dict(zip(shares, cut, strict=True))
        return Split(train, pieces.get("validation", split.validation), pieces.get("test", split.test))

    def build_model(self, schema: TextSchema) -> nn.Module:
        return TextRanker(schema.vectors, heads=1 if self.second_loss is None else 2)

    def fit_model(self, model: nn.Module, train: TextPart) -> None:
        """Train the embeddings of the documents that are relevant to a query of the training part, beside the heads."""
        assert isinstance(model, TextRanker)
        model.train_documents(train.labels.columns.unique())

    @torch.no_grad()
    def complete_model(
        self, model: nn.Module, split: Split[TextPart], settings: Mapping[str, Any] | None = None
    ) -> Settings:
        """Choose a head or the embeddings as they are, and the share of the keyword scores.

        Validation chooses the head. For the share of BM25 the validation queries are few, so the training queries count
        too, ranked by the embeddings as they are.
        """
        assert isinstance(model, TextRanker)
        if settings is None:
            validation = split.part("validation")
            by_share = {head: self._by_share(model, validation, head) for head in range(-1, len(model.heads))}
            untrained = self._by_share(model, split.train, -1)
            head = max(by_share, key=lambda each: float(by_share[each].mean(1).max()))
            best = {each: int((by_share[each].sum(1) + untrained.sum(1)).argmax()) for each in (head, -1)}
            settings = {
                "head": head,
                "share": self.model.share[best[head]],
                "validation": float(by_share[head].mean(1)[best[head]]),
                "fusion_share": self.model.share[best[-1]],
            }
        model.choose(settings["head"], settings["share"])
        return dict(settings)

    def _by_share(self, model: TextRanker, part: TextPart, head: int) -> Tensor:
        """Return the first metric of each query (S, Q) for every share of the keyword scores."""
        rows = judged_rows(len(part), len(part.documents))
        features = part.features(rows).to(model.share.device)
        labels = part.labels.dense(rows).to(model.share.device)
        made = self._made[:1]
        values = []
        for share in self.model.share:
            with model.using(head, share):
                values.append(measure_grades(model(features), labels, None, made)[0][made[0].name])
        return torch.stack(values)

    def build_loss(self, schema: TextSchema, train: TextPart, *, steps: int) -> nn.Module:
        choices = [self.loss] if self.second_loss is None else [self.loss, self.second_loss]
        return nn.ModuleList(choice.create() for choice in choices)

    def train_loader(self, train: TextPart, seed: int) -> DataLoader[Batch]:
        size = batch_size("batches.queries", self.batches.queries, 32, len(train), "queries to train on")
        return batches_of(
            train, ShuffledBatchSampler(torch.zeros(len(train)), batch_size=size, drop_last=True, seed=seed)
        )

    def training_step(
        self, model: nn.Module, loss: nn.Module, batch: Batch, *, previous: Outputs | None = None
    ) -> Tensor:
        assert isinstance(loss, nn.ModuleList)
        scores = self.model.scale * model(batch.features)
        before = None if previous is None else self.model.scale * previous(batch.features)
        values = [
            each(
                scores[:, head],
                batch.labels,
                query_ids=batch.query_ids,
                previous_scores=None if before is None else before[:, head],
            )
            for head, each in enumerate(loss)
        ]
        return torch.stack(values).sum()

    def predict(self, model: nn.Module, part: TextPart) -> Tensor:
        """Return the scores (P,) of the pairs that the source named, or (Q, N) of all documents for each query."""
        if part.pairs is None:
            return predict_rows(model, len(part), len(part.documents), part.features)
        queries, documents = part.pairs.unbind(1)
        outputs = torch.empty(len(queries))
        for rows in torch.arange(len(part)).split(max(1, CELLS // len(part.documents))):
            scores = self.predict(model, part.take(rows))
            inside = (queries >= rows[0]) & (queries <= rows[-1])
            outputs[inside] = scores[queries[inside] - rows[0], documents[inside]]
        return outputs

    def inspect(
        self, model: nn.Module, part: TextPart, *, bootstrap: int = 0, calibration: Mapping[str, Any] | None = None
    ) -> Inspection:
        return Inspection(
            self._evaluate(model, part, bootstrap=bootstrap),
            "query",
            "document",
            "position",
            show_rows(model, _reader(part)),
            list_name=lambda query: f"query {part.names[query]}: {part.texts[query]}",
            item_name=lambda _, document: f"document {part.documents[document]}",
        )

    def baselines(self, model: nn.Module, part: TextPart, settings: Mapping[str, Any]) -> dict[str, Evaluation]:
        """Return the metrics of BM25, of the embeddings as they are, and of both together."""
        assert isinstance(model, TextRanker)
        results = {}
        for name, head, share in (("bm25", -1, 1.0), ("zero-shot", -1, 0.0), ("fusion", -1, settings["fusion_share"])):
            with model.using(head, share):
                results[name] = self._evaluate(model, part, bootstrap=0)
        return results

    def probe_batch(self, train: TextPart) -> Batch:
        return train.__getitems__(spread_over(len(train), PROBED_QUERIES).tolist())

    def _evaluate(self, model: nn.Module, part: TextPart, *, bootstrap: int) -> Evaluation:
        width = len(part.documents)
        return evaluate_rows(model, len(part), width, _reader(part), self._made, bootstrap=bootstrap)

    @property
    def _made(self) -> list[Metric]:
        return create_metrics(self.measured, gain=GAIN)


def _reader(part: TextPart) -> Any:
    """Return a function from rows of the part to their features and grades."""
    return lambda rows: JudgedRows(part.features(rows), part.labels.dense(rows), None)
