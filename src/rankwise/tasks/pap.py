"""Recommendation lists judged by pAp@k: each user's best positives above the best negatives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn
from torch.utils.data import DataLoader

from rankwise.data import Batch, Split
from rankwise.losses import LOSSES, create_loss
from rankwise.metrics import Evaluation, evaluate
from rankwise.models import MLPScorer, scaled
from rankwise.samplers import ClassBatchSampler
from rankwise.tasks.batches import batches_of, predict_all
from rankwise.tasks.inspection import Inspection, inspect_items, some_lists
from rankwise.tasks.task import Outputs

__all__ = ["PApTask"]


@dataclass(frozen=True)
class PApTask:
    """Rank the items of every user, the liked ones first.

    Attributes:
        data: features (N, D), labels 0 or 1, and the user of each row in `query_ids`.
        loss: a registered name, see `rankwise list losses`.
        loss_options: options of that loss; one that takes `k` is given the task's unless it stands here.
        k: the k of the metric.
        hidden: the widths of the hidden layers of the scorer; none is a linear scorer.
        scaling: of the features, see `rankwise.models.Scaling`; learned from the training part, kept in the model.
        users: users in every batch.
        items: rows of each of them, users with fewer bring all they have; None takes whole lists.
        metrics: to be measured besides pAp@k.

    Example:
        >>> import torch
        >>> from rankwise.data import Part
        >>> part = Part(torch.rand(40, 3), torch.arange(40) % 2, torch.arange(40) // 10)
        >>> task = PApTask(Split(part, part, part), k=3, users=2, items=8)
        >>> task.metric, task.build_loss().k, len(next(iter(task.train_loader(seed=0))).labels)
        ('pap@3', 3, 16)
    """

    data: Split
    loss: str = "pap"
    loss_options: Mapping[str, Any] = field(default_factory=dict)
    k: int = 8
    hidden: Sequence[int] = ()
    scaling: str = "none"
    users: int = 64
    items: int | None = None
    metrics: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name in ("train", "validation", "test"):
            if self.data.part(name).query_ids is None:
                raise ValueError(f"data: expected the user of each row in {name}.query_ids, got None")

    @property
    def features(self) -> int:
        return self.data.train.features.shape[1]

    @property
    def metric(self) -> str:
        return f"pap@{self.k}"

    def build_model(self) -> nn.Module:
        return scaled(MLPScorer(self.features, hidden=self.hidden), self.data.train.features, self.scaling)

    def build_loss(self) -> nn.Module:
        takes_k = LOSSES.get(self.loss).takes("k")
        options = {"k": self.k, **self.loss_options} if takes_k else self.loss_options
        loss: nn.Module = create_loss(self.loss, **options)
        return loss

    def train_loader(self, seed: int) -> DataLoader[Batch]:
        part = self.data.train
        assert part.query_ids is not None
        longest = int(part.query_ids.unique(return_counts=True)[1].max())
        sampler = ClassBatchSampler(
            part.query_ids,
            classes=self.users,
            samples_per_class=longest if self.items is None else self.items,
            short_classes="take",
            seed=seed,
        )
        return batches_of(part, sampler)

    def training_step(
        self, model: nn.Module, loss: nn.Module, batch: Batch, *, previous: Outputs | None = None
    ) -> Tensor:
        before = None if previous is None else previous(batch.features)
        value: Tensor = loss(model(batch.features), batch.labels, query_ids=batch.query_ids, previous_scores=before)
        return value

    def predict(self, model: nn.Module, part: str) -> Tensor:
        """Scores (N,) of the rows of a part."""
        return predict_all(model, self.data.part(part).features)

    def evaluate(self, model: nn.Module, part: str) -> dict[str, float]:
        return self.judge(model, part).means

    def judge(self, model: nn.Module, part: str, *, bootstrap: int = 0) -> Evaluation:
        return self.inspect(model, part, bootstrap=bootstrap).evaluation

    def inspect(self, model: nn.Module, part: str, *, bootstrap: int = 0) -> Inspection:
        rows, scores = self.data.part(part), self.predict(model, part)
        names = [self.metric, *self.metrics]
        found = evaluate(scores, rows.labels, names, query_ids=rows.query_ids, bootstrap=bootstrap)
        return inspect_items(
            found, scores, rows.labels, rows.query_ids, list_word="user", item_word="item", curve="position"
        )

    def whole_lists(self) -> Batch:
        assert self.data.train.query_ids is not None
        return self.data.train.__getitems__(some_lists(self.data.train.query_ids).tolist())
