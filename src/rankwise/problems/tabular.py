"""Binary classification of rows of numbers, judged by how the positives rank."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.utils.data import DataLoader

from rankwise.data import Batch, Part, Split, TableSchema, cut_stratified, put_in_folds, read_table
from rankwise.losses import LOSSES, data_prior
from rankwise.metrics import average_precision, evaluate
from rankwise.models import MLPScorer, StackedRanker, StackedScorer, fit_scaling, scaled
from rankwise.models.mixing import fit_mix, fit_sigmoid
from rankwise.models.stacked import LEARNERS, out_of_fold, scale_of
from rankwise.problems.batches import batches_of, predict_all, shuffled_batches
from rankwise.problems.inspection import Inspection, inspect_items, spread_over
from rankwise.problems.problem import Batches, DataOptions, LossChoice, Names, Problem, Settings, Sources, batch_size
from rankwise.samplers import BinaryBatchSampler
from rankwise.training import Budget, EvaluationOptions, OptimiserOptions, Outputs
from rankwise.training.options import Count, NotNegative, Options, Positive

__all__ = [
    "MLPOptions",
    "MemberScores",
    "TableOptions",
    "Tabular",
    "check_both_kinds",
    "cut_rows",
    "probe_both_kinds",
    "read_tables",
    "rows_to_fit",
]


class TableOptions(DataOptions):
    """Tables: CSV, TSV, Parquet, Arrow or npz files, or folders of Parquet files. `validation` and `test` are files
    too, or shares of the rows of `train`.

    `label`: name or position of the label column. `positive`: name of the positive class. `features`: names of the
    columns to use, by default all but `drop` and those that tell nothing (constants, ids). Text is read as categories
    or dates; `categories` names columns of whole numbers that are categories, too. `missing`: "auto" fills missing
    cells with the median of the training part and tells the model which they were, "median" only fills them, "error"
    refuses them. `cache`: a folder for the columns and features of the files, which are mapped from there and take no
    memory.
    """

    label: str | int = -1
    positive: str | None = None
    features: tuple[str, ...] | None = None
    drop: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    missing: Literal["auto", "error", "median"] = "auto"
    header: Literal["auto", "yes", "no"] = "auto"
    cache: Path | None = None


class MLPOptions(Options):
    """A fully connected network; without a hidden layer it is linear. The features are scaled first."""

    hidden: tuple[Count, ...] = (64, 64)
    scaling: Literal["standard", "log", "none"] = "standard"


class EnsembleOptions(Options):
    """Cut the rows into `folds` and train one member without each fold. A member has two networks, one trained with the
    loss and one with cross entropy; three logistic regressions: of the scaled features, of `bins` ramps between the
    quantiles of each feature, and of these ramps with both classes of equal weight; boosted trees and extremely
    randomised trees. The squared weights of a regression cost `regularisation` / 2. With more than `most` ramps in all,
    one network is trained alone."""

    folds: Annotated[int, Field(ge=2)] = 5
    regularisation: Positive = 3.0
    bins: Count = 8
    most: Count = 4096


class StackOptions(MLPOptions):
    """Fully connected networks, regressions and trees; the scores of rows by members that did not learn from them
    decide how much each counts. `ensemble: null` trains one network alone."""

    ensemble: EnsembleOptions | None = EnsembleOptions()


class TabularOptimiser(OptimiserOptions):
    """AdamW, or SGD with momentum."""

    learning_rate: Positive = 1e-2
    weight_decay: NotNegative = 0.1


class TabularEvaluation(EvaluationOptions):
    """See `EvaluationOptions`."""

    every: Count | None = 20


class TabularBatches(Batches):
    """Batches of `size` rows (256, or all if there are fewer), with so many `positives`: by default in proportion to
    the square roots of the sizes of both classes, so that the rarer one is seen more often; "random" draws rows without
    regard to their class."""

    positives: Count | Literal["random"] | None = None


class Tabular(Problem[TableSchema, Part]):
    """Rank the positive rows of a table first.

    Example:
        >>> from rankwise.data import load_eights
        >>> problem = Tabular(loss="soprc", batches={"size": 64, "positives": 8})
        >>> batch = next(iter(problem.train_loader(load_eights(seed=0).train, seed=0)))
        >>> batch.features.shape, int(batch.labels.sum())
        (torch.Size([64, 64]), 8)
    """

    kind: ClassVar[str] = "tabular"
    summary: ClassVar[str] = "rows of a table, labels 0 or 1: rank the positive rows first"
    outputs: ClassVar[Literal["scores", "vectors", "boxes"]] = "scores"
    schema_type: ClassVar[type[Any]] = TableSchema

    data: TableOptions = TableOptions()
    model: StackOptions = StackOptions()
    loss: LossChoice = LossChoice.of("soprc")
    batches: TabularBatches = TabularBatches()
    optimiser: TabularOptimiser = TabularOptimiser()
    budget: Budget = Budget(steps=400)
    evaluation: TabularEvaluation = TabularEvaluation()
    metrics: Names = ("ap", "auroc")
    refit: bool = True

    def read(self, sources: Sources) -> tuple[TableSchema, Split[Part]]:
        return read_tables(self.data, sources, target="binary")

    def cut(self, split: Split[Part], seed: int) -> Split[Part]:
        """Cut the missing parts, and put the training rows in folds.

        With `refit`, a validation part that would be cut is the training part instead: members of its folds choose.
        """
        ensemble = self._ensemble(split.train.features.shape[1])
        together = ensemble is not None and self.refit and "validation" in self.data.shares(split)
        cut = cut_rows(self.data, split, seed, keep="validation" if together else None)
        if ensemble is not None:
            train = put_in_folds(cut.train, ensemble.folds, seed=seed)
            cut = Split(train, train if together else cut.validation, cut.test)
        check_both_kinds(cut)
        return cut

    def build_model(self, schema: TableSchema) -> nn.Module:
        width, options, fill_missing = len(schema.inputs), self.model, schema.fill_missing
        ensemble = self._ensemble(width)
        if ensemble is None:
            scorer = MLPScorer(width, hidden=options.hidden)
            return scaled(scorer, width, options.scaling, fill_missing=fill_missing)
        return StackedScorer(
            width,
            hidden=options.hidden,
            members=ensemble.folds,
            scaling=options.scaling,
            fill_missing=fill_missing,
            bins=ensemble.bins,
            columns=schema.encoding.codes,
        )

    def _ensemble(self, width: int) -> EnsembleOptions | None:
        """Return the options of the ensemble for rows of so many features; None for one network alone."""
        options = self.model.ensemble
        return None if options is None or width * options.bins > options.most else options

    def fit_model(self, model: nn.Module, train: Part) -> None:
        fit_scaling(model, train.features)

    def complete_model(
        self, model: nn.Module, split: Split[Part], settings: Mapping[str, Any] | None = None
    ) -> Settings:
        """Fit regressions and trees; choose out of fold how much they and the networks count."""
        if not isinstance(model, StackedScorer) or self.model.ensemble is None:
            return {}
        device, (part, weights) = model.constant.device, rows_to_fit(split.train)
        model.fit(
            part.features[:].to(device),
            part.labels.to(device),
            None if part.folds is None else part.folds.to(device),
            regularisation=self.model.ensemble.regularisation,
            weights=weights.to(device),
        )
        if settings is None:
            if part.folds is None:
                part, weights = rows_to_fit(split.part("validation"))
            by_member, positive = predict_all(MemberScores(model), part.features), part.labels > 0
            scores = (by_member.mean(1) if part.folds is None else out_of_fold(by_member, part.folds)).T
            mix = fit_mix(scores, positive, weights)
            labels, importance = (each.expand(scores.shape) for each in (positive.long(), weights))
            alone = average_precision(scores, labels, weights=importance, reduction="none")
            settings = {
                "factors": mix.factors.tolist(),
                "constant": mix.constant,
                "measure": "ap",
                "alone": dict(zip(LEARNERS, alone.tolist(), strict=True)),
                "shares": dict(zip(LEARNERS, mix.shares.tolist(), strict=True)),
            }
        model.mix(torch.tensor(settings["factors"]), settings["constant"])
        return dict(settings)

    def build_loss(self, schema: TableSchema, train: Part, *, steps: int) -> nn.Module:
        if LOSSES.get(self.loss.name).inputs != "scores":
            raise ValueError(f"loss: expected one over scores, got {self.loss.name!r}, which is over embeddings")
        loss: nn.Module = self.loss.create(data_prior=lambda: data_prior(train.labels))
        return loss

    def train_loader(self, train: Part, seed: int) -> DataLoader[Batch]:
        size = batch_size("batches.size", self.batches.size, 256, len(train), "rows to train on")
        positives = self.batches.positives
        if positives == "random" or (positives is None and size == len(train)):
            return shuffled_batches(train, size, seed)
        if positives is None:
            positives = _share_of_positives(train.labels, size)
        if positives >= size:
            raise ValueError(f"batches.positives: expected fewer than the {size} rows, got {positives}")
        sampler = BinaryBatchSampler(
            train.labels, positives=positives, negatives=size - positives, drop_last=True, seed=seed
        )
        return batches_of(train, sampler)

    def training_step(
        self, model: nn.Module, loss: nn.Module, batch: Batch, *, previous: Outputs | None = None
    ) -> Tensor:
        # Estimates are checked in evaluation mode, in which an ensemble returns one score for each row.
        if isinstance(model, StackedScorer) and not model.training:
            scores = model.network_scores(batch.features)
        else:
            scores = model(batch.features)
        labels, ids = batch.labels, batch.sample_ids
        before = None if previous is None else previous(batch.features)
        if scores.dim() == 1:
            value: Tensor = loss(scores, labels, sample_ids=ids, previous_scores=before)
            return value
        # The rows are one list for each member, without its fold.
        ranked, others = scores.tensor_split(2, 1)
        members = torch.arange(ranked.shape[1], device=scores.device)
        learned = torch.ones_like(ranked, dtype=torch.bool) if batch.folds is None else batch.folds[:, None] != members
        labels = labels[:, None].expand_as(ranked)
        value = loss(
            ranked.flatten(),
            labels.flatten(),
            query_ids=members.expand_as(ranked).flatten(),
            sample_ids=(ids[:, None] * len(members) + members).flatten(),
            mask=learned.flatten(),
            previous_scores=None if before is None else before[:, : len(members)].flatten(),
        )
        entropy = binary_cross_entropy_with_logits(others, labels.to(others.dtype), weight=learned.to(others.dtype))
        return value + entropy

    def predict(self, model: nn.Module, part: Part) -> Tensor:
        """Return the scores (N,) of the rows of a part; of rows in folds those of the member that left them out."""
        if part.folds is None or not isinstance(model, StackedScorer):
            return predict_all(model, part.features)
        scores = predict_all(MemberScores(model), part.features)
        if not model.fitted:
            # A ranking loss leaves the scale of scores open.
            centre, spread = scale_of(scores, part.labels > 0)
            scores = ((scores - centre) / spread).to(scores)
        return out_of_fold(model.mixed(scores), part.folds)

    def inspect(
        self, model: nn.Module, part: Part, *, bootstrap: int = 0, calibration: Mapping[str, Any] | None = None
    ) -> Inspection:
        scores = self.predict(model, part)
        result = evaluate(scores, part.labels, self.measured, bootstrap=bootstrap)
        words = {"list_word": "ranking", "item_word": "row", "curve": "precision"}
        return inspect_items(result, scores, part.labels, None, row_name=part.row_name, **words)

    def calibrate(self, model: nn.Module, validation: Part) -> dict[str, Any]:
        """Return the sigmoid that turns scores into probabilities of a positive label."""
        return {"sigmoid": fit_sigmoid(self.predict(model, validation), validation.labels > 0)}

    def probe_batch(self, train: Part) -> Batch:
        return probe_both_kinds(train)


def _share_of_positives(labels: Tensor, size: int) -> int:
    """Return how many of `size` rows are positive in proportion to the square roots of the sizes of both classes."""
    positives = int((labels == 1).sum())
    negatives = len(labels) - positives
    share = math.sqrt(positives) / (math.sqrt(positives) + math.sqrt(negatives))
    return min(max(1, round(share * size), size - negatives), positives, size - 1)


# Rows that regressions and trees are fitted to, and their mix: more teach them little.
FITTED_ROWS = 50_000
# Numbers in all of these rows.
_FITTED_CELLS = 1 << 23


def rows_to_fit(part: Part) -> tuple[Part, Tensor]:
    """Return the rows that regressions and trees learn from, evenly spread, and their weights (N,), float64.

    If there are too many, the numbers of both classes are in proportion to the square roots of their sizes, so that the
    rarer one is kept; the weights make up for it.
    """
    most = min(FITTED_ROWS, _FITTED_CELLS // part.features.shape[1])
    if len(part) <= most:
        return part, torch.ones(len(part), dtype=torch.float64)
    kinds: list[Tensor] = [kind.nonzero().squeeze(1) for kind in (part.labels <= 0, part.labels > 0)]
    roots = [math.sqrt(len(rows)) for rows in kinds]
    chosen, weights = [], []
    for rows, root in zip(kinds, roots, strict=True):
        count = min(len(rows), math.ceil(most * root / sum(roots)))
        chosen.append(rows[spread_over(len(rows), count)])
        weights.append(torch.full((count,), len(rows) / max(1, count), dtype=torch.float64))
    return part.take(torch.cat(chosen)), torch.cat(weights)


class MemberScores(nn.Module):
    """The scores (N, M, K) of each member of an ensemble."""

    def __init__(self, model: StackedScorer | StackedRanker) -> None:
        super().__init__()
        self.model = model
        self.train(model.training)

    def forward(self, features: Tensor) -> Tensor:
        return self.model.member_scores(features)


def read_tables(
    data: TableOptions, sources: Sources, *, target: Literal["binary", "classes", "any"]
) -> tuple[TableSchema, Split[Part]]:
    """Learn the schema from the training table and read the other tables with it."""
    given = data.sources(sources)
    train, schema = read_table(
        given["train"],
        label=data.label,
        positive=data.positive,
        target=target,
        features=data.features,
        drop=data.drop,
        missing=data.missing,
        categories=data.categories,
        header=data.header,
        cache=data.cache,
    )
    # All rows are one list: other tables need no queries, even if the training data have some.
    schema = replace(schema, query=None)
    others = {name: schema.read(given[name], cache=data.cache) for name in ("validation", "test") if name in given}
    return schema, Split(train, **others)


def cut_rows(data: TableOptions, split: Split[Part], seed: int, *, keep: str | None = None) -> Split[Part]:
    """Cut the missing parts from the training rows, the same share of each class; the rows of `keep` stay there."""
    shares = {name: share for name, share in data.shares(split).items() if name != keep}
    if not shares:
        return split
    both = [shares.get(name, 0.0) for name in ("validation", "test")]
    cut = cut_stratified(split.train, shares=(1 - sum(both), *both), seed=seed)
    return Split(cut.train, split.validation or cut.validation, split.test or cut.test)


# Rows of each label on which running estimates are compared with exact values.
PROBED_ROWS = 2048


def check_both_kinds(split: Split[Part]) -> None:
    """Refuse a split of which a part lacks positive or negative rows."""
    for name in ("train", "validation", "test"):
        labels = split.part(name).labels
        positives = int((labels == 1).sum())
        if positives in (0, len(labels)):
            of = f"{positives} positive of {len(labels)}"
            raise ValueError(f"data: expected positive and negative rows in the {name} part, got {of}")


def probe_both_kinds(part: Part) -> Batch:
    """Return up to 2,048 rows of each label, evenly spread."""
    kinds: list[Tensor] = [(part.labels == label).nonzero().squeeze(1) for label in (0, 1)]
    return part.__getitems__(torch.cat([rows[spread_over(len(rows), PROBED_ROWS)] for rows in kinds]).tolist())
