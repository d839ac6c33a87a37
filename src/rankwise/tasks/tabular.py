"""Binary classification of rows of numbers, judged by how the positives rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from rankwise.data import Batch, Split
from rankwise.losses import LOSSES, create_loss
from rankwise.metrics import Evaluation, evaluate
from rankwise.models import MLPScorer, scaled
from rankwise.samplers import BinaryBatchSampler
from rankwise.tasks.batches import batches_of, predict_all, shuffled_batches
from rankwise.tasks.inspection import Inspection, inspect_items, spread_over
from rankwise.tasks.task import Outputs

__all__ = ["TabularTask"]

# Rows of each kind against which to check what a loss remembers.
CHECKED_ROWS = 2048


@dataclass(frozen=True)
class TabularTask:
    """Rank the positive rows first.

    Attributes:
        data: features (N, D), labels 0 or 1.
        loss: a registered name, see `rankwise list losses`.
        loss_options: options of that loss.
        hidden: the widths of the hidden layers of the scorer.
        scaling: of the features, see `rankwise.models.Scaling`; learned from the training part, kept in the model.
        batch_size: rows in a batch.
        positives: positive rows in every batch; None shuffles all rows alike, so a batch holds as many as chance gives.
        metrics: by name; choices are made by the first.

    Example:
        >>> from rankwise.data import load_eights
        >>> task = TabularTask(load_eights(seed=0), loss="soprc", batch_size=64, positives=8)
        >>> batch = next(iter(task.train_loader(seed=0)))
        >>> batch.features.shape, int(batch.labels.sum())
        (torch.Size([64, 64]), 8)
    """

    data: Split
    loss: str
    loss_options: Mapping[str, Any] = field(default_factory=dict)
    hidden: Sequence[int] = (64,)
    scaling: str = "none"
    batch_size: int = 64
    positives: int | None = None
    metrics: Sequence[str] = ("ap",)

    @property
    def features(self) -> int:
        return self.data.train.features.shape[1]

    @property
    def metric(self) -> str:
        return self.metrics[0]

    def build_model(self) -> nn.Module:
        features = self.data.train.features
        return scaled(MLPScorer(features.shape[1], hidden=self.hidden), features, self.scaling)

    def build_loss(self) -> nn.Module:
        loss: nn.Module = create_loss(self.loss, **self.loss_options)
        if LOSSES.get(self.loss).inputs != "scores":
            raise ValueError(f"loss: expected one over scores, got {self.loss!r}, which is over embeddings")
        return loss

    def train_loader(self, seed: int) -> DataLoader[Batch]:
        part = self.data.train
        if self.positives is None:
            return shuffled_batches(part, self.batch_size, seed)
        negatives = self.batch_size - self.positives
        sampler = BinaryBatchSampler(
            part.labels, positives=self.positives, negatives=negatives, drop_last=True, seed=seed
        )
        return batches_of(part, sampler)

    def training_step(
        self, model: nn.Module, loss: nn.Module, batch: Batch, *, previous: Outputs | None = None
    ) -> Tensor:
        before = None if previous is None else previous(batch.features)
        value: Tensor = loss(model(batch.features), batch.labels, sample_ids=batch.sample_ids, previous_scores=before)
        return value

    def predict(self, model: nn.Module, part: str) -> Tensor:
        """Scores (N,) of the rows of a part."""
        return predict_all(model, self.data.part(part).features)

    def evaluate(self, model: nn.Module, part: str) -> dict[str, float]:
        return self.judge(model, part).means

    def judge(self, model: nn.Module, part: str, *, bootstrap: int = 0) -> Evaluation:
        return self.inspect(model, part, bootstrap=bootstrap).evaluation

    def inspect(self, model: nn.Module, part: str, *, bootstrap: int = 0) -> Inspection:
        scores, labels = self.predict(model, part), self.data.part(part).labels
        found = evaluate(scores, labels, self.metrics, bootstrap=bootstrap)
        return inspect_items(found, scores, labels, None, list_word="ranking", item_word="row", curve="precision")

    def whole_lists(self) -> Batch:
        """As many rows of each kind as can be had quickly."""
        part = self.data.train
        kinds = [(part.labels == label).nonzero().squeeze(1) for label in (0, 1)]
        return part.__getitems__(torch.cat([rows[spread_over(len(rows), CHECKED_ROWS)] for rows in kinds]).tolist())
