"""Many labels per example: rank the labels of each example, or the examples of each label."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field, field_validator, model_validator
from torch import Tensor, nn
from torch.utils.data import DataLoader

from rankwise.data import Batch, SparsePart, SparseRows, SparseSchema, Split, cut_multilabel, read_multilabel
from rankwise.data.tokens import TokenRows
from rankwise.estimators.groups import GroupPrior, counts_prior
from rankwise.losses import ListStatistics
from rankwise.metrics import evaluate
from rankwise.models import XMLCNN, BagOfWordsScorer, Blend, Ridge
from rankwise.models.mixing import fit_sigmoid
from rankwise.problems.batches import JudgedRows, batches_of, evaluate_rows, predict_rows, show_rows
from rankwise.problems.blending import choose_blend, judged_rows
from rankwise.problems.inspection import Inspection, SeenLists, spread_over
from rankwise.problems.problem import Batches, DataOptions, LossChoice, Names, Problem, Settings, Sources, batch_size
from rankwise.samplers import ShuffledBatchSampler
from rankwise.training import Budget, OptimiserOptions, Outputs
from rankwise.training.options import Count, NotNegative, Options, Positive

__all__ = ["MultiLabel", "MultiLabelOptions"]

# Examples on which running estimates are compared with exact values.
PROBED_ROWS = 512
# Scores to which the sigmoid of the probabilities is fitted.
CELLS_TO_CALIBRATE = 10**6
# Weights of a ridge regression, 400 MB.
MOST_WEIGHTS = 10**8


class MultiLabelOptions(DataOptions):
    """ARFF files (Mulan, MEKA), text files of the extreme classification repository, or texts with labels in the form
    of LibMultiLabel (`labels<TAB>text`), for "xml-cnn". `validation` and `test` are files too, or shares of the
    examples of `train`. Of texts the `vocabulary` most frequent words are known, and the `longest` first are read."""

    vocabulary: Count = 50_000
    longest: Count = 500


class RidgeOptions(Options):
    """A ridge regression beside the network, for `lists: rows`. Of several values validation chooses one:
    `regularisation`, and the `share` of the network in the mean of both. Only the `most` frequent features are used, so
    few that there are at most `MOST_WEIGHTS` weights."""

    regularisation: Annotated[tuple[Positive, ...], Field(min_length=1)] = (0.3, 0.6, 1.0, 2.0)
    share: Annotated[tuple[Annotated[float, Field(ge=0, le=1)], ...], Field(min_length=1)] = (0.35, 0.5, 0.65, 0.8, 1.0)
    most: Count = 10_000


class LabelScorerOptions(Options):
    """ "bag-of-words" adds the vectors of words up, then come further layers; without a `hidden` layer it is linear.
    `ridge: null` leaves the network alone.

    "xml-cnn" is for texts: word vectors of so many `dimensions` (300), `filters` (128) over 2, 4 and 8 words, the
    maximum in each of the `parts` (8) of a text, a `bottleneck` (512).
    """

    name: Literal["bag-of-words", "xml-cnn"] = "bag-of-words"
    hidden: tuple[Count, ...] = (512,)
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.5
    ridge: RidgeOptions | None = RidgeOptions()
    dimensions: Count | None = None
    filters: Count | None = None
    parts: Count | None = None
    bottleneck: Count | None = None

    @model_validator(mode="after")
    def _options_of_the_model(self) -> LabelScorerOptions:
        if self.texts:
            if self.hidden != (512,) or self.ridge not in (None, RidgeOptions()):
                raise ValueError("hidden and ridge are options of bag-of-words, got them with xml-cnn")
        elif self.sizes:
            raise ValueError(f"{next(iter(self.sizes))} is an option of xml-cnn, got it with bag-of-words")
        return self

    @property
    def texts(self) -> bool:
        """Return whether the model takes texts."""
        return self.name == "xml-cnn"

    @property
    def sizes(self) -> dict[str, Any]:
        """Return the sizes of XML-CNN that are given."""
        names = ("dimensions", "filters", "parts", "bottleneck")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}


class MultiLabelOptimiser(OptimiserOptions):
    """AdamW, or SGD with momentum."""

    learning_rate: Positive = 2e-3
    weight_decay: NotNegative = 0.1


class MultiLabel(Problem[SparseSchema, SparsePart]):
    """Score all labels for each example, from a bag of words, or from its text by `model.name: xml-cnn`.

    `lists`: with "rows" an example is a list of labels, its own first (NDCG@k, precision@k). With "columns" a label is
    a list of examples, those that have it first (AP of each label, the mean of which is macro AP); a batch then holds a
    sample of every list, and a loss that uses the sizes of whole lists gets them.

    Example:
        >>> data = read_multilabel((torch.rand(30, 5), torch.eye(5).repeat(6, 1)))
        >>> problem = MultiLabel(model={"hidden": []}, batches={"size": 10})
        >>> sorted(problem.evaluate(problem.build_model(SparseSchema.of(data)), data).means)
        ['ndcg@3', 'ndcg@5', 'precision@1', 'precision@3']
    """

    kind: ClassVar[str] = "multilabel"
    summary: ClassVar[str] = "examples with many labels: rank labels, or examples"
    outputs: ClassVar[Literal["scores", "vectors", "boxes"]] = "scores"
    schema_type: ClassVar[type[Any]] = SparseSchema

    data: MultiLabelOptions = MultiLabelOptions()
    lists: Literal["rows", "columns"] = "rows"
    model: LabelScorerOptions = LabelScorerOptions()
    loss: LossChoice = LossChoice.of("song", discount_shift=10)
    batches: Batches = Batches()
    optimiser: MultiLabelOptimiser = MultiLabelOptimiser()
    budget: Budget = Budget(epochs=16)
    refit: bool = True
    metrics: Names = ("ndcg@5", "ndcg@3", "precision@1", "precision@3")

    @field_validator("loss")
    @classmethod
    def _no_option_of_the_problem(cls, loss: LossChoice) -> LossChoice:
        if "lists" in loss.options:
            raise ValueError("expected `lists` beside the loss, not among its options")
        return loss

    def read(self, sources: Sources) -> tuple[SparseSchema, Split[SparsePart]]:
        given = self.data.sources(sources)
        data = self.data
        train = read_multilabel(given["train"], vocabulary=data.vocabulary, longest=data.longest)
        texts = isinstance(train.features, TokenRows)
        if texts != self.model.texts:
            wanted, given_as = ("xml-cnn", "texts") if texts else ("bag-of-words", "counts of words")
            raise ValueError(f"model.name: expected {wanted} for {given_as}, got {self.model.name}")
        schema = SparseSchema.of(train, data.longest if texts else None)
        others = {name: schema.read(given[name]) for name in ("validation", "test") if name in given}
        return schema, Split(train, **others)

    def cut(self, split: Split[SparsePart], seed: int) -> Split[SparsePart]:
        shares = self.data.shares(split)
        if not shares:
            return split
        train, *cut = cut_multilabel(split.train, shares=(1 - sum(shares.values()), *shares.values()), seed=seed)
        pieces = dict(zip(shares, cut, strict=True))
        return Split(train, pieces.get("validation", split.validation), pieces.get("test", split.test))

    def build_model(self, schema: SparseSchema) -> nn.Module:
        options = self.model
        if options.texts:
            return _WordScorer(XMLCNN(schema.features, schema.labels, dropout=options.dropout, **options.sizes))
        network = BagOfWordsScorer(schema.features, schema.labels, hidden=options.hidden, dropout=options.dropout)
        # A share of standardised rows would not compare examples, as lists that are columns do.
        if options.ridge is None or self.lists == "columns":
            return network
        return Blend(network, _ridge(options.ridge, schema.features, schema.labels))

    @torch.no_grad()
    def complete_model(
        self, model: nn.Module, split: Split[SparsePart], settings: Mapping[str, Any] | None = None
    ) -> Settings:
        """Fit the ridge regression; choose its regularisation and the share of the network."""
        train, options = split.train, self.model
        if not isinstance(model, Blend) or options.ridge is None:
            return {}
        assert isinstance(train.features, SparseRows)
        ridge = _ridge(options.ridge, train.features.width, train.labels.width).to(model.share)
        products = ridge.products(*(rows.to_torch().to(model.share) for rows in (train.features, train.labels)))
        if settings is None:
            settings = self._choose(model, ridge, products, split.part("validation"), options.ridge)
        ridge.regularisation = settings["regularisation"]
        model.solved = ridge.solve(*products)
        model.share.fill_(settings["share"])
        return dict(settings)

    def _choose(
        self,
        model: Blend,
        ridge: Ridge,
        products: tuple[Tensor, Tensor],
        validation: SparsePart,
        options: RidgeOptions,
    ) -> Settings:
        """Return the regularisation and the share of the network that are best on validation."""
        device, training = model.share.device, model.training
        rows = judged_rows(len(validation), max(validation.features.width, validation.labels.width))
        features = validation.features.dense(rows).to(device, model.share.dtype)
        network = model.eval().trained(features)
        model.train(training)

        def candidates() -> Iterator[tuple[Settings, Tensor]]:
            for ridge.regularisation in options.regularisation:
                yield {"regularisation": ridge.regularisation}, ridge.solve(*products)(features)

        known = JudgedRows(features, validation.labels.dense(rows).to(device), None)
        return choose_blend(known, network, candidates(), options.share, self.metric)

    def build_loss(self, schema: SparseSchema, train: SparsePart, *, steps: int) -> nn.Module:
        options: dict[str, Any] = {}
        if self.lists == "columns":
            options["lists"] = "columns"
            if self.loss.takes("statistics"):
                labels = train.labels
                options["statistics"] = ListStatistics(labels.values.long(), labels.columns, size=len(labels))
        loss: nn.Module = self.loss.create(data_prior=lambda: self._prior(train.labels), **options)
        return loss

    def _prior(self, labels: SparseRows) -> GroupPrior:
        """Return the share of positives in each list: of each example, or of each label."""
        columns = self.lists == "columns"
        lists, items = (labels.width, len(labels)) if columns else (len(labels), labels.width)
        return counts_prior(torch.bincount(labels.columns if columns else labels.rows, minlength=lists), items)

    def train_loader(self, train: SparsePart, seed: int) -> DataLoader[Batch]:
        size = batch_size("batches.size", self.batches.size, 64, len(train), "rows to train on")
        sampler = ShuffledBatchSampler(torch.zeros(len(train)), batch_size=size, drop_last=True, seed=seed)
        return batches_of(train, sampler)

    def training_step(
        self, model: nn.Module, loss: nn.Module, batch: Batch, *, previous: Outputs | None = None
    ) -> Tensor:
        rows = self.lists == "rows"
        # Rows are whole lists; in columns each example is an item of which a loss may keep state.
        value: Tensor = loss(
            model(batch.features),
            batch.labels,
            query_ids=batch.sample_ids if rows else None,
            sample_ids=None if rows else batch.sample_ids[:, None].expand_as(batch.labels),
            previous_scores=None if previous is None else previous(batch.features),
        )
        return value

    def predict(self, model: nn.Module, part: SparsePart) -> Tensor:
        """Return the scores (N, L) of all labels for each example."""
        return predict_rows(model, len(part), part.features.width, part.features.dense)

    def inspect(
        self, model: nn.Module, part: SparsePart, *, bootstrap: int = 0, calibration: Mapping[str, Any] | None = None
    ) -> Inspection:
        features, targets = part.features, part.labels

        def read(rows: Tensor) -> JudgedRows:
            return JudgedRows(features.dense(rows), targets.dense(rows), None)

        def label(number: int) -> str:
            return f"label {number}" if part.label_names is None else part.label_names[number]

        def example(number: int) -> str:
            return f"example {number}"

        if self.lists == "rows":
            width = max(features.width, targets.width)
            result = evaluate_rows(model, len(part), width, read, self.measured, bootstrap=bootstrap)
            seen = show_rows(model, read)
            return Inspection(result, "example", "label", "position", seen, example, lambda _, column: label(column))
        scores, labels = self.predict(model, part), targets.dense()
        result = evaluate(scores, labels, self.measured, lists="columns", bootstrap=bootstrap)

        def columns(numbers: Tensor) -> SeenLists:
            return SeenLists(scores.T[numbers], labels.T[numbers])

        return Inspection(result, "label", "example", "precision", columns, label, lambda _, row: example(row))

    def calibrate(self, model: nn.Module, validation: SparsePart) -> dict[str, Any]:
        """Return the sigmoid, one for all labels, that turns scores into probabilities."""
        most = max(1, CELLS_TO_CALIBRATE // max(1, validation.labels.width))
        some = validation.take(spread_over(len(validation), most))
        return {"sigmoid": fit_sigmoid(self.predict(model, some).flatten(), some.labels.dense().flatten() > 0)}

    def probe_batch(self, train: SparsePart) -> Batch:
        return train.__getitems__(spread_over(len(train), PROBED_ROWS).tolist())


class _WordScorer(nn.Module):
    """XML-CNN on words by number (B, T), of which 0 is padding."""

    def __init__(self, model: XMLCNN) -> None:
        super().__init__()
        self.model = model

    def forward(self, words: Tensor) -> Tensor:
        scores: Tensor = self.model(words, mask=words > 0)
        return scores


def _ridge(options: RidgeOptions, features: int, labels: int) -> Ridge:
    return Ridge(features, labels, most=max(1, min(options.most, MOST_WEIGHTS // labels)))
