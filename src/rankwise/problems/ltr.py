"""Search ranking: rank the documents of each query by graded relevance."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader

from rankwise.data import Batch, Part, Split, TableSchema
from rankwise.losses import LOSSES, ListLoss, ListStatistics, list_prior
from rankwise.metrics import Evaluation, evaluate_grades
from rankwise.models import ContextAwareRanker, MLPScorer, ScaledRanker, scaled
from rankwise.problems.batches import batches_of, predict_lists
from rankwise.problems.problem import LossChoice, Names, Sources, WarmUp, batch_size
from rankwise.problems.queries import ListProblem, QueryOptions, cut_lists, list_ids, read_lists
from rankwise.problems.tabular import MLPOptions
from rankwise.samplers import QueryBatchSampler
from rankwise.training import Outputs
from rankwise.training.options import Count, Options

__all__ = ["SearchRanking"]


class RankerOptions(MLPOptions):
    """The model "mlp" scores every row by itself, "context-aware" is a transformer over the rows of a list.

    `dropout` is before the last layer of the "mlp".
    """

    name: Literal["mlp", "context-aware"] = "mlp"
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0


class QueryBatches(Options):
    """Number of `queries` in a batch (32, or all if there are fewer), with all their rows, or with at most so many
    `relevant` and `irrelevant` ones of each. Lists of more than `longest` rows are cut to so many, drawn at random at
    each visit, and taken for whole lists. Queries without a relevant row are left out."""

    queries: Count | None = None
    relevant: Count | None = None
    irrelevant: Count | None = None
    longest: Count | None = None


class SearchRanking(ListProblem):
    """Rank the rows of each query by relevance; labels are grades of 0 or more, above 0 is relevant.

    Batches hold complete lists, or some rows of each list: then a loss that takes statistics knows the sizes and ideal
    DCGs of the complete lists. Metrics of binary labels see which rows are relevant.

    Example:
        >>> import torch
        >>> part = Part(torch.rand(60, 4), torch.arange(60) % 3, torch.arange(60) // 10)
        >>> problem = SearchRanking(batches={"queries": 2})
        >>> next(iter(problem.train_loader(part, seed=0))).labels.shape
        torch.Size([20])
        >>> sorted(problem.evaluate(problem.build_model(TableSchema.of(part)), part).means)
        ['map', 'ndcg@10', 'ndcg@5']
    """

    kind: ClassVar[str] = "ltr"
    summary: ClassVar[str] = "documents of queries, graded: rank the relevant ones first"
    list_word: ClassVar[str] = "query"
    item_word: ClassVar[str] = "document"

    data: QueryOptions = QueryOptions()
    model: RankerOptions = RankerOptions()
    loss: LossChoice = LossChoice.of("song", discount_shift=10)
    warm_up: WarmUp | None = None
    batches: QueryBatches = QueryBatches()
    metrics: Names = ("ndcg@10", "ndcg@5", "map")

    @model_validator(mode="after")
    def _fits_together(self) -> SearchRanking:
        if self.model.name == "context-aware" and self.gradient.rows_at_once is not None:
            raise ValueError("expected no gradient.rows_at_once with a model that sees complete lists")
        if self.warm_up is not None:
            self.warm_up.check_budget(self.budget)
        return self

    @property
    def whole_lists(self) -> bool:
        return self.model.name == "context-aware"

    @property
    def lists_on_ranks(self) -> bool:
        return True

    def read(self, sources: Sources) -> tuple[TableSchema, Split[Part]]:
        return read_lists(self.data, sources)

    def cut(self, split: Split[Part], seed: int) -> Split[Part]:
        cut = cut_lists(self.data, split, seed)
        if not bool((cut.train.labels > 0).any()):
            raise ValueError("data: expected queries with a relevant row (a grade above 0) in the train part, got none")
        return cut

    def build_model(self, schema: TableSchema) -> nn.Module:
        width, options, fill = len(schema.inputs), self.model, schema.fill_missing
        if options.name == "context-aware":
            return ScaledRanker(ContextAwareRanker(width), width, options.scaling, fill_missing=fill)
        scorer = MLPScorer(width, hidden=options.hidden, dropout=options.dropout)
        return scaled(scorer, width, options.scaling, fill_missing=fill)

    def build_loss(self, schema: TableSchema, train: Part, *, steps: int) -> nn.Module:
        if LOSSES.get(self.loss.name).labels == "binary" and bool((train.labels > 1).any()):
            top = train.labels.max().item()
            raise ValueError(f"loss: expected one for grades, as they go up to {top:g}; {self.loss.name} takes 0 and 1")
        loss = self._create(self.loss, train)
        return (
            loss if self.warm_up is None else self.warm_up.wrap_loss(loss, lambda choice: self._create(choice, train))
        )

    def build_schedule(self, optimiser: Optimizer, steps: int) -> LRScheduler:
        if self.warm_up is None:
            return super().build_schedule(optimiser, steps)
        return self.warm_up.build_schedule(self.schedule, self.optimiser, optimiser, steps)

    def train_loader(self, train: Part, seed: int) -> DataLoader[Batch]:
        queries = list_ids(train)
        available = len(queries[train.labels > 0].unique())
        sampler = QueryBatchSampler(
            train.labels,
            queries,
            queries=batch_size("batches.queries", self.batches.queries, 32, available, "queries to train on"),
            relevant=self.batches.relevant,
            irrelevant=self.batches.irrelevant,
            longest=self.batches.longest,
            keep_lists=True,
            seed=seed,
        )
        return batches_of(train, sampler)

    def training_step(
        self, model: nn.Module, loss: nn.Module, batch: Batch, *, previous: Outputs | None = None
    ) -> Tensor:
        if self.warm_up is not None:
            self.warm_up.finish(model, loss)
        inputs = (batch.features, batch.query_ids) if self.model.name == "context-aware" else (batch.features,)
        value: Tensor = loss(
            model(*inputs),
            batch.labels,
            query_ids=batch.query_ids,
            sample_ids=batch.sample_ids,
            previous_scores=None if previous is None else previous(*inputs),
        )
        return value

    def predict(self, model: nn.Module, part: Part) -> Tensor:
        """Return the scores (N,) of the rows of a part."""
        if self.model.name == "context-aware":
            return predict_lists(model, part.features, list_ids(part))
        return super().predict(model, part)

    def judge(self, scores: Tensor, part: Part, bootstrap: int) -> Evaluation:
        return evaluate_grades(scores, part.labels, self.measured, query_ids=list_ids(part), bootstrap=bootstrap)

    def _create(self, choice: LossChoice, train: Part) -> ListLoss:
        sampled = self.batches.relevant is not None or self.batches.irrelevant is not None
        known = sampled and choice.takes("statistics")
        defaults = {"statistics": ListStatistics(train.labels, list_ids(train))} if known else {}
        loss: ListLoss = choice.create(data_prior=lambda: list_prior(train.labels, list_ids(train)), **defaults)
        return loss
