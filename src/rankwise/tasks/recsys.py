"""Recommendation: rank all items for each user, from what users have chosen before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from rankwise.checks import check_choice
from rankwise.data import Batch, InteractionSplit, SparseRows, histories, join_interactions
from rankwise.losses import LOSSES, ListLoss, ListStatistics, SwitchLoss, create_loss
from rankwise.metrics import Evaluation
from rankwise.models import EASE, ItemItemScorer, MatrixFactorisation, NeuMF
from rankwise.samplers import SeededBatchSampler, ShuffledBatchSampler
from rankwise.samplers.histories import HistoryBatchSampler
from rankwise.tasks.batches import batches_of
from rankwise.tasks.inspection import Inspection, spread_over
from rankwise.tasks.rows import JudgedRows, judge_rows, look_at_rows
from rankwise.tasks.task import Outputs

__all__ = ["SCORERS", "RecsysTask"]

# Users against whose whole lists to check what a loss remembers.
CHECKED_USERS = 24

SCORERS = ("item-item", "matrix-factorisation", "neumf")


@dataclass(frozen=True)
class RecsysTask:
    """Rank all items for each user; those the user is known to have chosen are left out.

    Validation is judged with the training items known and left out, test with training and validation items, "train"
    with the training items themselves to be found. Every figure is that of a ranking of ALL other items.

    Attributes:
        data: chosen pairs; what is not named was not chosen.
        loss: a registered name, see `rankwise list losses`.
        loss_options: options of that loss.
        model: "item-item" scores by a user's other items (also for users without training), "matrix-factorisation" and
            "neumf" by a vector per user.
        dimensions: the length of the vectors, for "item-item" the rank.
        hidden: the widths of the layers of "neumf"; the others have none.
        input_dropout: the share of a history that "item-item" does not see at a time while training.
        ease: the regularisation of an `EASE` of the training pairs, which "item-item" then corrects instead of starting
            from nothing; None is without.
        users: users in every batch.
        relevant, irrelevant: items of each user in a batch, drawn anew at each visit; both None scores all items.
            "item-item" needs all. A loss that can reckon with whole lists is told what they hold.
        warm_up: the name of a loss to start with, or None; warm_up_steps: for so many steps.
        metrics: by name; choices are made by the first.

    Example:
        >>> from rankwise.data import Interactions, leave_one_out
        >>> users, items = torch.arange(40) % 8, torch.arange(40) * 7 % 20
        >>> pairs = Interactions(users, items, None, None, tuple("abcdefgh"), tuple("abcdefghijklmnopqrst"))
        >>> task = RecsysTask(leave_one_out(pairs, by="random"), loss="song", users=4)
        >>> next(iter(task.train_loader(seed=0))).labels.shape
        torch.Size([4, 20])
        >>> sorted(task.evaluate(task.build_model(), "test"))
        ['hit@10', 'map', 'ndcg@10', 'ndcg@20', 'recall@20']
    """

    data: InteractionSplit
    loss: str
    loss_options: Mapping[str, Any] = field(default_factory=dict)
    model: str = "item-item"
    dimensions: int = 64
    hidden: Sequence[int] = (128, 64, 32)
    input_dropout: float = 0.5
    ease: float | None = None
    users: int = 128
    relevant: int | None = None
    irrelevant: int | None = None
    warm_up: str | None = None
    warm_up_steps: int = 0
    metrics: Sequence[str] = ("ndcg@20", "ndcg@10", "recall@20", "hit@10", "map")

    def __post_init__(self) -> None:
        check_choice("model", self.model, SCORERS)
        if self.ease is not None and self.model != "item-item":
            raise ValueError(f'ease: expected None, or the model "item-item", got {self.ease:g} with "{self.model}"')
        if (self.relevant is None) != (self.irrelevant is None):
            raise ValueError("irrelevant: expected together with relevant, or both None, got one without the other")
        if self.relevant is not None and self.model == "item-item":
            raise ValueError('relevant: expected None with the model "item-item", which scores all items at once')

    @property
    def features(self) -> int:
        return len(self.data.train.item_names)

    @property
    def metric(self) -> str:
        return self.metrics[0]

    def build_model(self) -> nn.Module:
        if self.model == "item-item":
            return ItemItemScorer(
                self.features, rank=self.dimensions, input_dropout=self.input_dropout, base=self._ease_weights()
            )
        users = len(self.data.train.user_names)
        if self.model == "neumf":
            return _ByUser(NeuMF(users, self.features, dimensions=self.dimensions, hidden=self.hidden))
        return _ByUser(MatrixFactorisation(users, self.features, dimensions=self.dimensions))

    def build_loss(self) -> nn.Module:
        loss = self._loss(self.loss, self.loss_options)
        if self.warm_up is None:
            return loss
        return SwitchLoss(self._loss(self.warm_up, {}), loss, after=self.warm_up_steps)

    def train_loader(self, seed: int) -> DataLoader[Batch]:
        known = self._known["train"]
        sampler: SeededBatchSampler
        if self.relevant is not None and self.irrelevant is not None:
            train = self.data.train
            sampler = HistoryBatchSampler(
                train.users,
                train.items,
                items=self.features,
                users=self.users,
                relevant=self.relevant,
                irrelevant=self.irrelevant,
                drop_last=True,
                seed=seed,
            )
            return batches_of(_Pairs(known), sampler)
        users = (known.starts.diff() > 0).nonzero().squeeze(1)
        if not len(users):
            raise ValueError("data: expected at least one pair to learn from, got none")
        sampler = ShuffledBatchSampler(users, batch_size=self.users, drop_last=True, seed=seed)
        return batches_of(_WholeLists(known, users, by_history=self.model == "item-item"), sampler)

    def training_step(
        self, model: nn.Module, loss: nn.Module, batch: Batch, *, previous: Outputs | None = None
    ) -> Tensor:
        # In a batch of whole lists there is nothing to remember of single items.
        sample_ids = None if batch.labels.ndim == 2 else batch.sample_ids
        before = None if previous is None else previous(batch.features)
        value: Tensor = loss(
            model(batch.features),
            batch.labels,
            query_ids=batch.query_ids,
            sample_ids=sample_ids,
            previous_scores=before,
        )
        return value

    def evaluate(self, model: nn.Module, part: str) -> dict[str, float]:
        return self.judge(model, part).means

    def judge(self, model: nn.Module, part: str, *, bootstrap: int = 0) -> Evaluation:
        return self.inspect(model, part, bootstrap=bootstrap).evaluation

    def inspect(self, model: nn.Module, part: str, *, bootstrap: int = 0) -> Inspection:
        check_choice("part", part, ("train", "validation", "test"))
        wanted = self._known["train"] if part == "train" else histories(getattr(self.data, part))
        known = self._known["test" if part == "test" else "train"]

        def look(users: Tensor) -> JudgedRows:
            history = known.dense(users)
            features = users if isinstance(model, _ByUser) else history
            if part == "train":
                return JudgedRows(features, history, None)
            return JudgedRows(features, wanted.dense(users), history == 0)

        names = self.data.train
        return Inspection(
            judge_rows(model, len(known), self.features, look, self.metrics, bootstrap=bootstrap),
            "user",
            "item",
            "position",
            look_at_rows(model, look),
            list_name=lambda user: f"user {names.user_names[user]}",
            item_name=lambda _, item: f"item {names.item_names[item]}",
        )

    def whole_lists(self) -> Batch:
        known = self._known["train"]
        users = (known.starts.diff() > 0).nonzero().squeeze(1)
        users = users[spread_over(len(users), CHECKED_USERS)]
        if self.relevant is None:
            places = torch.arange(len(users)).tolist()
            return _WholeLists(known, users, by_history=self.model == "item-item").__getitems__(places)
        pairs = users[:, None] * self.features + torch.arange(self.features)
        return _Pairs(known).__getitems__(pairs.flatten().tolist())

    @cached_property
    def _known(self) -> dict[str, SparseRows]:
        """What users are known to have chosen while training and validating, and at the test."""
        together = join_interactions(self.data.train, self.data.validation)
        return {"train": histories(self.data.train), "test": histories(together)}

    def _ease_weights(self) -> Tensor | None:
        if self.ease is None:
            return None
        fitted = EASE(self.features, regularisation=self.ease).fit(self._known["train"].dense())
        return _EASE_SCALE * fitted.weights

    def _loss(self, name: str, options: Mapping[str, Any]) -> ListLoss:
        if self.relevant is not None and LOSSES.get(name).takes("statistics"):
            users = self.data.train.users
            statistics = ListStatistics(torch.ones_like(users), users, size=self.features)
            options = {"statistics": statistics, **options}
        return cast(ListLoss, create_loss(name, **options))


# Scores of EASE differ by less than 1, the margin of the losses, and "item-item" divides them by the root of the length
# of the history: 10 for a hundred items. Twice that was as large as a factor that was learned.
_EASE_SCALE = 20.0


class _ByUser(nn.Module):
    """A model of users and items that takes users (B,) for all items, or pairs (N, 2) of a user and an item."""

    def __init__(self, model: MatrixFactorisation | NeuMF) -> None:
        super().__init__()
        self.model = model

    def forward(self, features: Tensor) -> Tensor:
        scores: Tensor = self.model(features) if features.ndim == 1 else self.model(*features.unbind(1))
        return scores


@dataclass(frozen=True)
class _WholeLists(Dataset[Batch]):
    """Users with all items; the features are histories (B, items) or the users themselves (B,)."""

    known: SparseRows
    users: Tensor
    by_history: bool

    def __len__(self) -> int:
        return len(self.users)

    def __getitem__(self, index: int) -> Batch:
        return self.__getitems__([index])

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        users = self.users[torch.as_tensor(indices)]
        history = self.known.dense(users)
        return Batch(history if self.by_history else users, history, users, users)


@dataclass(frozen=True)
class _Pairs(Dataset[Batch]):
    """Pairs (N, 2) of a user and an item, by `user * items + item`."""

    known: SparseRows

    def __len__(self) -> int:
        return len(self.known) * self.known.width

    def __getitem__(self, index: int) -> Batch:
        return self.__getitems__([index])

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        pairs = torch.as_tensor(indices)
        users, items = pairs // self.known.width, pairs % self.known.width
        place = torch.searchsorted(self._chosen, pairs).clamp_max(len(self._chosen) - 1)
        labels = (self._chosen[place] == pairs).long()
        return Batch(torch.stack([users, items], 1), labels, items, users)

    @cached_property
    def _chosen(self) -> Tensor:
        users = torch.repeat_interleave(torch.arange(len(self.known)), self.known.starts.diff())
        return users * self.known.width + self.known.columns
