"""Learning to rank: rows of numbers, one list per query, graded relevance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn
from torch.utils.data import DataLoader

from rankwise.checks import check_choice
from rankwise.data import Batch, Part, Split
from rankwise.losses import LOSSES, ListLoss, ListStatistics, SwitchLoss, create_loss
from rankwise.metrics import Evaluation, evaluate_grades
from rankwise.models import ContextAwareRanker, MLPScorer, ScaledRanker, reset_last_layer, scaled
from rankwise.samplers import QueryBatchSampler
from rankwise.tasks.batches import batches_of, predict_all, predict_lists
from rankwise.tasks.inspection import Inspection, inspect_items, some_lists
from rankwise.tasks.task import Outputs

__all__ = ["MODELS", "LTRTask"]

MODELS = ("mlp", "context-aware")


@dataclass(frozen=True)
class LTRTask:
    """Rank the rows of each query by relevance.

    Attributes:
        data: features (N, D), labels are grades of 0 or more (above 0 is relevant), query_ids (N,).
        loss: a registered name, see `rankwise list losses`.
        loss_options: options of that loss.
        model: "mlp" scores every row by itself, "context-aware" with a view of the others of its list.
        hidden: the widths of the hidden layers of the "mlp".
        dropout: before the last layer of the "mlp", while training.
        scaling: of the features, see `rankwise.models.Scaling`; learned from the training part, kept in the model.
        queries: queries in every batch; those without a relevant row are left out.
        relevant, irrelevant: rows of each query in a batch; None takes all. With both None batches hold whole lists;
            otherwise a loss that can reckon with whole lists is told their sizes and ideal DCGs.
        warm_up: the name of a loss to start with, or None; warm_up_steps: for so many steps.
        reset_last_layer: whether the last layer is drawn anew after the warm-up.
        metrics: by name; choices are made by the first. Metrics of binary labels see which rows are relevant.

    Example:
        >>> import torch
        >>> part = Part(torch.rand(60, 4), torch.arange(60) % 3, torch.arange(60) // 10)
        >>> task = LTRTask(Split(part, part, part), loss="song", queries=2)
        >>> next(iter(task.train_loader(seed=0))).labels.shape
        torch.Size([20])
        >>> sorted(task.evaluate(task.build_model(), "test"))
        ['map', 'ndcg@10', 'ndcg@5']
    """

    data: Split
    loss: str
    loss_options: Mapping[str, Any] = field(default_factory=dict)
    model: str = "mlp"
    hidden: Sequence[int] = (64,)
    dropout: float = 0.0
    scaling: str = "none"
    queries: int = 32
    relevant: int | None = None
    irrelevant: int | None = None
    warm_up: str | None = None
    warm_up_steps: int = 0
    reset_last_layer: bool = False
    metrics: Sequence[str] = ("ndcg@10", "ndcg@5", "map")

    @property
    def features(self) -> int:
        return self.data.train.features.shape[1]

    @property
    def metric(self) -> str:
        return self.metrics[0]

    def build_model(self) -> nn.Module:
        rows = self.data.train.features
        if check_choice("model", self.model, MODELS) == "context-aware":
            return ScaledRanker(ContextAwareRanker(self.features), rows, self.scaling)
        return scaled(MLPScorer(self.features, hidden=self.hidden, dropout=self.dropout), rows, self.scaling)

    def build_loss(self) -> nn.Module:
        loss = self._loss(self.loss, self.loss_options)
        if self.warm_up is None:
            return loss
        return SwitchLoss(self._loss(self.warm_up, {}), loss, after=self.warm_up_steps)

    def train_loader(self, seed: int) -> DataLoader[Batch]:
        part = self.data.train
        sampler = QueryBatchSampler(
            part.labels,
            _query_ids(part),
            queries=self.queries,
            relevant=self.relevant,
            irrelevant=self.irrelevant,
            keep_lists=self.model == "context-aware",
            seed=seed,
        )
        return batches_of(part, sampler)

    def training_step(
        self, model: nn.Module, loss: nn.Module, batch: Batch, *, previous: Outputs | None = None
    ) -> Tensor:
        if self.reset_last_layer and loss.training and isinstance(loss, SwitchLoss) and int(loss.step) == loss.after:
            reset_last_layer(model)
        inputs = (batch.features, batch.query_ids) if self.model == "context-aware" else (batch.features,)
        value: Tensor = loss(
            model(*inputs),
            batch.labels,
            query_ids=batch.query_ids,
            sample_ids=batch.sample_ids,
            previous_scores=None if previous is None else previous(*inputs),
        )
        return value

    def predict(self, model: nn.Module, part: str) -> Tensor:
        """Scores (N,) of the rows of a part."""
        rows = self.data.part(part)
        if self.model == "context-aware":
            return predict_lists(model, rows.features, _query_ids(rows))
        return predict_all(model, rows.features)

    def evaluate(self, model: nn.Module, part: str) -> dict[str, float]:
        return self.judge(model, part).means

    def judge(self, model: nn.Module, part: str, *, bootstrap: int = 0) -> Evaluation:
        return self.inspect(model, part, bootstrap=bootstrap).evaluation

    def inspect(self, model: nn.Module, part: str, *, bootstrap: int = 0) -> Inspection:
        rows, scores = self.data.part(part), self.predict(model, part)
        queries = _query_ids(rows)
        found = evaluate_grades(scores, rows.labels, self.metrics, query_ids=queries, bootstrap=bootstrap)
        return inspect_items(
            found, scores, rows.labels, queries, list_word="query", item_word="document", curve="position"
        )

    def whole_lists(self) -> Batch:
        rows = self.data.train
        return rows.__getitems__(some_lists(_query_ids(rows)).tolist())

    def _loss(self, name: str, options: Mapping[str, Any]) -> ListLoss:
        whole = self.relevant is None and self.irrelevant is None
        if not whole and LOSSES.get(name).takes("statistics"):
            rows = self.data.train
            options = {"statistics": ListStatistics(rows.labels, _query_ids(rows)), **options}
        loss: ListLoss = create_loss(name, **options)
        return loss


def _query_ids(part: Part) -> Tensor:
    if part.query_ids is None:
        raise ValueError("data: expected query_ids, the list each row belongs to, got a part without")
    return part.query_ids
