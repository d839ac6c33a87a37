"""Images with boxes as parts of a data set, and the schema that is learned from one and reads all others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate, pad
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

from rankwise.checks import check_choice, check_count
from rankwise.data.augmentations import BoxView
from rankwise.data.box_files import read_coco, read_voc
from rankwise.data.boxes import BAD_BOXES, BoxedImage, BoxSet
from rankwise.data.image_files import read_images
from rankwise.data.image_sources import ArrayImages, EncodedImages, ImageSource, join_sources
from rankwise.data.parts import Batch, Boxes
from rankwise.data.schema import Labels, with_tuples

__all__ = ["DetectionPart", "DetectionSchema", "cut_boxes", "read_boxes"]


def read_boxes(
    path: str | Path,
    *,
    images: str | Path | None = None,
    classes: Sequence[str] | None = None,
    bad_boxes: str = "error",
    labels: Labels = "required",
) -> BoxSet:
    """Read images with boxes: a `.json` file in the form of COCO, else a folder or a list in the form of Pascal VOC.

    Args:
        path: see `read_coco` and `read_voc`.
        images: the folder of the images, for COCO.
        classes: names of the classes; None takes those of the data.
        bad_boxes: "error", or "skip" to leave boxes without an area out.
        labels: "optional" reads a COCO file without annotations, too.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file or folder")
    if path.suffix.lower() == ".json":
        return read_coco(path, images, classes=classes, bad_boxes=bad_boxes, labels=labels)
    return read_voc(path, classes=classes, bad_boxes=bad_boxes)


@dataclass(frozen=True)
class DetectionPart(Dataset[Batch]):
    """Images and the boxes of their objects; an ordinary map-style data set that gives whole batches.

    Attributes:
        source: images, of which this part holds some.
        known: the annotation of each of them.
        rows: (N,) their indices in the source.
        classes: names of the classes.
        size: height and width in pixels that every image is brought to.
        annotated: whether the boxes are given; otherwise every image has none.
        fit: "squash" an image to that size, or "keep" its proportions and fill up with black at the right or below.

    Example:
        >>> from rankwise.data import ArrayImages
        >>> box, none = torch.tensor([[8.0, 4.0, 16.0, 12.0]]), torch.zeros(1, dtype=torch.bool)
        >>> known = (BoxedImage(Path("a.png"), 32, 32, box, torch.tensor([0]), none),)
        >>> source = ArrayImages(torch.zeros(1, 3, 32, 32, dtype=torch.uint8))
        >>> batch = DetectionPart(source, known, torch.tensor([0]), ("cell",), size=(16, 64))[0]
        >>> batch.features.shape, batch.boxes.corners
        (torch.Size([1, 3, 16, 64]), tensor([[[16.,  2., 32.,  6.]]]))
    """

    source: ImageSource
    known: tuple[BoxedImage, ...]
    rows: Tensor
    classes: tuple[str, ...]
    size: tuple[int, int]
    annotated: bool = True
    fit: str = "squash"

    @classmethod
    def of(
        cls,
        boxes: BoxSet,
        size: tuple[int, int],
        *,
        resize: int | None = None,
        cache: bool = False,
        fit: str = "squash",
    ) -> DetectionPart:
        """Return all images of a set. `resize`: the shorter side they are kept with, for `cache` and augmentation."""
        files = [image.file for image in boxes.images]
        source = EncodedImages(files, [str(file) for file in files], channels=3, resize=resize, cache=cache)
        return cls(source, boxes.images, torch.arange(len(files)), boxes.classes, size, boxes.annotated, fit)

    def __post_init__(self) -> None:
        for name, side in zip(("height", "width"), self.size, strict=True):
            check_count(name, side)
        if len(self.source) != len(self.known):
            raise ValueError(f"known: expected one for each of the {len(self.source)} images, got {len(self.known)}")

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Batch:
        return self.__getitems__([index])

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        return self.batch(indices, _as_it_is)

    def batch(self, indices: Sequence[int], view: BoxView) -> Batch:
        """Return some images as `view` shows them, numbers from 0 to 1, and their boxes in pixels of those images."""
        chosen = torch.as_tensor(indices, dtype=torch.int64)
        seen = [self._one(row, view) for row in self.rows[chosen].tolist()]
        images, corners, labels, ignored = zip(*seen, strict=True)
        mask = _padded([torch.ones_like(each, dtype=torch.bool) for each in labels])
        boxes = Boxes(_padded(corners), mask, _padded(ignored))
        features = torch.stack(images).float().div_(255)
        return Batch(features, _padded(labels), chosen, None, boxes)

    def truth(self, index: int) -> BoxedImage:
        """Return the annotation of an image, in pixels of the file."""
        return self.known[int(self.rows[index])]

    def picture(self, index: int) -> Tensor:
        """Return an image as it is kept, uint8 (C, H, W)."""
        return self.source.image(int(self.rows[index]))

    def take(self, indices: Tensor) -> DetectionPart:
        """Return the part that holds these images only, in this order."""
        return replace(self, rows=self.rows[indices])

    def join(self, other: DetectionPart) -> DetectionPart:
        """Return the images of this part and then those of another, whose classes have the same numbers."""
        source, shift = join_sources(self.source, other.source)
        known = (*self.known, *other.known) if shift else self.known
        return replace(self, source=source, known=known, rows=torch.cat([self.rows, other.rows + shift]))

    def _one(self, row: int, view: BoxView) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        image, known = self.source.image(row), self.known[row]
        height, width = image.shape[1:]
        # An image may be kept smaller than its file, but not in another shape.
        if abs(height * known.width - width * known.height) > max(known.height, known.width):
            raise ValueError(
                f"{known.file}: expected an image of {known.width} x {known.height} pixels as its annotation says, got "
                f"the shape of {width} x {height}"
            )
        kept = _scaled(known.corners, (known.height, known.width), (height, width))
        image, corners, left = view(image, kept)
        shape = (image.shape[1], image.shape[2])
        inside = self.inside(shape)
        corners, image = _scaled(corners, shape, inside), _squeezed(image, inside)
        down, across = (whole - used for whole, used in zip(self.size, inside, strict=True))
        return pad(image, (0, across, 0, down)), corners, known.labels[left], known.ignored[left]

    def inside(self, shape: tuple[int, int]) -> tuple[int, int]:
        """Return height and width that an image of this shape has inside of the size of all."""
        if self.fit == "squash":
            return self.size
        factor = min(whole / side for whole, side in zip(self.size, shape, strict=True))
        height, width = (min(whole, max(1, round(factor * side))) for whole, side in zip(self.size, shape, strict=True))
        return height, width


@dataclass(frozen=True)
class DetectionSchema:
    """Classes of the objects to detect, and the form in which a model takes images.

    Classes are matched by name; a source may lack some of them, an unknown one is an error.

    Attributes:
        classes: names of the classes 0 .. C-1.
        height, width: of the images that the model takes, whatever their shape.
        resize: length of the shorter side before an image is brought to that size; None leaves images as they are.
        bad_boxes: treatment of boxes without an area: "error" or "skip".
        fit: how an image is brought to that size, see `DetectionPart`.
    """

    classes: tuple[str, ...]
    height: int
    width: int
    resize: int | None = None
    bad_boxes: str = "error"
    fit: str = "squash"

    def __post_init__(self) -> None:
        for name in ("height", "width"):
            check_count(name, getattr(self, name))
        if self.resize is not None:
            check_count("resize", self.resize)
        check_choice("bad_boxes", self.bad_boxes, BAD_BOXES)
        check_choice("fit", self.fit, ("squash", "keep"))
        if not all(isinstance(name, str) for name in self.classes) or len(set(self.classes)) < len(self.classes):
            raise ValueError("classes: expected different names, got others")

    @classmethod
    def of(cls, part: DetectionPart) -> DetectionSchema:
        """Return the schema of images in memory."""
        return cls(part.classes, *part.size, fit=part.fit)

    @property
    def size(self) -> tuple[int, int]:
        """Return height and width of the images that the model takes."""
        return self.height, self.width

    def read(
        self,
        source: Any,
        *,
        labels: Labels = "required",
        part: str = "test",
        images: str | Path | None = None,
        cache: bool = False,
    ) -> DetectionPart:
        """Read other images.

        Args:
            source: see `read_boxes`. Of a VOC folder whose lists name parts, the images of `part` are read.
            labels: "optional" reads images without boxes, too: a COCO file without annotations, or what `read_images`
                takes, such as a folder of images.
            part: "train", "validation" or "test".
            images: the folder of the images, for COCO.
            cache: keep decoded images in memory.
        """
        annotated = isinstance(source, str | Path) and _is_annotated(Path(source))
        if labels == "optional" and not annotated:
            return self._read_images(source, cache)
        if not isinstance(source, str | Path):
            raise ValueError(
                f"source: expected a file or a folder of images with boxes, got {type(source).__name__}, which has none"
            )
        read = read_boxes(source, images=images, classes=self.classes, bad_boxes=self.bad_boxes, labels=labels)
        parts = self.parts(read, cache=cache)
        return parts.get(part, parts["all"])

    def parts(self, read: BoxSet, *, cache: bool = False) -> dict[str, DetectionPart]:
        """Return images as parts: "all", and those that their lists name."""
        whole = DetectionPart.of(read, self.size, resize=self.resize, cache=cache, fit=self.fit)
        if read.parts is None:
            return {"all": whole}
        which = np.array(read.parts)
        named = {name: whole.take(torch.from_numpy(np.flatnonzero(which == name))) for name in set(read.parts)}
        return {"all": whole, **named}

    def to_json(self) -> dict[str, Any]:
        """Return the schema as plain values."""
        return asdict(self)

    def tensors(self) -> dict[str, Tensor]:
        """Return what is too large for JSON: nothing."""
        return {}

    @classmethod
    def from_saved(cls, values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> DetectionSchema:
        """Return the schema that `to_json` describes."""
        return cls(**with_tuples(values))

    def _read_images(self, source: Any, cache: bool) -> DetectionPart:
        """Return images without boxes."""
        images = read_images(source, labels="optional").source
        prepared: ImageSource
        if isinstance(images, ArrayImages):
            sizes = [(int(images.images.shape[2]), int(images.images.shape[3]))] * len(images)
            prepared = ArrayImages.prepared(images.images, channels=3, resize=self.resize, invert=False)
        else:
            assert isinstance(images, EncodedImages)
            sizes = [images.size(index) for index in range(len(images))]
            prepared = EncodedImages(images.contents, images.names, channels=3, resize=self.resize, cache=cache)
        boxes = torch.zeros(0, 4), torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.bool)
        names = [Path(prepared.name(index) or f"image {index}") for index in range(len(prepared))]
        known = tuple(BoxedImage(name, *size, *boxes) for name, size in zip(names, sizes, strict=True))
        return DetectionPart(
            prepared, known, torch.arange(len(known)), self.classes, self.size, annotated=False, fit=self.fit
        )


def cut_boxes(part: DetectionPart, shares: Sequence[float], *, seed: int) -> list[DetectionPart]:
    """Cut images at random into parts.

    Args:
        part: the images.
        shares: of the images that go to each of the parts after the first; the first gets the others.
        seed: decides which images go where.
    """
    if any(not 0 < share < 1 for share in shares) or sum(shares) >= 1:
        raise ValueError(f"shares: expected numbers between 0 and 1 of less than 1 in all, got {tuple(shares)}")
    held = [max(1, round(len(part) * share)) for share in shares]
    if len(part) - sum(held) < 1:
        raise ValueError(f"shares: expected enough images for every part, got {len(part)} for {tuple(shares)}")
    order = torch.randperm(len(part), generator=torch.Generator().manual_seed(seed))
    return [part.take(some.sort().values) for some in order.split([len(part) - sum(held), *held])]


def _as_it_is(image: Tensor, corners: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return image, corners, torch.arange(len(corners))


def _is_annotated(path: Path) -> bool:
    """Return whether a path has the form of images with boxes."""
    return path.suffix.lower() in (".json", ".txt") or (path / "Annotations").is_dir()


def _padded(rows: Sequence[Tensor]) -> Tensor:
    """Return rows of different lengths (n, ...) as one tensor (B, M, ...), padded with zeros."""
    return pad_sequence(list(rows), batch_first=True)


def _scaled(corners: Tensor, before: tuple[int, int], after: tuple[int, int]) -> Tensor:
    down, across = after[0] / before[0], after[1] / before[1]
    return corners * torch.tensor([across, down, across, down])


def _squeezed(image: Tensor, size: tuple[int, int]) -> Tensor:
    if tuple(image.shape[1:]) == size:
        return image
    resized = interpolate(image[None].float(), size=size, mode="bilinear", antialias=True, align_corners=False)
    return resized[0].round_().clamp_(0, 255).to(torch.uint8)
