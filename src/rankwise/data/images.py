"""Labelled images as parts of a data set: for learning, for choices, for the final figure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from rankwise.checks import check_choice, check_count
from rankwise.data.image_files import PARTS, ImageSet
from rankwise.data.image_sources import ImageSource, centre
from rankwise.data.parts import Batch

__all__ = [
    "AugmentedImages",
    "ImagePart",
    "ImageSplit",
    "cut_classes",
    "cut_images",
    "imbalanced",
    "labelled_like",
    "listed_parts",
]


@dataclass(frozen=True)
class ImagePart(Dataset[Batch]):
    """Images and their classes; an ordinary map-style data set that gives whole batches.

    Attributes:
        source: images, of which this part holds some.
        rows: (N,) which ones.
        labels: (N,) their classes 0 .. C-1.
        classes: what the classes are called.
        size: the images' middle `size` by `size` pixels are taken; None takes all, if they are of one size.

    Example:
        >>> from rankwise.data import ArrayImages
        >>> source = ArrayImages(torch.zeros(6, 1, 9, 9, dtype=torch.uint8))
        >>> part = ImagePart(source, torch.arange(6), torch.tensor([0, 0, 0, 1, 1, 1]), ("a", "b"), size=8)
        >>> part.__getitems__([0, 3, 4]).features.shape
        torch.Size([3, 1, 8, 8])
    """

    source: ImageSource
    rows: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    size: int | None = None

    @classmethod
    def of(cls, images: ImageSet, size: int | None = None) -> ImagePart:
        """All images of a set."""
        return cls(images.source, torch.arange(len(images.labels)), images.labels, images.classes, size)

    def __post_init__(self) -> None:
        if self.rows.shape != self.labels.shape or self.labels.dim() != 1:
            raise ValueError(
                f"labels: expected one for each of the {len(self.rows)} images, got {tuple(self.labels.shape)}"
            )
        if self.size is not None:
            check_count("size", self.size)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Batch:
        return self.__getitems__([index])

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        return self.batch(indices, self._middle)

    def batch(self, indices: Sequence[int], view: Callable[[Tensor], Tensor]) -> Batch:
        """Some images, seen through `view` (uint8 (C, H, W) to uint8 of one size), as numbers from 0 to 1."""
        places = torch.as_tensor(indices)
        images = [view(self.source.image(row)) for row in self.rows[places].tolist()]
        shapes = {tuple(image.shape) for image in images}
        if len(shapes) > 1:
            raise ValueError(f"size: expected one size for all images, got None and {' and '.join(map(str, shapes))}")
        return Batch(torch.stack(images).float().div_(255), self.labels[places], places, None)

    def name(self, place: int) -> str:
        """What an image is called: its class, and its file or its number."""
        row = int(self.rows[place])
        file = self.source.name(row)
        return f"class {self.classes[int(self.labels[place])]}, {file or f'image {row}'}"

    def picture(self, place: int) -> Tensor:
        """An image as it is judged, uint8 (C, H, W)."""
        return self._middle(self.source.image(int(self.rows[place])))

    def take(self, places: Tensor) -> ImagePart:
        """The part that holds these images only, in this order."""
        return replace(self, rows=self.rows[places], labels=self.labels[places])

    def _middle(self, image: Tensor) -> Tensor:
        if self.size is None:
            return image
        if min(image.shape[1:]) < self.size:
            raise ValueError(
                f"size: expected at most the {min(image.shape[1:])} pixels of the shorter side, got {self.size}; "
                "resize images to at least that"
            )
        return centre(image, self.size)


class ViewedPart(Protocol):
    """Images that can be seen in different ways."""

    def __len__(self) -> int:
        """How many there are."""

    def batch(self, indices: Sequence[int], view: Callable[..., Any], /) -> Batch:
        """Some images, seen through `view`."""


class AugmentedImages(Dataset[Batch]):
    """Images seen each time a little differently.

    What is drawn depends on `seed`, the epoch and the batch alone: neither on how many worker processes read ahead, nor
    on whether the training was stopped and taken up again. Torch's random state is left as it is.

    Args:
        part: the images, an `ImagePart` or a `DetectionPart`.
        view: draws from torch's random state; what the part's `batch` sees its images through.
        seed: a whole number of at least 0.
        epoch: tells which epoch is under way.
    """

    def __init__(self, part: ViewedPart, view: Callable[..., Any], *, seed: int, epoch: Callable[[], int]) -> None:
        self.part, self.view, self.seed, self.epoch = part, view, check_count("seed", seed, least=0), epoch

    def __len__(self) -> int:
        return len(self.part)

    def __getitem__(self, index: int) -> Batch:
        return self.__getitems__([index])

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        mixed = np.random.SeedSequence([self.seed, self.epoch(), *indices]).generate_state(1, np.uint64)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(int(mixed[0]))
            return self.part.batch(indices, self.view)


@dataclass(frozen=True)
class ImageSplit:
    """Three disjoint parts: `train` to learn from, `validation` for choices, `test` for the final figure.

    `gallery` holds the images among which those of `test` are to be found; None lets them find each other.
    """

    train: ImagePart
    validation: ImagePart
    test: ImagePart
    gallery: ImagePart | None = None

    def part(self, name: str) -> ImagePart:
        """The part called "train", "validation" or "test"."""
        parts = {"train": self.train, "validation": self.validation, "test": self.test}
        check_choice("part", name, parts)
        return parts[name]


def cut_classes(part: ImagePart, shares: Sequence[float], *, seed: int, held_out: str = "random") -> list[ImagePart]:
    """Cut into parts of whole classes: a class of one part is unknown in the others, as in retrieval.

    Args:
        part: the images.
        shares: of the classes that go to each of the parts after the first; the first gets the others.
        seed: decides which classes go where.
        held_out: "random" classes, or the "last" ones: where classes stand in groups (letters by alphabet), whole
            groups are then held out.

    Example:
        >>> from rankwise.data import ArrayImages
        >>> labels = torch.arange(10) // 2
        >>> whole = ImagePart(ArrayImages(torch.zeros(10, 1, 8, 8, dtype=torch.uint8)), torch.arange(10), labels, ())
        >>> [each.labels.unique().tolist() for each in cut_classes(whole, [0.2, 0.2], seed=0, held_out="last")]
        [[0, 1, 2], [3], [4]]
    """
    check_choice("held_out", held_out, ("random", "last"))
    classes = part.labels.unique()
    if held_out == "random":
        classes = classes[torch.randperm(len(classes), generator=torch.Generator().manual_seed(seed))]
    sizes = _sizes(len(classes), shares, "classes")
    return [part.take(torch.isin(part.labels, some).nonzero().squeeze(1)) for some in classes.split(sizes)]


def cut_images(part: ImagePart, shares: Sequence[float], *, seed: int) -> list[ImagePart]:
    """Cut at random, the same share of every class in each part, at least one image.

    Args:
        part: the images.
        shares: of the images of each class that go to each of the parts after the first; the first gets the others.
        seed: decides which images go where.
    """
    generator = torch.Generator().manual_seed(seed)
    pieces: list[list[Tensor]] = [[] for _ in range(len(shares) + 1)]
    for label in part.labels.unique().tolist():
        places = (part.labels == label).nonzero().squeeze(1)
        places = places[torch.randperm(len(places), generator=generator)]
        sizes = _sizes(len(places), shares, f"images of class {part.classes[label]!r}")
        for piece, some in zip(pieces, places.split(sizes), strict=True):
            piece.append(some)
    return [part.take(torch.cat(piece).sort().values) for piece in pieces]


def imbalanced(part: ImagePart, ratio: float, *, seed: int) -> ImagePart:
    """Make a long tail: class 0 keeps all its images, the last keeps 1 / `ratio` of as many, exponentially in between.

        n_c = n ratio^(-c / (C - 1)),   n the images of the smallest class, at least 1 of each

    Args:
        part: the images; classes of about the same size.
        ratio: images of the first class per image of the last, at least 1; 100 is the usual CIFAR-10-LT.
        seed: decides which images are kept.

    Example:
        >>> from rankwise.data import ArrayImages
        >>> labels = torch.arange(300) // 100
        >>> whole = ImagePart(ArrayImages(torch.zeros(300, 1, 2, 2, dtype=torch.uint8)), torch.arange(300), labels, ())
        >>> torch.bincount(imbalanced(whole, 100, seed=0).labels)
        tensor([100,  10,   1])
    """
    if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not 1 <= ratio < float("inf"):
        raise ValueError(f"ratio: expected a number of at least 1, got {ratio!r}")
    generator = torch.Generator().manual_seed(seed)
    labels, counts = part.labels.unique(return_counts=True)
    kept = []
    for place, label in enumerate(labels.tolist()):
        wanted = max(1, round(int(counts.min()) * ratio ** (-place / max(1, len(labels) - 1))))
        places = (part.labels == label).nonzero().squeeze(1)
        kept.append(places[torch.randperm(len(places), generator=generator)[:wanted]])
    return part.take(torch.cat(kept).sort().values)


def labelled_like(part: ImagePart, classes: Sequence[str]) -> ImagePart:
    """The same images with the numbers that `classes` have; what is not among them comes after.

    Example:
        >>> from rankwise.data import ArrayImages
        >>> source = ArrayImages(torch.zeros(3, 1, 8, 8, dtype=torch.uint8))
        >>> part = ImagePart(source, torch.arange(3), torch.tensor([0, 1, 2]), ("bird", "cat", "dog"))
        >>> labelled_like(part, ("cat", "dog")).labels
        tensor([2, 0, 1])
    """
    known = (*classes, *(name for name in part.classes if name not in set(classes)))
    number = {name: place for place, name in enumerate(known)}
    return replace(part, labels=torch.tensor([number[name] for name in part.classes])[part.labels], classes=known)


def listed_parts(part: ImagePart, parts: Sequence[str]) -> dict[str, ImagePart]:
    """The parts that a list of images names."""
    which = np.array(parts)
    return {name: part.take(torch.from_numpy(np.flatnonzero(which == name))) for name in PARTS if name in parts}


def _sizes(count: int, shares: Sequence[float], what: str) -> list[int]:
    if any(not 0 < share < 1 for share in shares) or sum(shares) >= 1:
        raise ValueError(f"shares: expected numbers between 0 and 1 of less than 1 in all, got {tuple(shares)}")
    held = [max(1, round(count * share)) for share in shares]
    if count - sum(held) < 1:
        raise ValueError(f"shares: expected enough {what} for every part, got {count} for {tuple(shares)}")
    return [count - sum(held), *held]
