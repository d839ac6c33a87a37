"""Search ranking: rank the documents of each query by graded relevance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader

from rankwise.data import Batch, Part, Split, TableSchema, put_lists_in_folds
from rankwise.losses import LOSSES, GroupPrior, ListLoss, ListStatistics, list_prior
from rankwise.metrics import Evaluation, evaluate_grades
from rankwise.models import ContextAwareRanker, MLPScorer, ScaledRanker, StackedRanker, scaled
from rankwise.models.list_stack import LIST_LEARNERS
from rankwise.models.mixing import fit_list_mix
from rankwise.models.stacked import out_of_fold
from rankwise.problems.batches import batches_of, predict_all, predict_lists
from rankwise.problems.problem import LossChoice, Names, Settings, Sources, WarmUp, batch_size
from rankwise.problems.queries import ListProblem, QueryOptions, cut_lists, list_ids, read_lists, some_lists
from rankwise.problems.tabular import FITTED_ROWS, MemberScores, MLPOptions, rows_to_fit
from rankwise.samplers import QueryBatchSampler
from rankwise.surrogates import gain_function
from rankwise.training import Outputs
from rankwise.training.options import Count, Options

__all__ = ["SearchRanking"]


class MemberOptions(Options):
    """Cut the queries into `folds` and train one member without each fold.

    A member is a network trained with the loss, a ridge regression, boosted trees and extremely randomised trees of the
    gains. One network is trained alone if it is context-aware or has dropout, after a warm-up, and in batches of some
    `relevant` or `irrelevant` rows of each query.
    """

    folds: Annotated[int, Field(ge=2)] = 5


class RankerOptions(MLPOptions):
    """The model "mlp" scores every row by itself, "context-aware" is a transformer over the rows of a list.

    `dropout` is before the last layer of the "mlp". With an `ensemble`, networks are mixed with regressions and trees
    by the order of queries that they did not learn from; `ensemble: null` trains one network alone.
    """

    name: Literal["mlp", "context-aware"] = "mlp"
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    ensemble: MemberOptions | None = MemberOptions()


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
    refit: bool = True

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

    @property
    def ensemble(self) -> MemberOptions | None:
        """Return the options of the ensemble; None for one network alone."""
        sampled = self.batches.relevant is not None or self.batches.irrelevant is not None
        alone = self.model.name != "mlp" or self.model.dropout > 0 or self.warm_up is not None or sampled
        return None if alone else self.model.ensemble

    def cut(self, split: Split[Part], seed: int) -> Split[Part]:
        """Cut the missing parts, and put the training queries in folds.

        With `refit`, a validation part that would be cut is the training part instead: members of its folds choose.
        """
        ensemble = self.ensemble
        together = ensemble is not None and self.refit and "validation" in self.data.shares(split)
        cut = cut_lists(self.data, split, seed, keep="validation" if together else None)
        if ensemble is not None:
            train = put_lists_in_folds(cut.train, ensemble.folds, seed=seed)
            cut = Split(train, train if together else cut.validation, cut.test)
        if not bool((cut.train.labels > 0).any()):
            raise ValueError("data: expected queries with a relevant row (a grade above 0) in the train part, got none")
        return cut

    def build_model(self, schema: TableSchema) -> nn.Module:
        width, options, fill = len(schema.inputs), self.model, schema.fill_missing
        if options.name == "context-aware":
            return ScaledRanker(ContextAwareRanker(width), width, options.scaling, fill_missing=fill)
        if self.ensemble is not None:
            return StackedRanker(
                width,
                hidden=options.hidden,
                members=self.ensemble.folds,
                scaling=options.scaling,
                fill_missing=fill,
                columns=schema.encoding.codes,
            )
        scorer = MLPScorer(width, hidden=options.hidden, dropout=options.dropout)
        return scaled(scorer, width, options.scaling, fill_missing=fill)

    def complete_model(
        self, model: nn.Module, split: Split[Part], settings: Mapping[str, Any] | None = None
    ) -> Settings:
        """Fit linear models and trees; choose out of fold how much they and the networks count."""
        if not isinstance(model, StackedRanker):
            return {}
        device, (part, weights) = model.factors.device, rows_to_fit(split.train)
        features, folds = part.features[:].to(device), None if part.folds is None else part.folds.to(device)
        gains, queries = self._gains(part.labels).to(device), list_ids(part).to(device)
        model.fit(features, gains, queries, folds, weights.to(device))
        if settings is None:
            whole = split.train if split.train.folds is not None else split.part("validation")
            judged = whole.take(some_lists(whole, FITTED_ROWS))
            by_member = predict_all(MemberScores(model), judged.features)
            scores = (by_member.mean(1) if judged.folds is None else out_of_fold(by_member, judged.folds)).T
            mix = fit_list_mix(scores, self._gains(judged.labels), list_ids(judged))
            alone = [self.judge(own, judged, 0).means[self.metric] for own in scores]
            settings = {
                "factors": mix.factors.tolist(),
                "measure": self.metric,
                "alone": dict(zip(LIST_LEARNERS, alone, strict=True)),
                "shares": dict(zip(LIST_LEARNERS, mix.shares.tolist(), strict=True)),
            }
        model.mix(torch.tensor(settings["factors"]))
        return dict(settings)

    def _gains(self, labels: Tensor) -> Tensor:
        """Return the gains (N,) of grades that the loss takes, the largest 1."""
        gains = gain_function(self.loss.options.get("gain", "exp2"))(labels.double())
        return gains / gains.max().clamp_min(1e-300)

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
        # Estimates are checked in evaluation mode, in which an ensemble returns one score for each row.
        if isinstance(model, StackedRanker) and not model.training:
            scores = model.network_scores(batch.features)
        else:
            scores = model(*inputs)
        before = None if previous is None else previous(*inputs)
        lists, rows = batch.query_ids, batch.sample_ids
        if scores.dim() == 1:
            value: Tensor = loss(scores, batch.labels, query_ids=lists, sample_ids=rows, previous_scores=before)
            return value
        # A list for each query and member, empty if the query is in the fold of the member.
        members = scores.shape[1]
        learned = torch.ones_like(scores, dtype=torch.bool)
        if batch.folds is not None:
            learned = batch.folds[:, None] != torch.arange(members, device=scores.device)
        assert lists is not None
        value = loss(
            scores.flatten(),
            batch.labels[:, None].expand_as(scores).flatten(),
            query_ids=_by_member(lists, members).flatten(),
            sample_ids=_by_member(rows, members).flatten(),
            mask=learned.flatten(),
            previous_scores=None if before is None else before.flatten(),
        )
        return value

    def predict(self, model: nn.Module, part: Part) -> Tensor:
        """Return the scores (N,) of the rows of a part; of lists in folds those of the member that left them out."""
        if self.model.name == "context-aware":
            return predict_lists(model, part.features, list_ids(part))
        if part.folds is None or not isinstance(model, StackedRanker):
            return super().predict(model, part)
        return out_of_fold(model.mixed(predict_all(MemberScores(model), part.features)), part.folds)

    def judge(self, scores: Tensor, part: Part, bootstrap: int) -> Evaluation:
        return evaluate_grades(scores, part.labels, self.measured, query_ids=list_ids(part), bootstrap=bootstrap)

    def _create(self, choice: LossChoice, train: Part) -> ListLoss:
        sampled = self.batches.relevant is not None or self.batches.irrelevant is not None
        known = sampled and choice.takes("statistics")
        defaults = {"statistics": ListStatistics(train.labels, list_ids(train))} if known else {}

        def prior() -> GroupPrior:
            if self.ensemble is None:
                return list_prior(train.labels, list_ids(train))
            folds = self.ensemble.folds
            return list_prior(train.labels.repeat_interleave(folds), _by_member(list_ids(train), folds).flatten())

        loss: ListLoss = choice.create(data_prior=prior, **defaults)
        return loss


def _by_member(ids: Tensor, members: int) -> Tensor:
    """Return an id (N, M) for each of the ids (N,) and each member."""
    return ids[:, None] * members + torch.arange(members, device=ids.device)
