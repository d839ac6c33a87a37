"""Many labels per example: rank the labels of each example, or the examples of each label."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field, field_validator
from torch import Tensor, nn
from torch.utils.data import DataLoader

from rankwise.data import Batch, SparsePart, SparseSchema, Split, cut_multilabel, read_multilabel
from rankwise.losses import ListStatistics
from rankwise.metrics import evaluate
from rankwise.models import BagOfWordsScorer
from rankwise.problems.batches import batches_of
from rankwise.problems.inspection import Inspection, SeenLists, spread_over
from rankwise.problems.problem import Batches, DataOptions, LossChoice, Names, Problem, Sources, batch_size
from rankwise.problems.rows import JudgedRows, evaluate_rows, predict_rows, show_rows
from rankwise.samplers import ShuffledBatchSampler
from rankwise.training import Outputs
from rankwise.training.options import Count, Options

__all__ = ["MultiLabel", "MultiLabelOptions"]

# Examples on which running estimates are compared with exact values.
PROBED_ROWS = 512


class MultiLabelOptions(DataOptions):
    """ARFF files (Mulan, MEKA), or text files of the extreme classification repository. `validation` and `test` are
    files too, or shares of the examples of `train`."""


class BagOfWordsOptions(Options):
    """Vectors of words added up, then further layers; without a `hidden` layer the model is linear."""

    hidden: tuple[Count, ...] = (512,)
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.5


class MultiLabel(Problem[SparseSchema, SparsePart]):
    """Score all labels for each example, from a bag of words.

    `lists`: with "rows" an example is a list of labels, its own first (NDCG@k, precision@k). With "columns" a label is
    a list of examples, those that have it first (AP of each label, the mean of which is macro AP); a batch then holds a
    sample of every list, and a loss that uses the sizes of whole lists gets them.

    Example:
        >>> data = read_multilabel((torch.rand(30, 5), torch.eye(5).repeat(6, 1)))
        >>> problem = MultiLabel(model={"hidden": []}, batches={"size": 10})
        >>> sorted(problem.evaluate(problem.build_model(SparseSchema.of(data)), data).means)
        ['ndcg@3', 'ndcg@5', 'precision@1', 'precision@3']
    """

    kind: ClassVar[str] = "multilabel"
    summary: ClassVar[str] = "examples with many labels: rank labels, or examples"
    outputs: ClassVar[Literal["scores", "vectors", "boxes"]] = "scores"
    schema_type: ClassVar[type[Any]] = SparseSchema

    data: MultiLabelOptions = MultiLabelOptions()
    lists: Literal["rows", "columns"] = "rows"
    model: BagOfWordsOptions = BagOfWordsOptions()
    loss: LossChoice = LossChoice.of("song")
    batches: Batches = Batches()
    metrics: Names = ("ndcg@3", "ndcg@5", "precision@1", "precision@3")

    @field_validator("loss")
    @classmethod
    def _no_option_of_the_problem(cls, loss: LossChoice) -> LossChoice:
        if "lists" in loss.options:
            raise ValueError("expected `lists` beside the loss, not among its options")
        if loss.options.get("prior") == "data":
            raise ValueError("expected a number or a schedule for the prior of a multi-label loss, got data")
        return loss

    def read(self, sources: Sources) -> tuple[SparseSchema, Split[SparsePart]]:
        given = self.data.sources(sources)
        train = read_multilabel(given["train"])
        schema = SparseSchema.of(train)
        others = {name: schema.read(given[name]) for name in ("validation", "test") if name in given}
        return schema, Split(train, **others)

    def cut(self, split: Split[SparsePart], seed: int) -> Split[SparsePart]:
        shares = self.data.shares(split)
        if not shares:
            return split
        train, *cut = cut_multilabel(split.train, shares=(1 - sum(shares.values()), *shares.values()), seed=seed)
        pieces = dict(zip(shares, cut, strict=True))
        return Split(train, pieces.get("validation", split.validation), pieces.get("test", split.test))

    def build_model(self, schema: SparseSchema) -> nn.Module:
        return BagOfWordsScorer(schema.features, schema.labels, hidden=self.model.hidden, dropout=self.model.dropout)

    def build_loss(self, schema: SparseSchema, train: SparsePart, *, steps: int) -> nn.Module:
        options: dict[str, Any] = {}
        if self.lists == "columns":
            options["lists"] = "columns"
            if self.loss.takes("statistics"):
                labels = train.labels
                options["statistics"] = ListStatistics(labels.values.long(), labels.columns, size=len(labels))
        loss: nn.Module = self.loss.create(**options)
        return loss

    def train_loader(self, train: SparsePart, seed: int) -> DataLoader[Batch]:
        size = batch_size("batches.size", self.batches.size, 64, len(train), "rows to train on")
        sampler = ShuffledBatchSampler(torch.zeros(len(train)), batch_size=size, drop_last=True, seed=seed)
        return batches_of(train, sampler)

    def training_step(
        self, model: nn.Module, loss: nn.Module, batch: Batch, *, previous: Outputs | None = None
    ) -> Tensor:
        rows = self.lists == "rows"
        # Rows are whole lists; in columns each example is an item of which a loss may keep state.
        value: Tensor = loss(
            model(batch.features),
            batch.labels,
            query_ids=batch.sample_ids if rows else None,
            sample_ids=None if rows else batch.sample_ids[:, None].expand_as(batch.labels),
            previous_scores=None if previous is None else previous(batch.features),
        )
        return value

    def predict(self, model: nn.Module, part: SparsePart) -> Tensor:
        """Return the scores (N, L) of all labels for each example."""
        return predict_rows(model, len(part), part.features.width, part.features.dense)

    def inspect(
        self, model: nn.Module, part: SparsePart, *, bootstrap: int = 0, calibration: Mapping[str, Any] | None = None
    ) -> Inspection:
        features, targets = part.features, part.labels

        def read(rows: Tensor) -> JudgedRows:
            return JudgedRows(features.dense(rows), targets.dense(rows), None)

        def label(number: int) -> str:
            return f"label {number}" if part.label_names is None else part.label_names[number]

        def example(number: int) -> str:
            return f"example {number}"

        if self.lists == "rows":
            width = max(features.width, targets.width)
            result = evaluate_rows(model, len(part), width, read, self.measured, bootstrap=bootstrap)
            seen = show_rows(model, read)
            return Inspection(result, "example", "label", "position", seen, example, lambda _, column: label(column))
        scores, labels = self.predict(model, part), targets.dense()
        result = evaluate(scores, labels, self.measured, lists="columns", bootstrap=bootstrap)

        def columns(numbers: Tensor) -> SeenLists:
            return SeenLists(scores.T[numbers], labels.T[numbers])

        return Inspection(result, "label", "example", "precision", columns, label, lambda _, row: example(row))

    def probe_batch(self, train: SparsePart) -> Batch:
        return train.__getitems__(spread_over(len(train), PROBED_ROWS).tolist())
