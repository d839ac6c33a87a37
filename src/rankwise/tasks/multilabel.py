"""Many labels per example: rank the labels of each example, or the examples of each label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from rankwise.checks import check_choice
from rankwise.data import Batch, MultiLabel, MultiLabelSplit
from rankwise.losses import LOSSES, ListLoss, ListStatistics, create_loss
from rankwise.metrics import Evaluation, evaluate
from rankwise.models import BagOfWordsScorer
from rankwise.samplers import ShuffledBatchSampler
from rankwise.tasks.batches import batches_of
from rankwise.tasks.inspection import Inspection, SeenLists, spread_over
from rankwise.tasks.rows import JudgedRows, judge_rows, look_at_rows, predict_rows
from rankwise.tasks.task import Outputs

__all__ = ["MultilabelTask"]

# Examples against which to check what a loss remembers.
CHECKED_ROWS = 512


@dataclass(frozen=True)
class MultilabelTask:
    """Score all labels for each example, from a bag of words.

    Attributes:
        data: sparse features and labels.
        loss: a registered name, see `rankwise list losses`.
        loss_options: options of that loss.
        lists: "rows": an example is a list of labels, its own first (NDCG@k, precision@k). "columns": a label is a list
            of examples, those that have it first (AP of each label, the mean of which is macro AP). A batch then holds
            a sample of every list; a loss that can reckon with whole lists is told what they hold.
        hidden: the widths of the hidden layers of the scorer; none is a linear scorer.
        dropout: before its last layer, while training.
        batch_size: examples in every batch.
        metrics: by name; choices are made by the first.

    Example:
        >>> from rankwise.data import SparseRows
        >>> rows = SparseRows(torch.arange(31), torch.arange(30) % 5, torch.ones(30), width=5)
        >>> data = MultiLabel(rows, rows)
        >>> task = MultilabelTask(MultiLabelSplit(data, data, data), loss="song", hidden=(), batch_size=10)
        >>> sorted(task.evaluate(task.build_model(), "test"))
        ['ndcg@3', 'ndcg@5', 'precision@1', 'precision@3']
    """

    data: MultiLabelSplit
    loss: str
    loss_options: Mapping[str, Any] = field(default_factory=dict)
    lists: str = "rows"
    hidden: Sequence[int] = (512,)
    dropout: float = 0.5
    batch_size: int = 64
    metrics: Sequence[str] = ("ndcg@3", "ndcg@5", "precision@1", "precision@3")

    def __post_init__(self) -> None:
        check_choice("lists", self.lists, ("rows", "columns"))

    @property
    def features(self) -> int:
        return self.data.train.features.width

    @property
    def metric(self) -> str:
        return self.metrics[0]

    def build_model(self) -> nn.Module:
        labels = self.data.train.labels.width
        return BagOfWordsScorer(self.features, labels, hidden=self.hidden, dropout=self.dropout)

    def build_loss(self) -> nn.Module:
        options = dict(self.loss_options)
        if self.lists == "columns":
            options["lists"] = "columns"
            if LOSSES.get(self.loss).takes("statistics"):
                rows = self.data.train.labels
                options["statistics"] = ListStatistics(rows.values.long(), rows.columns, size=len(rows))
        return cast(ListLoss, create_loss(self.loss, **options))

    def train_loader(self, seed: int) -> DataLoader[Batch]:
        part = self.data.train
        sampler = ShuffledBatchSampler(torch.zeros(len(part)), batch_size=self.batch_size, drop_last=True, seed=seed)
        return batches_of(_Examples(part), sampler)

    def training_step(
        self, model: nn.Module, loss: nn.Module, batch: Batch, *, previous: Outputs | None = None
    ) -> Tensor:
        rows = self.lists == "rows"
        # Rows are whole lists; in columns each example is an item that a loss may remember.
        value: Tensor = loss(
            model(batch.features),
            batch.labels,
            query_ids=batch.sample_ids if rows else None,
            sample_ids=None if rows else batch.sample_ids[:, None].expand_as(batch.labels),
            previous_scores=None if previous is None else previous(batch.features),
        )
        return value

    def evaluate(self, model: nn.Module, part: str) -> dict[str, float]:
        return self.judge(model, part).means

    def judge(self, model: nn.Module, part: str, *, bootstrap: int = 0) -> Evaluation:
        return self.inspect(model, part, bootstrap=bootstrap).evaluation

    def inspect(self, model: nn.Module, part: str, *, bootstrap: int = 0) -> Inspection:
        check_choice("part", part, ("train", "validation", "test"))
        known: MultiLabel = getattr(self.data, part)
        width = known.labels.width

        def look(rows: Tensor) -> JudgedRows:
            return JudgedRows(known.features.dense(rows), known.labels.dense(rows), None)

        def label(number: int) -> str:
            return f"label {number}" if known.label_names is None else known.label_names[number]

        def example(number: int) -> str:
            return f"example {number}"

        if self.lists == "rows":
            found = judge_rows(model, len(known), width, look, self.metrics, bootstrap=bootstrap)
            seen = look_at_rows(model, look)
            return Inspection(found, "example", "label", "position", seen, example, lambda _, column: label(column))
        scores, labels = predict_rows(model, len(known), width, look), known.labels.dense()
        found = evaluate(scores, labels, self.metrics, lists="columns", bootstrap=bootstrap)

        def columns(numbers: Tensor) -> SeenLists:
            return SeenLists(scores.T[numbers], labels.T[numbers])

        return Inspection(found, "label", "example", "precision", columns, label, lambda _, row: example(row))

    def whole_lists(self) -> Batch:
        return _Examples(self.data.train).__getitems__(spread_over(len(self.data.train), CHECKED_ROWS).tolist())


@dataclass(frozen=True)
class _Examples(Dataset[Batch]):
    """Features (B, D) and labels (B, L) of some examples."""

    known: MultiLabel

    def __len__(self) -> int:
        return len(self.known)

    def __getitem__(self, index: int) -> Batch:
        return self.__getitems__([index])

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        rows = torch.as_tensor(indices)
        return Batch(self.known.features.dense(rows), self.known.labels.dense(rows), rows, rows)
