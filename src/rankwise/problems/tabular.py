"""Binary classification of rows of numbers, judged by how the positives rank."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from rankwise.data import Batch, Part, Split, TableSchema, cut_stratified, read_table
from rankwise.data.mapped import FeatureRows
from rankwise.losses import LOSSES, data_prior
from rankwise.metrics import average_precision, evaluate
from rankwise.models import MLPScorer, StackedScorer, fit_scaling, scaled
from rankwise.models.mixing import fit_mix, fit_sigmoid
from rankwise.problems.batches import ROWS_AT_ONCE, batches_of, predict_all, shuffled_batches
from rankwise.problems.inspection import Inspection, inspect_items, spread_over
from rankwise.problems.problem import Batches, DataOptions, LossChoice, Names, Problem, Settings, Sources, batch_size
from rankwise.samplers import BinaryBatchSampler
from rankwise.training import Outputs
from rankwise.training.options import Count, Options, Positive

__all__ = ["MLPOptions", "TableOptions", "Tabular", "check_both_kinds", "cut_rows", "probe_both_kinds", "read_tables"]


class TableOptions(DataOptions):
    """Tables: CSV, TSV, Parquet, Arrow or npz files. `validation` and `test` are files too, or shares of the rows of
    `train`.

    `label`: name or position of the label column. `positive`: name of the positive class. `features`: names of the
    columns to use, by default all but `drop` and those that tell nothing (constants, ids). Text is read as categories
    or dates; `categories` names columns of whole numbers that are categories, too. `missing`: "auto" fills missing
    cells with the median of the training part and tells the model which they were, "median" only fills them, "error"
    refuses them.
    """

    label: str | int = -1
    positive: str | None = None
    features: tuple[str, ...] | None = None
    drop: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    missing: Literal["auto", "error", "median"] = "auto"
    header: Literal["auto", "yes", "no"] = "auto"


class MLPOptions(Options):
    """A fully connected network; without a hidden layer it is linear. The features are scaled first."""

    hidden: tuple[Count, ...] = (64, 64)
    scaling: Literal["standard", "log", "none"] = "standard"


class RegressionOptions(Options):
    """Logistic regressions beside the network: of the scaled features, and of `bins` ramps between the quantiles of
    each, plain and with both classes of equal weight. Their squared weights cost `regularisation` / 2. There are none
    above `most` ramps in all."""

    regularisation: Positive = 3.0
    bins: Count = 8
    most: Count = 4096


class StackOptions(MLPOptions):
    """A fully connected network, and regressions beside it; the validation part decides how much each counts.
    `regressions: null` leaves the network alone."""

    regressions: RegressionOptions | None = RegressionOptions()


class TabularBatches(Batches):
    """Batches of `size` rows (256, or all if there are fewer), with so many `positives`; left out, they are random."""

    positives: Count | None = None


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
    metrics: Names = ("ap", "auroc")
    refit: bool = True

    def read(self, sources: Sources) -> tuple[TableSchema, Split[Part]]:
        return read_tables(self.data, sources, target="binary")

    def cut(self, split: Split[Part], seed: int) -> Split[Part]:
        cut = cut_rows(self.data, split, seed)
        check_both_kinds(cut)
        return cut

    def build_model(self, schema: TableSchema) -> nn.Module:
        width, fill_missing, stack = len(schema.inputs), schema.fill_missing, self.model.regressions
        scorer = MLPScorer(width, hidden=self.model.hidden)
        if stack is None or width * stack.bins > stack.most:
            return scaled(scorer, width, self.model.scaling, fill_missing=fill_missing)
        scaling = self.model.scaling
        return StackedScorer(scorer, width, scaling=scaling, fill_missing=fill_missing, bins=stack.bins)

    def fit_model(self, model: nn.Module, train: Part) -> None:
        fit_scaling(model, train.features)

    def complete_model(
        self, model: nn.Module, split: Split[Part], settings: Mapping[str, Any] | None = None
    ) -> Settings:
        """Fit the regressions; choose on validation how much they and the network count."""
        if not isinstance(model, StackedScorer) or self.model.regressions is None:
            return {}
        device, train = model.constant.device, split.train
        rows = _rows_to_regress_on(train.labels)
        features, labels = (each[rows].to(device) for each in (train.features, train.labels))
        model.fit(features, labels, regularisation=self.model.regressions.regularisation)
        if settings is None:
            validation = split.part("validation")
            scores, positive = _member_scores(model, validation.features), validation.labels > 0
            mix = fit_mix(scores, positive)
            names = ("network", "linear", "ramps", "balanced ramps")
            alone = average_precision(scores, positive.long().expand(scores.shape), reduction="none")
            settings = {
                "factors": mix.factors.tolist(),
                "constant": mix.constant,
                "shares": dict(zip(names, mix.shares.tolist(), strict=True)),
                "ap": dict(zip(names, alone.tolist(), strict=True)),
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
        if positives is None:
            return shuffled_batches(train, size, seed)
        if positives >= size:
            raise ValueError(f"batches.positives: expected fewer than the {size} rows, got {positives}")
        sampler = BinaryBatchSampler(
            train.labels, positives=positives, negatives=size - positives, drop_last=True, seed=seed
        )
        return batches_of(train, sampler)

    def training_step(
        self, model: nn.Module, loss: nn.Module, batch: Batch, *, previous: Outputs | None = None
    ) -> Tensor:
        before = None if previous is None else previous(batch.features)
        value: Tensor = loss(model(batch.features), batch.labels, sample_ids=batch.sample_ids, previous_scores=before)
        return value

    def predict(self, model: nn.Module, part: Part) -> Tensor:
        """Return the scores (N,) of the rows of a part."""
        return predict_all(model, part.features)

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


# Rows that regressions are fitted to: more teach them little.
REGRESSED_ROWS = 50_000


def _rows_to_regress_on(labels: Tensor) -> Tensor:
    """Return the indices of the rows: all, or of each class the same share, evenly spread."""
    kinds = [(labels == label).nonzero().squeeze(1) for label in labels.unique()]
    share = min(1.0, REGRESSED_ROWS / len(labels))
    return torch.cat([rows[spread_over(len(rows), math.ceil(share * len(rows)))] for rows in kinds])


def _member_scores(model: StackedScorer, features: FeatureRows) -> Tensor:
    """Return the scores (K, N) of all rows, in evaluation mode; the mode is restored."""
    training, device = model.training, model.constant.device
    model.eval()
    blocks = [model.member_scores(block.to(device)).cpu() for block in features.split(ROWS_AT_ONCE)]
    model.train(training)
    return torch.cat(blocks, 1)


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
    )
    # All rows are one list: other tables need no queries, even if the training data have some.
    schema = replace(schema, query=None)
    others = {name: schema.read(given[name]) for name in ("validation", "test") if name in given}
    return schema, Split(train, **others)


def cut_rows(data: TableOptions, split: Split[Part], seed: int) -> Split[Part]:
    """Cut the missing parts from the training rows, the same share of each class."""
    shares = data.shares(split)
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
