"""Lists of which the first k are shown: each user's liked items above the best of the others (pAp@k)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field
from torch import Tensor, nn
from torch.utils.data import DataLoader

from rankwise.data import Batch, Part, Split, TableSchema, read_rated_films
from rankwise.data.rated_films import is_rated_films
from rankwise.losses import list_prior
from rankwise.metrics import Evaluation, evaluate
from rankwise.models import MLPScorer, scaled
from rankwise.problems.batches import batches_of
from rankwise.problems.problem import LossChoice, Sources, batch_size
from rankwise.problems.queries import ListProblem, QueryOptions, cut_lists, list_ids, read_lists
from rankwise.problems.tabular import MLPOptions
from rankwise.samplers import ClassBatchSampler
from rankwise.training import Outputs
from rankwise.training.options import Count, Options

__all__ = ["Bipartite"]


class UserOptions(QueryOptions):
    """The folder of MovieLens-100K, of which features are made, see `rankwise.data.read_rated_films`; or rows with
    users as queries: LETOR files (`grade qid:7 1:0.5 ...`), or tables with a `label` and a `query` column.

    `validation` and `test` are files too, or shares of `train`: of its users, or of the rows of each user, as
    `held_out` says ("users" or "items"). The other keys are those of search ranking.
    """

    held_out: Literal["users", "items"] = "users"


class UserBatches(Options):
    """Number of `users` in a batch (64, or all if there are fewer), with all or with at most so many `items` of
    each."""

    users: Count | None = None
    items: Annotated[int, Field(ge=2)] | None = None


class Bipartite(ListProblem):
    """Rank the items of every user, the liked ones (label 1) first; the user of a row is its query.

    A loss that takes `k` gets that of the metric, unless its options say otherwise.

    Example:
        >>> import torch
        >>> part = Part(torch.rand(40, 3), torch.arange(40) % 2, torch.arange(40) // 10)
        >>> problem = Bipartite(k=3, batches={"users": 2, "items": 8})
        >>> problem.metric, problem.build_loss(TableSchema.of(part), part, steps=1).k
        ('pap@3', 3)
        >>> len(next(iter(problem.train_loader(part, seed=0))).labels)
        16
    """

    kind: ClassVar[str] = "pap"
    summary: ClassVar[str] = "items of users, liked or not: the liked ones among the first k"
    list_word: ClassVar[str] = "user"
    item_word: ClassVar[str] = "item"

    k: Count = 8
    data: UserOptions = UserOptions()
    model: MLPOptions = MLPOptions(hidden=())
    loss: LossChoice = LossChoice.of("pap")
    batches: UserBatches = UserBatches()
    metrics: tuple[str, ...] = ()

    @property
    def measured(self) -> tuple[str, ...]:
        """Return pAp@k, by which choices are made, and the other metrics."""
        return (f"pap@{self.k}", *self.metrics)

    def read(self, sources: Sources) -> tuple[TableSchema, Split[Part]]:
        given = self.data.sources(sources)
        if not is_rated_films(given["train"]):
            return read_lists(self.data, sources)
        if len(given) > 1:
            raise ValueError("data: expected shares of MovieLens-100K for validation and test, got files")
        part = read_rated_films(given["train"])
        return TableSchema.of(part), Split(part)

    def cut(self, split: Split[Part], seed: int) -> Split[Part]:
        return cut_lists(self.data, split, seed, by_row=self.data.held_out == "items")

    def build_model(self, schema: TableSchema) -> nn.Module:
        width = len(schema.inputs)
        scorer = MLPScorer(width, hidden=self.model.hidden)
        return scaled(scorer, width, self.model.scaling, fill_missing=schema.fill_missing)

    def build_loss(self, schema: TableSchema, train: Part, *, steps: int) -> nn.Module:
        defaults = {"k": self.k} if self.loss.takes("k") else {}
        loss: nn.Module = self.loss.create(data_prior=lambda: list_prior(train.labels, list_ids(train)), **defaults)
        return loss

    def train_loader(self, train: Part, seed: int) -> DataLoader[Batch]:
        users, lengths = list_ids(train).unique(return_counts=True)
        sampler = ClassBatchSampler(
            list_ids(train),
            classes=batch_size("batches.users", self.batches.users, 64, len(users), "users to train on"),
            samples_per_class=int(lengths.max()) if self.batches.items is None else self.batches.items,
            short_classes="take",
            seed=seed,
        )
        return batches_of(train, sampler)

    def training_step(
        self, model: nn.Module, loss: nn.Module, batch: Batch, *, previous: Outputs | None = None
    ) -> Tensor:
        before = None if previous is None else previous(batch.features)
        value: Tensor = loss(model(batch.features), batch.labels, query_ids=batch.query_ids, previous_scores=before)
        return value

    def judge(self, scores: Tensor, part: Part, bootstrap: int) -> Evaluation:
        return evaluate(scores, part.labels, self.measured, query_ids=list_ids(part), bootstrap=bootstrap)
