"""Images as input of a problem: options of the data and of the network, data loaders, outputs for all images."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import AfterValidator, Field, model_validator
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from rankwise.data import (
    AUGMENTATIONS,
    AugmentedImages,
    Batch,
    DetectionPart,
    ImagePart,
    ImageSchema,
    Split,
    augmentation,
    container,
    labelled_like,
    read_images,
)
from rankwise.data.image_layouts import lists_of
from rankwise.distributed import gather_rows, own_share
from rankwise.models import ConvEmbedder, ResNetEmbedder, WhitenedEmbedder
from rankwise.problems.batches import as_it_is
from rankwise.problems.problem import DataOptions, FileOrShare, Sources
from rankwise.registry import nearest
from rankwise.samplers import SeededBatchSampler
from rankwise.training.options import Count, Options

__all__ = [
    "Augmentation",
    "ImageModelOptions",
    "ImageOptions",
    "cut_shares",
    "image_batches",
    "predict_images",
    "read_image_parts",
    "read_named_parts",
    "viewed_batches",
]

IMAGES_AT_ONCE = 256


def _known_augmentation(name: str) -> str:
    if name not in AUGMENTATIONS:
        raise ValueError(f"unknown augmentation {name!r}{nearest(name, AUGMENTATIONS)}")
    return name


Augmentation = Annotated[str, AfterValidator(_known_augmentation)]


class ImageOptions(DataOptions):
    """Images with classes: a folder with one folder per class, a tar file of one (`images.tar/train` for a folder in
    it), a CSV list (path, label[, split]), an npz file (images, labels), or a data set as its authors ship it
    (`Ebay_train.txt`, `train_list.txt`, `train2018.json`, `CUB_200_2011`, `cars_annos.mat`, `Data_Entry_2017.csv`,
    `cifar-100-python.tar.gz`).

    `validation` and `test` are such data too, or shares of `train`; a list with a column `split` names all three parts
    itself. The shorter side of an image becomes `resize` pixels, its middle `size` x `size` is judged. `cache` keeps
    decoded images in memory; `workers` processes decode images ahead.
    """

    validation: FileOrShare = 0.1
    test: FileOrShare = 0.2
    size: Count = 224
    resize: Count | None = None
    channels: Literal[1, 3] = 3
    invert: bool = False
    cache: bool = False
    workers: Annotated[int, Field(ge=0)] = 0

    @model_validator(mode="after")
    def _room_to_crop(self) -> ImageOptions:
        if self.resize is not None and self.resize < self.size:
            raise ValueError(f"expected resize of at least the size of {self.size}, got {self.resize}")
        return self

    def files(self) -> Iterator[Path]:
        """Yield the files and folders that are read."""
        for value in vars(self).values():
            if isinstance(value, Path):
                yield from lists_of(value) or [container(value)]


class ImageModelOptions(Options):
    """A small convolutional network, or torchvision's ResNet with `weights` ("imagenet" or a file) or without."""

    name: Literal["conv", "resnet18", "resnet50"] = "conv"
    weights: Literal["imagenet"] | Path | None = None
    frozen_batch_norm: bool = False
    stem: Literal["large", "small"] = "large"
    mixup: bool = False

    @model_validator(mode="after")
    def _possible(self) -> ImageModelOptions:
        if self.frozen_batch_norm and self.weights is None:
            raise ValueError("expected weights with frozen_batch_norm, got none")
        if self.stem == "small" and self.weights is not None:
            raise ValueError("expected the large stem with given weights, got small")
        if self.name == "conv" and (self.weights is not None or self.stem != "large"):
            raise ValueError("expected a ResNet with weights, frozen_batch_norm or a stem, got conv")
        return self

    def build(self, schema: ImageSchema, outputs: int, *, normalise: bool) -> ConvEmbedder | ResNetEmbedder:
        """Return a new network with so many outputs; `weights` are loaded by `load_start`."""
        if self.name == "conv":
            return ConvEmbedder(schema.channels, schema.size, outputs, mixup=self.mixup, normalise=normalise)
        if schema.channels != 3:
            raise ValueError(f"channels: expected images with 3 channels for {self.name}, got {schema.channels}")
        return ResNetEmbedder(
            int(self.name.removeprefix("resnet")),
            outputs,
            frozen_batch_norm=self.frozen_batch_norm,
            stem=self.stem,
            mixup=self.mixup,
            normalise=normalise,
        )

    def load_start(self, model: nn.Module) -> None:
        """Load the weights that the training starts from; a trained model does not need them."""
        if self.weights is not None:
            network = model.network if isinstance(model, WhitenedEmbedder) else model
            assert isinstance(network, ResNetEmbedder)
            network.load(self.weights)

    def files(self) -> Iterator[Path]:
        """Yield the files that are read."""
        if isinstance(self.weights, Path):
            yield self.weights


def read_image_parts(
    data: ImageOptions, sources: Sources, *, unknown_classes: Literal["number", "error"]
) -> tuple[ImageSchema, Split[ImagePart]]:
    """Learn the schema from the training images and read the others with it.

    A gallery belongs to the test part, or to the training part if the test part is still to be cut from it.
    """
    given = data.sources(sources)
    resize = data.resize or data.size
    images = read_images(given["train"], channels=data.channels, resize=resize, invert=data.invert, cache=data.cache)
    schema = ImageSchema(images.classes, data.size, data.channels, resize, data.invert, unknown_classes)
    read: dict[str, ImagePart] = {
        name: schema.read(given[name], part=name, cache=data.cache) for name in ("validation", "test") if name in given
    }
    parts = schema.parts(images) | read
    train, validation, test = parts.get("train", parts["all"]), parts.get("validation"), parts.get("test")
    gallery = read["test"].gallery if "test" in read else parts.get("gallery")
    if "gallery" in given:
        classes = schema.classes if test is None else test.classes
        gallery = labelled_like(schema.read(given["gallery"], part="gallery", cache=data.cache), classes)
    if test is None:
        return schema, Split(replace(train, gallery=gallery), validation)
    return schema, Split(train, validation, replace(test, gallery=gallery))


def read_named_parts(schema: Any, given: Mapping[str, Any]) -> Split[Any]:
    """Return images as parts, read with a schema that was learned before.

    Of a training source that names parts itself (a list with a column `split`, lists of a VOC folder) only the rows of
    its training part are read.
    """
    names = [name for name in ("train", "validation", "test") if name in given]
    return Split(**{name: schema.read(given[name], part=name) for name in names})


def cut_shares(
    data: ImageOptions, split: Split[ImagePart], cut: Callable[[ImagePart, Sequence[float]], Sequence[ImagePart]]
) -> Split[ImagePart]:
    """Cut the missing parts from the training images.

    Args:
        data: names the shares.
        split: parts that may be missing.
        cut: from a part and shares to the part that is left and one part per share.
    """
    shares = data.shares(split)
    if not shares:
        return split
    train, *others = cut(replace(split.train, gallery=None), list(shares.values()))
    parts = dict(zip(shares, others, strict=True))
    if "test" in parts:
        parts["test"] = replace(parts["test"], gallery=split.train.gallery)
    return Split(train, parts.get("validation", split.validation), parts.get("test", split.test))


def image_batches(
    part: ImagePart, sampler: SeededBatchSampler, *, view: str, seed: int, workers: int
) -> DataLoader[Batch]:
    """Return the batches of a sampler, images seen through a named augmentation.

    Args:
        part: the images.
        sampler: of their batches.
        view: see `rankwise.data.augmentation`.
        seed: of the random draws.
        workers: processes that decode images ahead; 0 decodes them when they are needed. The batches are the same.
    """
    drawn = augmentation(view, part.size or part.picture(0).shape[1])
    return viewed_batches(part, sampler, drawn, seed=seed, workers=workers)


def viewed_batches(
    part: ImagePart | DetectionPart,
    sampler: SeededBatchSampler,
    view: Callable[..., Any] | None,
    *,
    seed: int,
    workers: int,
) -> DataLoader[Batch]:
    """Return the batches of a sampler, images seen through a random view, see `image_batches`; None shows all of them
    as they are."""
    images: Dataset[Batch] = part
    if view is not None:
        images = AugmentedImages(part, view, seed=seed, epoch=partial(getattr, sampler, "epoch"))
    # A loader draws a seed for its workers: from a generator of its own, so that it leaves the training's alone.
    return DataLoader(
        images, batch_sampler=sampler, collate_fn=as_it_is, generator=torch.Generator(), num_workers=workers
    )


def predict_images(
    model: nn.Module, part: ImagePart, *, workers: int = 0, output: Callable[[Tensor], Tensor] | None = None
) -> Tensor:
    """Return the output of a model for all images, in evaluation mode and without a graph; the mode is restored.

    Several processes take a share of the images each and gather the outputs.

    Args:
        model: images to outputs.
        part: the images.
        workers: processes that decode images ahead.
        output: a method of the model to call instead of the model.
    """
    call = model if output is None else output
    weight = next(model.parameters(), torch.zeros(()))
    blocks = [block.tolist() for block in own_share(torch.arange(len(part))).split(IMAGES_AT_ONCE) if len(block)]
    loader: DataLoader[Tensor] = DataLoader(
        _Pixels(part), batch_sampler=blocks, collate_fn=as_it_is, generator=torch.Generator(), num_workers=workers
    )
    training = model.training
    model.eval()
    with torch.no_grad():
        outputs = [call(images.to(weight.device, weight.dtype)) for images in loader]
        if not outputs:  # more processes than images
            outputs = [call(part.pixels([0]).to(weight.device, weight.dtype))[:0]]
        joined = gather_rows(torch.cat(outputs))
    model.train(training)
    return joined.cpu()


class _Pixels(Dataset[Tensor]):
    """The images of a part without their classes, which they may lack."""

    def __init__(self, part: ImagePart) -> None:
        self.part = part

    def __len__(self) -> int:
        return len(self.part)

    def __getitem__(self, index: int) -> Tensor:
        return self.__getitems__([index])

    def __getitems__(self, indices: Sequence[int]) -> Tensor:
        return self.part.pixels(indices)
