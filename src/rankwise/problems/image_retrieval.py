"""Retrieval of images: images of the same class should be each other's neighbours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.utils.data import DataLoader

from rankwise.data import Batch, ImagePart, ImageSchema, Split, cut_classes, cut_images
from rankwise.losses import EmbeddingLoss, LateMemoryLoss
from rankwise.losses.baselines.metric_learning import CrossBatchMemoryLoss, LateMemoryPairs, MetricLearningLoss
from rankwise.metrics import evaluate_retrieval
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
from rankwise.problems.inspection import Inspection
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
from rankwise.problems.problem import Names, Problem, Sources
from rankwise.training import Outputs
from rankwise.training.options import Count, Options

__all__ = ["ImageRetrieval"]

# Classes in a batch by default.
CLASSES = 28


class RetrievalImages(ImageOptions):
    """Shares are of whole classes, `held_out` being "random" ones or the "last" in their order; figures are then for
    classes that were never seen. "images" holds out the same share of the images of every class instead. `gallery`:
    images among which those of `test` are to be found, by default each other; a list may name it as a `split`, too."""

    gallery: Path | None = None
    held_out: Literal["random", "last", "images"] = "random"

    def sources(self, given: Sources) -> dict[str, Any]:
        return super().sources({"gallery": self.gallery, **given})


class ImageEmbedderOptions(ImageModelOptions):
    """A network from images to vectors of so many `dimensions`."""

    dimensions: Count = 64


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
    augmentation: Augmentation = "none"
    loss: EmbeddingLossChoice = EmbeddingLossChoice.of("soprc", recall_floor=1 / 3)
    memory: MemoryOptions | None = None
    batches: ClassBatches = ClassBatches()
    metrics: Names = ("map", "recall@1", "recall@10")

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
        return self.model.build(schema, self.model.dimensions, normalise=not self.loss.classifies)

    def fit_model(self, model: nn.Module, train: ImagePart) -> None:
        self.model.load_start(model)

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
        result = evaluate_retrieval(
            vectors,
            part.labels,
            self.measured,
            reference_embeddings=others,
            reference_labels=other_labels,
            bootstrap=bootstrap,
        )
        among = part if gallery is None else gallery
        return Inspection(
            result,
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

    def probe_batch(self, train: ImagePart) -> Batch:
        """Return as many images as a batch holds: they fit into memory."""
        return probe_classes(train, self.batches.chosen(train.labels, CLASSES) * self.batches.samples_per_class)
