"""Images with boxes as parts of a data set: for learning, for choices, for the final figure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import interpolate
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

from rankwise.checks import check_choice, check_count
from rankwise.data.boxes import BoxedImage, BoxSet
from rankwise.data.coco import read_coco
from rankwise.data.image_sources import EncodedImages, ImageSource
from rankwise.data.parts import Batch, Boxes
from rankwise.data.voc import read_voc
from rankwise.extras import require

__all__ = ["BOX_AUGMENTATIONS", "DetectionPart", "DetectionSplit", "box_augmentation", "cut_boxes", "read_boxes"]

BOX_AUGMENTATIONS = ("none", "flip", "flip-both", "ssd")
# An image (C, H, W) uint8 and corners (n, 4) to the image and corners seen, and which of the n boxes are left.
BoxView = Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]


def read_boxes(
    path: str | Path,
    *,
    images: str | Path | None = None,
    classes: Sequence[str] | None = None,
    bad_boxes: str = "error",
) -> BoxSet:
    """Read images with boxes: a `.json` file in the form of COCO, else a folder or a list in the form of Pascal VOC.

    Args:
        path: see `read_coco` and `read_voc`.
        images: the folder of the images, for COCO.
        classes: what the classes are called; None takes those of the data.
        bad_boxes: "error", or "skip" to leave boxes without an area out.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file or folder")
    if path.suffix.lower() == ".json":
        return read_coco(path, images, classes=classes, bad_boxes=bad_boxes)
    return read_voc(path, classes=classes, bad_boxes=bad_boxes)


@dataclass(frozen=True)
class DetectionPart(Dataset[Batch]):
    """Images and the boxes of their objects; an ordinary map-style data set that gives whole batches.

    Attributes:
        source: the images, all of a set.
        known: of each of them its annotation.
        rows: (N,) which ones this part holds.
        classes: what the classes are called.
        size: height and width in pixels that every image is brought to, whatever its shape.

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

    @classmethod
    def of(
        cls, boxes: BoxSet, size: tuple[int, int], *, resize: int | None = None, cache: bool = False
    ) -> DetectionPart:
        """All images of a set. `resize`: the shorter side they are kept with, for `cache` and augmentation."""
        files = [image.file for image in boxes.images]
        source = EncodedImages(files, [str(file) for file in files], channels=3, resize=resize, cache=cache)
        return cls(source, boxes.images, torch.arange(len(files)), boxes.classes, size)

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
        """Some images, seen through `view`, as numbers from 0 to 1, and their boxes in pixels of those images."""
        places = torch.as_tensor(indices)
        seen = [self._one(row, view) for row in self.rows[places].tolist()]
        images, corners, labels, ignored = zip(*seen, strict=True)
        mask = _side_by_side([torch.ones_like(each, dtype=torch.bool) for each in labels])
        boxes = Boxes(_side_by_side(corners), mask, _side_by_side(ignored))
        features = torch.stack(images).float().div_(255)
        return Batch(features, _side_by_side(labels), places, None, boxes)

    def truth(self, index: int) -> BoxedImage:
        """The annotation of an image, in pixels of the file."""
        return self.known[int(self.rows[index])]

    def take(self, places: Tensor) -> DetectionPart:
        """The part that holds these images only, in this order."""
        return replace(self, rows=self.rows[places])

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
        corners = _scaled(corners, (image.shape[1], image.shape[2]), self.size)
        return _squeezed(image, self.size), corners, known.labels[left], known.ignored[left]


@dataclass(frozen=True)
class DetectionSplit:
    """Three disjoint parts: `train` to learn from, `validation` for choices, `test` for the final figure."""

    train: DetectionPart
    validation: DetectionPart
    test: DetectionPart

    def part(self, name: str) -> DetectionPart:
        """The part called "train", "validation" or "test"."""
        parts = {"train": self.train, "validation": self.validation, "test": self.test}
        check_choice("part", name, parts)
        return parts[name]


def cut_boxes(part: DetectionPart, shares: Sequence[float], *, seed: int) -> list[DetectionPart]:
    """Cut at random.

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
    return [part.take(places.sort().values) for places in order.split([len(part) - sum(held), *held])]


def box_augmentation(name: str) -> BoxView | None:
    """A named way to see images and their boxes each time a little differently; None for "none".

    Args:
        name: "none"; "flip" (left and right swapped half of the time); "flip-both" (up and down as well, where no side
            is up: cells, satellite images); "ssd" (colours changed, a part cut out or the image set into a larger one,
            flipped: the standard of SSD, which the papers use).

    Example:
        >>> image, corners = torch.zeros(3, 20, 30, dtype=torch.uint8), torch.tensor([[2.0, 3.0, 9.0, 8.0]])
        >>> box_augmentation("flip-both")(image, corners)[0].shape
        torch.Size([3, 20, 30])
    """
    check_choice("augmentation", name, BOX_AUGMENTATIONS)
    if name == "none":
        return None
    require(f"the augmentation {name!r}", ("torchvision",))
    from torchvision import tv_tensors
    from torchvision.transforms import v2

    steps = {
        "flip": [v2.RandomHorizontalFlip()],
        "flip-both": [v2.RandomHorizontalFlip(), v2.RandomVerticalFlip()],
        "ssd": [v2.RandomPhotometricDistort(), v2.RandomZoomOut(), v2.RandomIoUCrop(), v2.RandomHorizontalFlip()],
    }[name]
    whole = v2.Compose([*steps, v2.SanitizeBoundingBoxes(labels_getter=lambda sample: sample["left"])])

    def view(image: Tensor, corners: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        shape = tuple(image.shape[1:])
        boxes = tv_tensors.BoundingBoxes(corners, format="XYXY", canvas_size=shape)
        sample = {"image": tv_tensors.Image(image), "boxes": boxes, "left": torch.arange(len(corners))}
        seen = whole(sample)
        return seen["image"].as_subclass(Tensor), seen["boxes"].as_subclass(Tensor), seen["left"]

    return view


def _as_it_is(image: Tensor, corners: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return image, corners, torch.arange(len(corners))


def _side_by_side(rows: Sequence[Tensor]) -> Tensor:
    """Rows of different lengths (n, ...) as one tensor (B, M, ...), filled up with zeros."""
    return pad_sequence(list(rows), batch_first=True)


def _scaled(corners: Tensor, before: tuple[int, int], after: tuple[int, int]) -> Tensor:
    down, across = after[0] / before[0], after[1] / before[1]
    return corners * torch.tensor([across, down, across, down])


def _squeezed(image: Tensor, size: tuple[int, int]) -> Tensor:
    if tuple(image.shape[1:]) == size:
        return image
    resized = interpolate(image[None].float(), size=size, mode="bilinear", antialias=True, align_corners=False)
    return resized[0].round_().clamp_(0, 255).to(torch.uint8)
