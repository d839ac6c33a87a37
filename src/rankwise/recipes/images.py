"""What recipes for images share: the data and the network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from rankwise.data import (
    AUGMENTATIONS,
    ImageOptions,
    ImagePart,
    ImageSet,
    ImageSplit,
    container,
    listed_parts,
    read_images,
)
from rankwise.recipes.schema import Count, FileOrShare, Strict
from rankwise.registry import nearest
from rankwise.tasks import ImageModel

__all__ = ["Augmentation", "ImageData", "ImageModelChoice", "read_image_split"]

Cut = Callable[[ImagePart, list[float]], list[ImagePart]]
Change = Callable[[ImagePart], ImagePart]


def _known_augmentation(name: str) -> str:
    if name not in AUGMENTATIONS:
        raise ValueError(f"unknown augmentation {name!r}{nearest(name, AUGMENTATIONS)}")
    return name


Augmentation = Annotated[str, AfterValidator(_known_augmentation)]


class ImageData(Strict):
    """Labelled images: a folder with one folder per class, a tar file of one (`images.tar/train` for a folder in it), a
    CSV list (path, label[, split]), or an npz file (images, labels).

    `validation` and `test` are such data too, or shares of `train`; a list with a column `split` names all three parts
    itself. The shorter side of an image becomes `resize` pixels, its middle `size` x `size` is judged.
    """

    train: Path
    validation: FileOrShare = 0.1
    test: FileOrShare = 0.2
    size: Count = 224
    resize: Count | None = None
    channels: Literal[1, 3] = 3
    invert: bool = False
    cache: bool = False
    workers: Annotated[int, Field(ge=0)] = 0

    @model_validator(mode="after")
    def _room_to_crop(self) -> ImageData:
        if self.resize is not None and self.resize < self.size:
            raise ValueError(f"expected resize of at least the size of {self.size}, got {self.resize}")
        return self

    def read(self, path: Path) -> ImageSet:
        options = ImageOptions(
            channels=self.channels, resize=self.resize or self.size, invert=self.invert, cache=self.cache
        )
        return read_images(path, options)

    def files(self) -> list[Path]:
        """The files and folders that are read."""
        return [container(path) for path in vars(self).values() if isinstance(path, Path)]

    def replaced(self, path: Path) -> ImageData:
        """Other images in place of all parts."""
        return self.model_copy(update={"train": path, "validation": path, "test": path})


class ImageModelChoice(Strict):
    """A small convolutional network, or torchvision's ResNet with `weights` ("imagenet" or a file) or without."""

    name: Literal["conv", "resnet18", "resnet50"] = "conv"
    weights: Literal["imagenet"] | Path | None = None
    frozen_batch_norm: bool = False
    stem: Literal["large", "small"] = "large"
    mixup: bool = False

    @model_validator(mode="after")
    def _possible(self) -> ImageModelChoice:
        if self.frozen_batch_norm and self.weights is None:
            raise ValueError("expected weights with frozen_batch_norm, got none")
        if self.stem == "small" and self.weights is not None:
            raise ValueError("expected the large stem with given weights, got small")
        self.make()
        return self

    def make(self) -> ImageModel:
        return ImageModel(self.name, self.weights, self.frozen_batch_norm, self.stem, self.mixup)


def read_image_split(
    data: ImageData, cut: Cut, *, same_classes: bool = False, change: Change | None = None
) -> ImageSplit:
    """The three parts.

    Args:
        data: what the recipe says.
        cut: cuts a part by shares, the first gets what is left.
        same_classes: whether all parts have the classes of the training data.
        change: done to the training data before they are cut.
    """
    read = data.read(data.train)
    whole = ImagePart.of(read, data.size)
    wanted = {"validation": data.validation, "test": data.test}
    found: dict[str, ImagePart] = {}
    if read.parts is not None:
        found = listed_parts(whole, read.parts)
        whole = found.pop("train", whole)
    for name, path in wanted.items():
        if isinstance(path, Path):
            other = data.read(path)
            if same_classes and other.classes != read.classes:
                raise ValueError(
                    f"{path}: expected the {len(read.classes)} classes of the training images, got {len(other.classes)}"
                    + (" others" if len(other.classes) == len(read.classes) else "")
                )
            given = ImagePart.of(other, data.size)
            named = {} if other.parts is None else listed_parts(given, other.parts)
            found[name] = named.get(name, given)
            if name == "test":  # a gallery is numbered like the test images it comes with
                found.pop("gallery", None)
                found.update({key: part for key, part in named.items() if key == "gallery"})
    if change is not None:
        whole = change(whole)
    shares = {name: share for name, share in wanted.items() if name not in found and isinstance(share, float)}
    if sum(shares.values()) >= 1:
        raise ValueError(f"data: expected shares of less than 1 in all, got {sum(shares.values()):g}")
    train, *others = cut(whole, list(shares.values()))
    found.update(zip(shares, others, strict=True))
    return ImageSplit(train, found["validation"], found["test"], found.get("gallery"))
