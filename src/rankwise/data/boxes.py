"""Images with boxes around objects, as read from annotation files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from rankwise.registry import nearest

__all__ = ["BoxCollector", "BoxSet", "BoxedImage"]

BAD_BOXES = ("error", "skip")


@dataclass(frozen=True)
class BoxedImage:
    """An image and the objects in it.

    Attributes:
        file: of the image.
        height, width: in pixels, as the annotation says.
        corners: (n, 4) left, top, right and bottom edge of each object, in pixels; labels: (n,) classes 0 .. C-1.
        ignored: (n,) objects that are neither missed nor wrong.
    """

    file: Path
    height: int
    width: int
    corners: Tensor
    labels: Tensor
    ignored: Tensor


@dataclass(frozen=True)
class BoxSet:
    """Images with boxes, as read.

    Attributes:
        images: all of them, those without objects included.
        classes: names of the classes.
        parts: the part of each image ("train", "validation" or "test"), if the files say so.
        left_out: for each box that was left out, what is wrong with it.
        annotated: whether the boxes are given.
    """

    images: tuple[BoxedImage, ...]
    classes: tuple[str, ...]
    parts: tuple[str, ...] | None = None
    left_out: tuple[str, ...] = ()
    annotated: bool = True


@dataclass(frozen=True)
class _Objects:
    file: Path
    height: int
    width: int
    names: Sequence[str]
    corners: Sequence[Sequence[float]]
    ignored: Sequence[bool]


class BoxCollector:
    """Collect a `BoxSet`, image by image; a box without an area is an error or left out.

    Args:
        classes: names of the classes, if they are known; None takes the names that occur, sorted.
        bad_boxes: "error", or "skip" to leave boxes without an area out.
    """

    def __init__(self, classes: Sequence[str] | None, bad_boxes: str) -> None:
        if bad_boxes not in BAD_BOXES:
            raise ValueError(f"bad_boxes: unknown word {bad_boxes!r}{nearest(str(bad_boxes), BAD_BOXES)}")
        self.classes, self.bad_boxes = None if classes is None else tuple(classes), bad_boxes
        self._images: list[_Objects] = []
        self._left_out: list[str] = []

    def add(
        self, file: Path, height: int, width: int, objects: Iterator[tuple[str, str, Sequence[float], bool]]
    ) -> None:
        """Add an image and its objects: of each where it is written, class, corners and whether it is ignored."""
        names, corners, ignored = [], [], []
        for where, name, edges, ignore in objects:
            if self.classes is not None and name not in self.classes:
                raise ValueError(f"{where}: unknown class {name!r}{nearest(name, self.classes)}")
            left, top, right, bottom = edges
            inside = (max(left, 0.0), max(top, 0.0), min(right, float(width)), min(bottom, float(height)))
            if not (inside[0] < inside[2] and inside[1] < inside[3]):
                edge = " ".join(f"{edge:g}" for edge in edges)
                wrong = (
                    f"{where}: expected a box with an area inside the image of {width} x {height} pixels, got left, "
                    f"top, right, bottom = {edge}"
                )
                if self.bad_boxes == "error":
                    raise ValueError(f'{wrong} (bad_boxes="skip" leaves such boxes out)')
                self._left_out.append(wrong)
                continue
            names.append(name)
            corners.append(inside)
            ignored.append(ignore)
        self._images.append(_Objects(file, height, width, names, corners, ignored))

    def finish(self, where: Path, parts: Sequence[str] | None = None) -> BoxSet:
        """Return all images; raise an error if there is none, or, where classes are not known, no object in any."""
        if not self._images:
            raise ValueError(f"{where}: expected annotated images, got none")
        classes = self.classes
        if classes is None:
            classes = tuple(sorted({name for image in self._images for name in image.names}))
        if not classes:
            raise ValueError(f"{where}: expected images with boxes, got none in {len(self._images)} images")
        number = {name: index for index, name in enumerate(classes)}
        images = tuple(
            BoxedImage(
                each.file,
                each.height,
                each.width,
                torch.tensor(each.corners, dtype=torch.float32).view(-1, 4),
                torch.tensor([number[name] for name in each.names], dtype=torch.int64),
                torch.tensor(each.ignored, dtype=torch.bool),
            )
            for each in self._images
        )
        return BoxSet(images, classes, None if parts is None else tuple(parts), tuple(self._left_out))
