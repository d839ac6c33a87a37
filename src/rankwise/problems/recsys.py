"""Recommendation: rank all items for each user, from what users have chosen before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader, Dataset

from rankwise.data import (
    Batch,
    InteractionPart,
    Interactions,
    InteractionSchema,
    SparseRows,
    Split,
    active_users,
    cut_histories,
    histories,
    hold_out,
    learn_interactions,
    leave_one_out,
    number_like,
)
from rankwise.distributed import world_size
from rankwise.estimators.groups import counts_prior
from rankwise.losses import ListLoss, ListStatistics
from rankwise.metrics import Evaluation, Metric
from rankwise.models import EASE, Blend, ItemItemScorer, MatrixFactorisation, NeuMF
from rankwise.problems.batches import JudgedRows, batches_of, evaluate_rows, predict_rows, show_rows
from rankwise.problems.blending import choose_blend, judged_rows
from rankwise.problems.inspection import Inspection, spread_over
from rankwise.problems.problem import (
    FileOrShare,
    LossChoice,
    Names,
    Problem,
    Settings,
    SourceOptions,
    Sources,
    WarmUp,
    batch_size,
)
from rankwise.samplers import SeededBatchSampler, ShuffledBatchSampler
from rankwise.samplers.queries import HistoryBatchSampler
from rankwise.training import Budget, EvaluationOptions, OptimiserOptions, Outputs, ScheduleOptions
from rankwise.training.options import Count, NotNegative, Options, Positive, Share

__all__ = ["InteractionOptions", "Recommendation"]

# Users on whose complete lists running estimates are compared with exact values, and the most items of all of them.
PROBED_USERS, PROBED_ITEMS = 24, 1 << 23
# Scores of EASE differ by less than 1, the margin of the losses, and "item-item" divides them by the root of the length
# of the history: 10 for a hundred items. Twice that was as large as a factor that was learned.
EASE_SCALE = 20.0
ONE_TEST = "expected a file or a share to test on, or leave_one_out: time or random, one of the two"


class InteractionOptions(SourceOptions):
    """Choices of users: a MovieLens or Netflix Prize folder, a table (CSV, TSV, Parquet, Arrow) with a row per pair, or
    a text file with a line `user item item ...` per user.

    Either `test` is another such file or a share of each user's pairs of `train`, and `validation` a file too or a
    share of the pairs that are left (0.1); or `leave_one_out` says by what ("time" or "random") each user's last pair
    is cut for the test and the one before for validation. `user`, `item` and `time` are columns of a table, by name or
    position. Users with fewer than `least` pairs in `train` are left out. `save_histories`: keep the pairs of `train`
    in the run, so that it knows without the training data what its users chose. `cache`: a folder for the columns and
    pairs of tables, which are mapped from there and take no memory.
    """

    test: FileOrShare | None = None
    validation: FileOrShare | None = None
    leave_one_out: Literal["time", "random"] | None = None
    user: str | int = 0
    item: str | int = 1
    time: str | int | None = None
    least: Count = 1
    header: Literal["auto", "yes", "no"] = "auto"
    save_histories: bool = True
    cache: Path | None = None

    @model_validator(mode="after")
    def _one_way_to_cut(self) -> InteractionOptions:
        tested = self.test is not None
        if tested == (self.leave_one_out is not None) and (tested or self.train is not None):
            raise ValueError(ONE_TEST)
        if self.leave_one_out is not None and self.validation is not None:
            raise ValueError("expected no share for validation with leave_one_out, which takes one pair of each user")
        return self


Candidates = Annotated[tuple[Positive, ...], Field(min_length=1)]


class EASEOptions(Options):
    """The EASE of a blend, in which users with n items weigh n^-1/2. Of several values validation chooses one:
    `regularisation`, the power of the `popularity` by which scores are divided, and the `share` of the trained model in
    the mean of both. Above `most` items only the most popular are scored in closed form."""

    regularisation: Candidates = (30.0, 50.0, 100.0, 200.0)
    popularity: Annotated[tuple[NotNegative, ...], Field(min_length=1)] = (0.1, 0.2)
    share: Annotated[tuple[Share, ...], Field(min_length=1)] = (0.3, 0.5, 0.7)
    most: Count = 10_000


class RecommenderOptions(Options):
    """ "blend" is the mean of "item-item" and of an EASE beside it, trained apart; "item-item" scores by a user's other
    items, "matrix-factorisation" and "neumf" by a vector per user.

    `dimensions` is the length of the vectors, for "blend" and "item-item" the rank. `input_dropout` (the share of a
    history that is left out at random while training, 0.5) is for these two, `closed_form` for "blend". `ease` is for
    "item-item": the regularisation of an EASE of the training pairs, which is corrected instead of starting from
    nothing; `hidden` (the layers of the network, 128, 64 and 32) is for "neumf".
    """

    name: Literal["blend", "item-item", "matrix-factorisation", "neumf"] = "blend"
    dimensions: Count = 128
    input_dropout: Annotated[float, Field(ge=0, lt=1)] | None = None
    closed_form: EASEOptions = EASEOptions()
    ease: Positive | None = None
    hidden: Annotated[tuple[Count, ...], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _options_of_the_model(self) -> RecommenderOptions:
        owners = {"input_dropout": ("blend", "item-item"), "ease": ("item-item",), "hidden": ("neumf",)}
        given = {option: names for option, names in owners.items() if getattr(self, option) is not None}
        if self.closed_form != EASEOptions():
            given["closed_form"] = ("blend",)
        for option, names in given.items():
            if self.name not in names:
                raise ValueError(f"{option} is an option of {' and '.join(names)}, got it with {self.name}")
        return self


class RecommenderOptimiser(OptimiserOptions):
    """AdamW, or SGD with momentum."""

    learning_rate: Positive = 5e-3
    weight_decay: NotNegative = 0.8
    betas: tuple[Share, Share] = (0.9, 0.99)


class RecommenderSchedule(ScheduleOptions):
    """Learning rate over the run, see `ScheduleOptions`; by default times 0.3 in the last quarter."""

    name: Literal["cosine", "steps", "constant"] = "steps"
    at: tuple[Share, ...] = (0.75,)
    factor: Positive = 0.3


class UserListBatches(Options):
    """Batches of `users` (128, or all if there are fewer) with all items, or with so many `relevant` and `irrelevant`
    ones of each, drawn anew at each visit."""

    users: Count | None = None
    relevant: Count | None = None
    irrelevant: Count | None = None

    @model_validator(mode="after")
    def _both_or_none(self) -> UserListBatches:
        if (self.relevant is None) != (self.irrelevant is None):
            raise ValueError("expected relevant and irrelevant together, or neither")
        return self


class Recommendation(Problem[InteractionSchema, InteractionPart]):
    """Rank all items for each user; those the user is known to have chosen are left out.

    Validation is evaluated with the training items known, test with training and validation items, "train" with the
    training items themselves wanted. Every figure is that of a ranking of all other items. Items that only the files
    for validation or test hold belong to the catalogue, too: they count as wanted, though no model has learned them.
    Users without training pairs have an empty history; a model with a vector per user refuses them.

    `sampled_items`: also report the metrics of the wanted items among so many others of each user, drawn at random, as
    many papers do.

    Example:
        >>> users, items = torch.arange(40) % 8, torch.arange(40) * 7 % 20
        >>> pairs = Interactions(users, items, None, None, tuple("abcdefgh"), tuple("abcdefghijklmnopqrst"))
        >>> problem = Recommendation(data={"leave_one_out": "random"}, batches={"users": 4})
        >>> schema, split = problem.read({"train": pairs})
        >>> parts = problem.cut(split, seed=0)
        >>> next(iter(problem.train_loader(parts.train, seed=0))).labels.shape
        torch.Size([4, 20])
        >>> sorted(problem.evaluate(problem.build_model(schema), parts.test).means)
        ['hit@10', 'map', 'ndcg@10', 'ndcg@20', 'recall@20']
    """

    kind: ClassVar[str] = "recsys"
    summary: ClassVar[str] = "what users chose: rank all other items for each user"
    outputs: ClassVar[Literal["scores", "vectors", "boxes"]] = "scores"
    schema_type: ClassVar[type[Any]] = InteractionSchema

    data: InteractionOptions = InteractionOptions()
    model: RecommenderOptions = RecommenderOptions()
    loss: LossChoice = LossChoice.of("song", discount_shift=30)
    warm_up: WarmUp | None = None
    batches: UserListBatches = UserListBatches()
    optimiser: RecommenderOptimiser = RecommenderOptimiser()
    schedule: RecommenderSchedule = RecommenderSchedule()
    budget: Budget = Budget(epochs=30)
    evaluation: EvaluationOptions = EvaluationOptions(every=200)
    refit: bool = True
    sampled_items: Count | None = None
    metrics: Names = ("ndcg@20", "ndcg@10", "recall@20", "hit@10", "map")

    @model_validator(mode="after")
    def _fits(self) -> Recommendation:
        if self._by_history and self.batches.relevant is not None:
            raise ValueError(
                f"{self.model.name} scores all items at once: expected no batches.relevant and no irrelevant"
            )
        if self.warm_up is not None:
            self.warm_up.check_budget(self.budget)
        return self

    @property
    def lists_on_ranks(self) -> bool:
        return True

    @property
    def tables_shard(self) -> bool:
        return self.model.name == "matrix-factorisation"

    @property
    def _by_history(self) -> bool:
        return self.model.name in ("blend", "item-item")

    def read(self, sources: Sources) -> tuple[InteractionSchema, Split[Interactions]]:
        data, given = self.data, self.data.sources(sources)
        tested = "test" in given or isinstance(data.test, float)
        if tested == (data.leave_one_out is not None):
            raise ValueError(f"data: {ONE_TEST}")
        if "validation" in given and data.leave_one_out is not None:
            raise ValueError("data: expected no validation data with leave_one_out, which takes one pair of each user")
        pairs, schema = learn_interactions(
            given["train"], user=data.user, item=data.item, time=data.time, header=data.header, cache=data.cache
        )
        train = active_users(pairs, data.least)
        others = {name: schema.pairs(given[name], cache=data.cache) for name in ("validation", "test") if name in given}
        items = tuple(dict.fromkeys(name for each in (train, *others.values()) for name in each.item_names))
        train = number_like(train, train.user_names, items)
        users = train.user_names
        for name, each in others.items():
            others[name] = number_like(each, users, items)
            users = others[name].user_names
        kept = histories(train) if data.save_histories else None
        return replace(schema, users=train.user_names, items=items, histories=kept), Split(train, **others)

    def read_with(self, schema: InteractionSchema, sources: Sources) -> Split[Interactions]:
        learned, split = self.read(sources)
        if (learned.users, learned.items) != (schema.users, schema.items):
            raise ValueError(
                "data: expected the users and items of the run to go on from, got others; train anew to add some"
            )
        return split

    def cut(self, split: Split[Interactions], seed: int) -> Split[InteractionPart]:
        if self.data.leave_one_out is not None:
            split = leave_one_out(split.train, by=self.data.leave_one_out, seed=seed)
        if split.test is None and isinstance(self.data.test, float):
            train, test = hold_out(split.train, share=self.data.test, seed=seed)
            split = replace(split, train=train, test=test)
        if split.validation is None:
            share = self.data.validation if isinstance(self.data.validation, float) else 0.1
            split = Split(*hold_out(split.train, share=share, seed=seed), split.test)
        parts = cut_histories(split)
        for name in ("validation", "test"):
            self._check_users(parts.part(name))
        return parts

    def build_model(self, schema: InteractionSchema) -> nn.Module:
        users, items, options = len(schema.users), len(schema.items), self.model
        if self._by_history:
            dropout = 0.5 if options.input_dropout is None else options.input_dropout
            base = None if options.ease is None else torch.zeros(items, items)
            scorer = ItemItemScorer(items, rank=options.dimensions, input_dropout=dropout, base=base)
            return scorer if options.name == "item-item" else Blend(scorer, self._closed_form(items))
        if options.name == "neumf":
            hidden = (128, 64, 32) if options.hidden is None else options.hidden
            return _ByUser(NeuMF(users, items, dimensions=options.dimensions, hidden=hidden))
        sharded = self.device.tables == "sharded" and world_size() > 1
        return _ByUser(MatrixFactorisation(users, items, dimensions=options.dimensions, sharded=sharded))

    def fit_model(self, model: nn.Module, train: InteractionPart) -> None:
        if isinstance(model, ItemItemScorer) and model.base is not None and self.model.ease is not None:
            fitted = EASE(train.known.width, regularisation=self.model.ease).fit(train.known.to_torch())
            model.base.copy_(EASE_SCALE * fitted.weights)

    @torch.no_grad()
    def complete_model(
        self, model: nn.Module, split: Split[InteractionPart], settings: Mapping[str, Any] | None = None
    ) -> Settings:
        """Fit the EASE of a blend; choose its options and the share of both models."""
        if not isinstance(model, Blend):
            return {}
        known = split.train.known
        closed = self._closed_form(known.width).to(model.share)
        gram = closed.gram(known.to_torch().to(model.share))
        if settings is None:
            settings = self._choose(model, closed, gram, split.part("validation"))
        closed.regularisation, closed.popularity_power = settings["regularisation"], settings["popularity"]
        model.solved = closed.solve(gram)
        model.share.fill_(settings["share"])
        return dict(settings)

    def build_loss(self, schema: InteractionSchema, train: InteractionPart, *, steps: int) -> nn.Module:
        loss = self._sampled(self.loss, train)
        return (
            loss if self.warm_up is None else self.warm_up.wrap_loss(loss, lambda choice: self._sampled(choice, train))
        )

    def build_schedule(self, optimiser: Optimizer, steps: int) -> LRScheduler:
        if self.warm_up is None:
            return super().build_schedule(optimiser, steps)
        return self.warm_up.build_schedule(self.schedule, self.optimiser, optimiser, steps)

    def train_loader(self, train: InteractionPart, seed: int) -> DataLoader[Batch]:
        batches, known = self.batches, train.known
        with_history = _with_history(known)
        if not len(with_history):
            raise ValueError("data: expected at least one pair to learn from, got none")
        size = batch_size("batches.users", batches.users, 128, len(with_history), "users to train on")
        sampler: SeededBatchSampler
        if batches.relevant is not None and batches.irrelevant is not None:
            sampler = HistoryBatchSampler(
                known.rows,
                known.columns,
                items=known.width,
                users=size,
                relevant=batches.relevant,
                irrelevant=batches.irrelevant,
                drop_last=True,
                seed=seed,
            )
            return batches_of(_Pairs(known), sampler)
        sampler = ShuffledBatchSampler(with_history, batch_size=size, drop_last=True, seed=seed)
        return batches_of(_WholeLists(known, with_history, by_history=self._by_history), sampler)

    def training_step(
        self, model: nn.Module, loss: nn.Module, batch: Batch, *, previous: Outputs | None = None
    ) -> Tensor:
        if self.warm_up is not None:
            self.warm_up.finish(model, loss)
        # In a batch of whole lists single items need no state.
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

    def predict(self, model: nn.Module, part: InteractionPart) -> Tensor:
        """Return the scores (U, items) of all items, the known ones included."""
        return predict_rows(model, len(part), part.known.width, self._features(part))

    def inspect(
        self,
        model: nn.Module,
        part: InteractionPart,
        *,
        bootstrap: int = 0,
        calibration: Mapping[str, Any] | None = None,
    ) -> Inspection:
        features, known, wanted = self._features(part), part.known, part.labels

        def read(rows: Tensor) -> JudgedRows:
            labels = wanted.dense(rows)
            return JudgedRows(features(rows), labels, (known.dense(rows) == 0) | (labels != 0))

        result = evaluate_rows(model, len(part), known.width, read, self.measured, bootstrap=bootstrap)
        if self.sampled_items is not None:
            result = _add_sampled(result, model, part, read, self.measured, self.sampled_items)
        return Inspection(
            result,
            "user",
            "item",
            "position",
            show_rows(model, read),
            list_name=lambda user: f"user {part.user_names[user]}",
            item_name=lambda _, item: f"item {part.item_names[item]}",
        )

    def probe_batch(self, train: InteractionPart) -> Batch:
        known, width = train.known, train.known.width
        users = _with_history(known)
        users = users[spread_over(len(users), min(PROBED_USERS, max(1, PROBED_ITEMS // width)))]
        if self.batches.relevant is None:
            lists = _WholeLists(known, users, by_history=self._by_history)
            return lists.__getitems__(range(len(users)))
        pairs = users[:, None] * width + torch.arange(width)
        return _Pairs(known).__getitems__(pairs.flatten().tolist())

    def _closed_form(self, items: int) -> EASE:
        return EASE(items, user_power=0.5, most=self.model.closed_form.most)

    def _choose(self, model: Blend, closed: EASE, gram: Tensor, validation: InteractionPart) -> Settings:
        """Return the options of the EASE and the share of the trained model that are best on validation."""
        options, device, training = self.model.closed_form, model.share.device, model.training
        users = _with_history(validation.labels)
        users = users[judged_rows(len(users), validation.known.width)]
        history, labels = validation.known.dense(users).to(device), validation.labels.dense(users).to(device)
        trained = model.eval().trained(history.to(model.share.dtype))
        model.train(training)

        def candidates() -> Iterator[tuple[Settings, Tensor]]:
            closed.popularity_power = 0.0
            for closed.regularisation in options.regularisation:
                scores = closed.solve(gram)(history)
                for power in options.popularity:
                    settings = {"regularisation": closed.regularisation, "popularity": power}
                    yield settings, scores / closed.popularity.clamp_min(1).pow(power).to(scores.dtype)

        known = JudgedRows(history, labels, (history == 0) | (labels != 0))
        return choose_blend(known, trained, candidates(), options.share, self.metric)

    def _features(self, part: InteractionPart) -> Callable[[Tensor], Tensor]:
        """Return a function from rows of the part to the model's input."""
        if self._by_history:
            return part.known.dense
        self._check_users(part)
        return lambda rows: part.users[rows]

    def _check_users(self, part: InteractionPart) -> None:
        """Refuse new users to a model that has a vector per user."""
        new = (part.users < 0).nonzero().squeeze(1)
        if len(new) and not self._by_history:
            raise ValueError(
                f"data: expected users of the training data, as {self.model.name} has a vector for each, got "
                f"{len(new)} new ones, such as {part.user_names[int(new[0])]!r}; blend and item-item score new users "
                "by their histories"
            )

    def _sampled(self, loss: LossChoice, train: InteractionPart) -> ListLoss:
        """Return a loss; where batches hold samples of the lists, it gets the sizes of the whole lists."""
        options = {}
        if self.batches.relevant is not None and loss.takes("statistics"):
            options["statistics"] = ListStatistics.of_counts(train.known.starts.diff(), size=train.known.width)
        created: ListLoss = loss.create(
            data_prior=lambda: counts_prior(train.known.starts.diff(), train.known.width),
            **options,
        )
        return created


def _add_sampled(
    result: Evaluation,
    model: nn.Module,
    part: InteractionPart,
    read: Callable[[Tensor], JudgedRows],
    metrics: Sequence[str | Metric],
    count: int,
) -> Evaluation:
    """Add the metrics of rankings of the wanted items among `count` other items of each user, drawn at random.

    Papers evaluate so to save time. The figures are far above those of all items, and may order models differently.
    """

    def read_sampled(rows: Tensor) -> JudgedRows:
        judged = read(rows)
        assert judged.mask is not None
        others = judged.mask & (judged.labels == 0)
        # A user's items are the same in every evaluation, however the users are cut into blocks.
        keys = torch.stack([torch.rand(others.shape[1], generator=_user_generator(row)) for row in rows.tolist()])
        keys = keys.to(others.device).masked_fill_(~others, -1)
        chosen = keys.topk(min(count, keys.shape[1]), 1).indices
        sampled = torch.zeros_like(others).scatter_(1, chosen, True) & others
        return judged._replace(mask=sampled | (judged.labels != 0))

    sampled = evaluate_rows(model, len(part), part.known.width, read_sampled, metrics)
    name = f"among {count} sampled items"
    definitions = {
        f"{metric} {name}": f"{words}; the wanted items {name} of each user (biased: far above that of all items)"
        for metric, words in sampled.definitions.items()
    }
    return replace(
        result,
        means={**result.means, **{f"{metric} {name}": mean for metric, mean in sampled.means.items()}},
        skipped={**result.skipped, **{f"{metric} {name}": each for metric, each in sampled.skipped.items()}},
        definitions={**result.definitions, **definitions},
    )


def _user_generator(row: int) -> torch.Generator:
    return torch.Generator().manual_seed(row)


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
        users = self.users[torch.as_tensor(indices, dtype=torch.int64)]
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
        pairs = torch.as_tensor(indices, dtype=torch.int64)
        users, items = pairs // self.known.width, pairs % self.known.width
        labels = self.known.contains(users, items).long()
        return Batch(torch.stack([users, items], 1), labels, items, users)


def _with_history(known: SparseRows) -> Tensor:
    """Return the rows that have an entry."""
    return (known.starts.diff() > 0).nonzero().squeeze(1)
