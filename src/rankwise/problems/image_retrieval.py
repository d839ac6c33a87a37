"""Retrieval of images: images of the same class should be each other's neighbours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.utils.data import DataLoader

from rankwise.data import Batch, ImagePart, ImageSchema, Split, cut_classes, cut_images
from rankwise.losses import EmbeddingLoss, LateMemoryLoss
from rankwise.losses.baselines.metric_learning import CrossBatchMemoryLoss, LateMemoryPairs, MetricLearningLoss
from rankwise.metrics import Evaluation, evaluate_retrieval
from rankwise.models import WhitenedEmbedder
from rankwise.problems.images import (
    Augmentation,
    ImageModelOptions,
    ImageOptions,
    cut_shares,
    image_batches,
    predict_images,
    read_image_parts,
    read_named_parts,
)
from rankwise.problems.inspection import Inspection, spread_over
from rankwise.problems.neighbours import (
    ClassBatches,
    EmbeddingLossChoice,
    build_embedding_loss,
    check_neighbours,
    check_samples,
    class_batches,
    embedding_step,
    map_of,
    neighbours,
    probe_classes,
)
from rankwise.problems.problem import Names, Problem, Settings, Sources
from rankwise.training import EvaluationOptions, OptimiserOptions, Outputs, ScheduleOptions
from rankwise.training.options import Count, NotNegative, Options, Positive, Share

__all__ = ["ImageRetrieval"]

# Classes in a batch by default.
CLASSES = 28
# Learning rate of a network with weights to start from: a larger one destroys them.
PRETRAINED_RATE = 1e-4
# Images to which the whitening is fitted; images of validation, and of training, by which its weights are chosen.
IMAGES_TO_FIT, IMAGES_TO_CHOOSE = 20_000, 2_000


class RetrievalImages(ImageOptions):
    """Shares are of whole classes, `held_out` being "random" ones or the "last" in their order; figures are then for
    classes that were never seen. "images" holds out the same share of the images of every class instead. `gallery`:
    images among which those of `test` are to be found, by default each other; a list may name it as a `split`, too."""

    gallery: Path | None = None
    held_out: Literal["random", "last", "images"] = "random"

    def sources(self, given: Sources) -> dict[str, Any]:
        return super().sources({"gallery": self.gallery, **given})


class WhiteningOptions(Options):
    """After training, join the vectors of the network with its features before the last layer and with the pixels,
    each whitened within classes with this `shrinkage`. Of the `weights` of the three validation chooses one; the
    vectors of the network alone are left out of the choice if it has fewer than `classes` classes."""

    shrinkage: Share = 0.5
    weights: Annotated[tuple[tuple[NotNegative, NotNegative, NotNegative], ...], Field(min_length=1)] = (
        (1.0, 0.0, 0.0),
        (1.0, 1.0, 0.0),
        (1.0, 1.0, 0.5),
        (1.0, 1.0, 1.0),
        (0.0, 1.0, 1.0),
    )
    classes: Count = 10


class ImageEmbedderOptions(ImageModelOptions):
    """A network from images to vectors of so many `dimensions`. `whitening: null` keeps the vectors of the network."""

    dimensions: Count = 256
    whitening: WhiteningOptions | None = WhiteningOptions()


class EmbedderOptimiser(OptimiserOptions):
    """AdamW, or SGD with momentum. The default of the learning rate is 1e-4 with `model.weights` to start from."""

    learning_rate: Positive = 6e-3
    weight_decay: NotNegative = 0.1


class EmbedderSchedule(ScheduleOptions):
    """Learning rate over the run, see the other kinds of problems."""

    warmup: Annotated[int, Field(ge=0)] = 30


class EmbedderEvaluation(EvaluationOptions):
    """Evaluation on the validation part, see the other kinds of problems. The last weights are kept: on a few classes
    that were held out most rankings are perfect, which says little about new ones."""

    weights: Literal["best", "last"] = "last"


class MemoryOptions(Options):
    """Rank the last `size` vectors of earlier batches as well, after the share `after` of the run."""

    size: Count = 2048
    after: Annotated[float, Field(ge=0, lt=1)] = 0.7


class ImageRetrieval(Problem[ImageSchema, ImagePart]):
    """Find the images of the same class among all others, by the cosine of their vectors.

    The classes to be found later need not be those of training. Test images are looked for in their gallery, if there
    is one, else among each other.

    Example:
        >>> import torch
        >>> from rankwise.data import ArrayImages
        >>> images = torch.randint(0, 255, (40, 1, 16, 16), dtype=torch.uint8)
        >>> part = ImagePart(ArrayImages(images), torch.arange(40), torch.arange(40) // 4, tuple("abcdefghij"))
        >>> problem = ImageRetrieval(batches={"classes": 5, "samples_per_class": 3})
        >>> next(iter(problem.train_loader(part, seed=0))).features.shape
        torch.Size([15, 1, 16, 16])
        >>> sorted(problem.evaluate(problem.build_model(ImageSchema.of(part)), part).means)
        ['map', 'recall@1', 'recall@10']
    """

    kind: ClassVar[str] = "image-retrieval"
    summary: ClassVar[str] = "images with classes: images of a class become neighbours"
    outputs: ClassVar[Literal["scores", "vectors", "boxes"]] = "vectors"
    schema_type: ClassVar[type[Any]] = ImageSchema

    data: RetrievalImages = RetrievalImages()
    model: ImageEmbedderOptions = ImageEmbedderOptions()
    augmentation: Augmentation = "shift"
    loss: EmbeddingLossChoice = EmbeddingLossChoice.of(
        "soprc", recall_floor=1 / 3, add=[{"name": "semi-variance", "positive": 3, "negative": 15}]
    )
    memory: MemoryOptions | None = None
    batches: ClassBatches = ClassBatches()
    optimiser: EmbedderOptimiser = EmbedderOptimiser()
    schedule: EmbedderSchedule = EmbedderSchedule()
    evaluation: EmbedderEvaluation = EmbedderEvaluation()
    refit: bool = True
    metrics: Names = ("map", "recall@1", "recall@10")

    @model_validator(mode="before")
    @classmethod
    def _smaller_rate(cls, given: Any) -> Any:
        model, optimiser = (
            given.get(name, {}) if isinstance(given, Mapping) else None for name in ("model", "optimiser")
        )
        if isinstance(model, Mapping) and model.get("weights") is not None and isinstance(optimiser, Mapping):
            return {**given, "optimiser": {"learning_rate": PRETRAINED_RATE, **optimiser}}
        return given

    @model_validator(mode="after")
    def _possible(self) -> ImageRetrieval:
        check_samples(self.loss, self.batches)
        if self.model.mixup and self.gradient.rows_at_once is not None:
            raise ValueError("expected no gradient.rows_at_once with model.mixup, which mixes the images of a batch")
        return self

    def files(self) -> Iterator[Path]:
        yield from self.data.files()
        yield from self.model.files()

    def read(self, sources: Sources) -> tuple[ImageSchema, Split[ImagePart]]:
        schema, split = read_image_parts(self.data, sources, unknown_classes="number")
        if split.train.several:
            raise ValueError(
                "data: expected one class of each image, got several; the task longtail ranks by each class"
            )
        return schema, split

    def read_with(self, schema: ImageSchema, sources: Sources) -> Split[ImagePart]:
        return read_named_parts(schema, self.data.sources(sources))

    def cut(self, split: Split[ImagePart], seed: int) -> Split[ImagePart]:
        held_out = self.data.held_out

        def by_share(part: ImagePart, shares: Sequence[float]) -> list[ImagePart]:
            if held_out == "images":
                return cut_images(part, shares, seed=seed)
            return cut_classes(part, shares, seed=seed, held_out=held_out)

        cut = cut_shares(self.data, split, by_share)
        check_neighbours(cut, "images")
        return cut

    def build_model(self, schema: ImageSchema) -> nn.Module:
        # A classifier is free in the length of its vectors; the metric depends on angles only.
        network = self.model.build(schema, self.model.dimensions, normalise=not self.loss.classifies)
        if self.model.whitening is None:
            return network
        return WhitenedEmbedder(network, channels=schema.channels)

    def fit_model(self, model: nn.Module, train: ImagePart) -> None:
        self.model.load_start(model)

    def complete_model(
        self, model: nn.Module, split: Split[ImagePart], settings: Mapping[str, Any] | None = None
    ) -> Settings:
        """Fit the whitening to the training images; choose the weights of its blocks on validation."""
        options, train = self.model.whitening, split.train
        if options is None or not isinstance(model, WhitenedEmbedder):
            return {}
        train = train.take(spread_over(len(train), IMAGES_TO_FIT))
        blocks, labels = self._blocks(model, train), train.labels.to(model.mean.device)
        if settings is None:
            settings = self._choose(model, blocks, labels, split.part("validation"), options)
        model.fit(blocks, labels, weights=settings["weights"], shrinkage=options.shrinkage)
        return dict(settings)

    def _choose(
        self, model: WhitenedEmbedder, blocks: Tensor, labels: Tensor, validation: ImagePart, options: WhiteningOptions
    ) -> Settings:
        """Return the weights of the blocks with the highest metric on validation.

        Training images are among those that are ranked: a few classes by themselves are told apart too easily.
        """
        validation = validation.take(spread_over(len(validation), IMAGES_TO_CHOOSE))
        others = spread_over(len(blocks), IMAGES_TO_CHOOSE).to(labels.device)
        ranked = torch.cat([self._blocks(model, validation), blocks[others]])
        classes = torch.cat([validation.labels.to(labels.device), labels[others]])
        # Training images are easy to tell from others by the vectors that were trained on them.
        few = len(validation.labels.unique()) < options.classes
        candidates = [weights for weights in options.weights if any(weights[1:]) or not few] or list(options.weights)
        model.fit_whitening(blocks, labels, shrinkage=options.shrinkage)

        def metric(weights: Sequence[float]) -> float:
            model.fit_projection(blocks, weights)
            result = evaluate_retrieval(model.join(ranked), classes, [self.metric], bootstrap=0)
            return float(result.per_query[self.metric][: len(validation)].nanmean())

        values = [metric(weights) for weights in candidates]
        best = max(range(len(candidates)), key=values.__getitem__)
        return {"weights": list(candidates[best]), "validation": values[best]}

    def _blocks(self, model: WhitenedEmbedder, part: ImagePart) -> Tensor:
        return predict_images(model, part, workers=self.data.workers, output=model.blocks).to(model.mean)

    def baselines(self, model: nn.Module, part: ImagePart, settings: Mapping[str, Any]) -> dict[str, Evaluation]:
        """Return the metrics of the vectors of the network alone and of the pixels."""
        if not isinstance(model, WhitenedEmbedder):
            return {}
        parts = [part] if part.gallery is None else [part, part.gallery]
        vectors, _, pixels = zip(
            *(self._blocks(model, each).cpu().split(model.sizes, 1) for each in parts), strict=True
        )
        return {
            name: self._evaluate(blocks[0], part, blocks[1] if len(blocks) > 1 else None)
            for name, blocks in (("network", vectors), ("pixels", pixels))
        }

    def build_loss(self, schema: ImageSchema, train: ImagePart, *, steps: int) -> nn.Module:
        loss = build_embedding_loss(self.loss, self.model.dimensions, train.labels)
        if self.memory is None:
            return loss
        size, after = self.memory.size, round(self.memory.after * steps) * self.gradient.accumulate
        if isinstance(loss, EmbeddingLoss):
            return LateMemoryLoss(loss.loss, memory=size, after=after)
        if isinstance(loss, MetricLearningLoss) and not isinstance(loss, CrossBatchMemoryLoss):
            return LateMemoryPairs(loss.loss, memory=size, after=after)
        raise ValueError(f"memory: expected a loss over lists or pairs without one, got {self.loss.name!r}")

    def train_loader(self, train: ImagePart, seed: int) -> DataLoader[Batch]:
        sampler = class_batches(train.labels, self.batches, default=CLASSES, seed=seed)
        return image_batches(train, sampler, view=self.augmentation, seed=seed, workers=self.data.workers)

    def training_step(
        self, model: nn.Module, loss: nn.Module, batch: Batch, *, previous: Outputs | None = None
    ) -> Tensor:
        if not self.model.mixup:
            before = None if previous is None else previous(batch.features)
            return embedding_step(loss, model(batch.features), batch.labels, before)
        # `previous` restores the random state, so that both passes draw the same mixture.
        before = None if previous is None else previous(batch.features, batch.labels, method="mixed")[0]
        vectors, labels = model.mixed(batch.features, batch.labels)  # type: ignore[operator]
        return embedding_step(loss, vectors, labels, before)

    def predict(self, model: nn.Module, part: ImagePart) -> Tensor:
        """Return the vectors (N, d) of the images of a part."""
        return predict_images(model, part, workers=self.data.workers)

    def inspect(
        self, model: nn.Module, part: ImagePart, *, bootstrap: int = 0, calibration: Mapping[str, Any] | None = None
    ) -> Inspection:
        vectors, gallery = self.predict(model, part), part.gallery
        others = None if gallery is None else self.predict(model, gallery)
        other_labels = None if gallery is None else gallery.labels
        among = part if gallery is None else gallery
        return Inspection(
            self._evaluate(vectors, part, others, bootstrap=bootstrap),
            "query",
            "image",
            "precision",
            neighbours(vectors, part.labels, others, other_labels),
            list_name=part.name,
            item_name=lambda _, image: among.name(image),
            list_picture=part.picture,
            item_picture=lambda _, image: among.picture(image),
            embedding=map_of(vectors, part.labels, lambda label: part.classes[label], others),
        )

    def _evaluate(self, vectors: Tensor, part: ImagePart, gallery: Tensor | None, *, bootstrap: int = 0) -> Evaluation:
        labels = None if part.gallery is None else part.gallery.labels
        return evaluate_retrieval(
            vectors,
            part.labels,
            self.measured,
            reference_embeddings=gallery,
            reference_labels=labels,
            bootstrap=bootstrap,
        )

    def probe_batch(self, train: ImagePart) -> Batch:
        """Return as many images as a batch holds: they fit into memory."""
        return probe_classes(train, self.batches.chosen(train.labels, CLASSES) * self.batches.samples_per_class)
