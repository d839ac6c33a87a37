"""Images as parts of a data set, and the schema that is learned from one and reads all others."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from rankwise.checks import check_choice, check_count
from rankwise.data.image_files import PARTS, ImageSet, read_images
from rankwise.data.image_sources import ImageSource, centre, join_sources
from rankwise.data.parts import Batch, require_labels
from rankwise.data.schema import DataNote, Labels

__all__ = [
    "AugmentedImages",
    "ImagePart",
    "ImageSchema",
    "cut_classes",
    "cut_images",
    "imbalanced",
    "labelled_like",
]

UNKNOWN_CLASSES = ("number", "error")


@dataclass(frozen=True)
class ImagePart(Dataset[Batch]):
    """Images and their classes; an ordinary map-style data set that gives whole batches.

    Attributes:
        source: images, of which this part holds some.
        rows: (N,) their indices in the source.
        targets: (N,) classes 0 .. C-1, or (N, C) 1 for each class that an image has; None if the images have none.
        classes: names of the classes.
        size: the images' middle `size` by `size` pixels are taken; None takes all, if they are of one size.
        gallery: images among which those of this part are to be found; None lets them find each other.

    Example:
        >>> from rankwise.data import ArrayImages
        >>> source = ArrayImages(torch.zeros(6, 1, 9, 9, dtype=torch.uint8))
        >>> part = ImagePart(source, torch.arange(6), torch.tensor([0, 0, 0, 1, 1, 1]), ("a", "b"), size=8)
        >>> part.__getitems__([0, 3, 4]).features.shape
        torch.Size([3, 1, 8, 8])
    """

    source: ImageSource
    rows: Tensor
    targets: Tensor | None
    classes: tuple[str, ...] = ()
    size: int | None = None
    gallery: ImagePart | None = None

    @classmethod
    def of(cls, images: ImageSet, size: int | None = None) -> ImagePart:
        """Return all images of a set."""
        return cls(images.source, torch.arange(len(images.source)), images.labels, images.classes, size)

    def __post_init__(self) -> None:
        if self.rows.dim() != 1 or (self.targets is not None and self.targets.shape[:1] != self.rows.shape):
            shape = tuple((self.rows if self.targets is None else self.targets).shape)
            raise ValueError(f"labels: expected one for each of the {len(self.rows)} images, got {shape}")
        if self.size is not None:
            check_count("size", self.size)

    @property
    def labels(self) -> Tensor:
        """Return the classes (N,); raise an error if the images have none."""
        return require_labels(self.targets)

    @property
    def several(self) -> bool:
        """Return whether an image may have several classes, or none."""
        return self.targets is not None and self.targets.dim() == 2

    @property
    def row_names(self) -> tuple[str, ...]:
        """Return the file of each image, or its number in the source from 1."""
        return tuple(self.source.name(row) or str(row + 1) for row in self.rows.tolist())

    @property
    def output_names(self) -> tuple[str, ...]:
        """Return the names of the columns of scores: the classes."""
        return self.classes

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Batch:
        return self.__getitems__([index])

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        return self.batch(indices, self._middle)

    def batch(self, indices: Sequence[int], view: Callable[[Tensor], Tensor]) -> Batch:
        """Return some images, seen through `view` (uint8 (C, H, W) to uint8 of one size), and their classes."""
        chosen = torch.as_tensor(indices, dtype=torch.int64)
        return Batch(self._numbers(chosen, view), self.labels[chosen], chosen, None)

    def pixels(self, indices: Sequence[int]) -> Tensor:
        """Return some images as a model takes them, with or without classes: (B, C, H, W) from 0 to 1."""
        return self._numbers(torch.as_tensor(indices, dtype=torch.int64), self._middle)

    def name(self, index: int) -> str:
        """Return the name of an image: its class, and its file or its number."""
        row = int(self.rows[index])
        file = self.source.name(row) or f"image {row}"
        if self.targets is None:
            return file
        own = self.targets[index]
        numbers = own.nonzero().squeeze(1).tolist() if self.several else [int(own)]
        return f"class {' and '.join(self.classes[number] for number in numbers) or 'none'}, {file}"

    def picture(self, index: int) -> Tensor:
        """Return an image as it is judged, uint8 (C, H, W)."""
        return self._middle(self.source.image(int(self.rows[index])))

    def take(self, indices: Tensor) -> ImagePart:
        """Return the part that holds these images only, in this order."""
        return replace(self, rows=self.rows[indices], targets=None if self.targets is None else self.targets[indices])

    def join(self, other: ImagePart) -> ImagePart:
        """Return the images of this part and then those of another, whose classes have the same numbers."""
        source, shift = join_sources(self.source, other.source)
        targets = None if self.targets is None else torch.cat([self.targets, other.labels])
        classes = max(self.classes, other.classes, key=len)
        return ImagePart(source, torch.cat([self.rows, other.rows + shift]), targets, classes, self.size)

    def _numbers(self, indices: Tensor, view: Callable[[Tensor], Tensor]) -> Tensor:
        images = [view(self.source.image(row)) for row in self.rows[indices].tolist()]
        shapes = {tuple(image.shape) for image in images}
        if len(shapes) > 1:
            raise ValueError(f"size: expected one size for all images, got None and {' and '.join(map(str, shapes))}")
        return torch.stack(images).float().div_(255)

    def _middle(self, image: Tensor) -> Tensor:
        if self.size is None:
            return image
        if min(image.shape[1:]) < self.size:
            raise ValueError(
                f"size: expected at most the {min(image.shape[1:])} pixels of the shorter side, got {self.size}; "
                "resize images to at least that"
            )
        return centre(image, self.size)


@dataclass(frozen=True)
class ImageSchema:
    """Schema of images: their form, and the classes of the training part.

    Classes are matched by name. A source may lack some of them. Classes that training did not have are numbered after
    the known ones or refused, see `unknown_classes`; if labels are optional, images of refused classes are read without
    labels, with a `DataNote`.

    Attributes:
        classes: names of the classes 0 .. C-1.
        size: height and width of the images that the model takes: their middle.
        channels: 3 for colour, 1 for grey.
        resize: length of the shorter side before the middle is taken; None leaves images as they are.
        invert: swap light and dark.
        unknown_classes: "number" or "error".
    """

    classes: tuple[str, ...]
    size: int
    channels: int = 3
    resize: int | None = None
    invert: bool = False
    unknown_classes: str = "number"

    def __post_init__(self) -> None:
        check_count("size", self.size)
        if self.resize is not None:
            check_count("resize", self.resize, least=self.size)
        check_choice("channels", str(self.channels), ("1", "3"))
        check_choice("unknown_classes", self.unknown_classes, UNKNOWN_CLASSES)
        if not isinstance(self.invert, bool):
            raise ValueError(f"invert: expected True or False, got {self.invert!r}")
        if not all(isinstance(name, str) for name in self.classes) or len(set(self.classes)) < len(self.classes):
            raise ValueError("classes: expected different names, got others")

    @classmethod
    def of(cls, part: ImagePart) -> ImageSchema:
        """Return the schema of images in memory, which are square.

        Example:
            >>> from rankwise.data import ArrayImages
            >>> source = ArrayImages(torch.zeros(2, 1, 9, 9, dtype=torch.uint8))
            >>> ImageSchema.of(ImagePart(source, torch.arange(2), torch.tensor([0, 1]), ("a", "b"))).shape
            (1, 9, 9)
        """
        channels, height, width = part.picture(0).shape
        if height != width:
            raise ValueError(f"size: expected square images, got {height} x {width}; give the part a size")
        return cls(part.classes, height, channels)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Return the shape (C, H, W) of the images that the model takes."""
        return self.channels, self.size, self.size

    def read(self, source: Any, *, labels: Labels = "required", part: str = "test", cache: bool = False) -> ImagePart:
        """Read other images.

        Args:
            source: see `read_images`. Of a list with a column `split` the rows of `part` are read, with the gallery for
                "test"; all rows if there are none of `part`.
            labels: "optional" reads images without classes, too.
            part: "train", "validation", "test" or "gallery".
            cache: keep decoded images in memory.
        """
        images = read_images(
            source, labels=labels, channels=self.channels, resize=self.resize, invert=self.invert, cache=cache
        )
        parts = self.parts(images, labels=labels)
        chosen = parts.get(part, parts["all"])
        return replace(chosen, gallery=parts.get("gallery")) if part == "test" else chosen

    def parts(self, images: ImageSet, *, labels: Labels = "required") -> dict[str, ImagePart]:
        """Return images as parts: "all", and those that their list names."""
        whole = ImagePart.of(self._numbered(images, labels), self.size)
        if images.parts is None:
            return {"all": whole}
        which = np.array(images.parts)
        named = (name for name in PARTS if name in images.parts)
        return {"all": whole, **{name: whole.take(torch.from_numpy(np.flatnonzero(which == name))) for name in named}}

    def to_json(self) -> dict[str, Any]:
        """Return the schema as plain values."""
        return asdict(self)

    def tensors(self) -> dict[str, Tensor]:
        """Return what is too large for JSON: nothing."""
        return {}

    @classmethod
    def from_saved(cls, values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> ImageSchema:
        """Return the schema that `to_json` describes."""
        return cls(**{**values, "classes": tuple(values["classes"])})

    def _numbered(self, images: ImageSet, labels: Labels) -> ImageSet:
        """Return images with the numbers that the schema gives their classes."""
        if images.labels is None:
            return images
        known = set(self.classes)
        unknown = [name for name in images.classes if name not in known]
        if unknown and self.unknown_classes == "error":
            shown = ", ".join(map(repr, unknown[:5])) + (f" and {len(unknown) - 5} more" if len(unknown) > 5 else "")
            if labels == "required":
                raise ValueError(f"{images.name}: expected classes of the training images, got {shown} besides")
            said = f"{images.name}: read without labels, because of classes that training did not have: {shown}"
            warnings.warn(said, DataNote, stacklevel=4)
            return replace(images, labels=None, classes=())
        number = {name: index for index, name in enumerate((*self.classes, *unknown))}
        numbers = torch.tensor([number[name] for name in images.classes])
        if images.labels.dim() == 2:
            labels_of_all = torch.zeros(len(images.labels), len(number), dtype=torch.int64)
            labels_of_all[:, numbers] = images.labels
            return replace(images, labels=labels_of_all, classes=tuple(number))
        return replace(images, labels=numbers[images.labels], classes=tuple(number))


class ViewedPart(Protocol):
    """A part of images with a choice of views: plain, or augmented for training."""

    def __len__(self) -> int:
        """Return the number of images."""

    def batch(self, indices: Sequence[int], view: Callable[..., Any], /) -> Batch:
        """Return some images, seen through `view`."""


class AugmentedImages(Dataset[Batch]):
    """Images under a random view, drawn anew in every epoch.

    The draws depend on `seed`, the epoch and the batch alone: neither on the number of worker processes, nor on whether
    the training was stopped and resumed. Torch's random state is left as it is.

    Args:
        part: the images, an `ImagePart` or a `DetectionPart`.
        view: passed to the part's `batch`; draws from torch's random state.
        seed: a whole number of at least 0.
        epoch: returns the number of the present epoch.
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


def cut_classes(part: ImagePart, shares: Sequence[float], *, seed: int, held_out: str = "random") -> list[ImagePart]:
    """Cut into parts of whole classes: a class of one part is unknown in the others, as in retrieval.

    Each part has at least two classes, so that there is something to tell apart.

    Args:
        part: the images.
        shares: of the classes that go to each of the parts after the first; the first gets the others.
        seed: decides which classes go where.
        held_out: "random" classes, or the "last" ones: where neighbouring classes form groups (letters of an
            alphabet), whole groups are then held out.

    Example:
        >>> from rankwise.data import ArrayImages
        >>> labels = torch.arange(14) // 2
        >>> whole = ImagePart(ArrayImages(torch.zeros(14, 1, 8, 8, dtype=torch.uint8)), torch.arange(14), labels, ())
        >>> [each.labels.unique().tolist() for each in cut_classes(whole, [0.2, 0.2], seed=0, held_out="last")]
        [[0, 1, 2], [3, 4], [5, 6]]
    """
    check_choice("held_out", held_out, ("random", "last"))
    _refuse_several(part, "to hold classes out")
    classes = part.labels.unique()
    if held_out == "random":
        classes = classes[torch.randperm(len(classes), generator=torch.Generator().manual_seed(seed))]
    if len(classes) < 2 * (len(shares) + 1):
        raise ValueError(
            f"data: expected at least {2 * (len(shares) + 1)} classes to hold out two for every part, got "
            f"{len(classes)}; hold out images of each class instead: data.held_out=images"
        )
    sizes = _sizes(len(classes), shares, "classes", least=2)
    return [part.take(torch.isin(part.labels, some).nonzero().squeeze(1)) for some in classes.split(sizes)]


def cut_images(part: ImagePart, shares: Sequence[float], *, seed: int) -> list[ImagePart]:
    """Cut at random, the same share of every class in each part, at least one image.

    Where an image may have several classes, the same share of all images.

    Args:
        part: the images.
        shares: of the images of each class that go to each of the parts after the first; the first gets the others.
        seed: decides which images go where.
    """
    generator = torch.Generator().manual_seed(seed)
    if part.several:
        sizes = _sizes(len(part), shares, "images")
        return [part.take(some.sort().values) for some in torch.randperm(len(part), generator=generator).split(sizes)]
    pieces: list[list[Tensor]] = [[] for _ in range(len(shares) + 1)]
    for label in part.labels.unique().tolist():
        indices = (part.labels == label).nonzero().squeeze(1)
        indices = indices[torch.randperm(len(indices), generator=generator)]
        sizes = _sizes(len(indices), shares, f"images of class {part.classes[label]!r}")
        for piece, some in zip(pieces, indices.split(sizes), strict=True):
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
    _refuse_several(part, "to make a long tail of them")
    generator = torch.Generator().manual_seed(seed)
    labels, counts = part.labels.unique(return_counts=True)
    kept = []
    for index, label in enumerate(labels.tolist()):
        wanted = max(1, round(int(counts.min()) * ratio ** (-index / max(1, len(labels) - 1))))
        indices = (part.labels == label).nonzero().squeeze(1)
        kept.append(indices[torch.randperm(len(indices), generator=generator)[:wanted]])
    return part.take(torch.cat(kept).sort().values)


def labelled_like(part: ImagePart, classes: Sequence[str]) -> ImagePart:
    """Return the same images with the numbers of `classes`; other classes are numbered after them.

    Example:
        >>> from rankwise.data import ArrayImages
        >>> source = ArrayImages(torch.zeros(3, 1, 8, 8, dtype=torch.uint8))
        >>> part = ImagePart(source, torch.arange(3), torch.tensor([0, 1, 2]), ("bird", "cat", "dog"))
        >>> labelled_like(part, ("cat", "dog")).labels
        tensor([2, 0, 1])
    """
    number = {name: index for index, name in enumerate(dict.fromkeys((*classes, *part.classes)))}
    numbers = torch.tensor([number[name] for name in part.classes])
    return replace(part, targets=numbers[part.labels], classes=tuple(number))


def _refuse_several(part: ImagePart, why: str) -> None:
    if part.several:
        raise ValueError(f"images: expected one class of each {why}, got images with several")


def _sizes(count: int, shares: Sequence[float], what: str, *, least: int = 1) -> list[int]:
    if any(not 0 < share < 1 for share in shares) or sum(shares) >= 1:
        raise ValueError(f"shares: expected numbers between 0 and 1 of less than 1 in all, got {tuple(shares)}")
    held = [max(least, round(count * share)) for share in shares]
    if count - sum(held) < least:
        raise ValueError(f"shares: expected enough {what} for every part, got {count} for {tuple(shares)}")
    return [count - sum(held), *held]
