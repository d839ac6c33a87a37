"""Random views of images, and of images with boxes, by name. All but "shift" need `pip install "rankwise[vision]"`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from rankwise.checks import check_choice
from rankwise.extras import require

__all__ = ["AUGMENTATIONS", "BOX_AUGMENTATIONS", "BoxView", "augmentation", "box_augmentation"]

# What each does, one after the other; images come with the shorter side as the data were resized.
AUGMENTATIONS = {
    "none": (),
    "shift": ("pad", "crop"),
    "shift-flip": ("pad", "crop", "flip"),
    "crop-flip": ("crop", "flip"),
    "rotate-crop-flip": ("flip", "rotate", "crop"),
    "zoom-flip": ("zoom", "flip"),
}
DEGREES = 15
BOX_AUGMENTATIONS = ("none", "flip", "flip-both", "ssd")
# An image (C, H, W) uint8 and corners (n, 4) to the image and corners seen, and the indices of the boxes that are left.
BoxView = Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]


def augmentation(name: str, size: int) -> Callable[[Tensor], Tensor] | None:
    """Return a random view by name, uint8 (C, H, W) to uint8 (C, size, size); None for "none".

    Args:
        name: "none"; "shift" (an eighth of the size at most, for characters); "shift-flip" (the same and mirrored half
            of the time, for small pictures); "crop-flip" (a random square of `size` pixels, mirrored half of the time:
            Wen et al. 2022 with images of 256 and a size of 224); "rotate-crop-flip" (turned by up to 15 degrees as
            well: Wen et al. 2025); "zoom-flip" (a random rectangle of 20 to 100 % of the image).
        size: pixels in height and width.

    Example:
        >>> augmentation("crop-flip", 24)(torch.zeros(3, 32, 40, dtype=torch.uint8)).shape
        torch.Size([3, 24, 24])
    """
    check_choice("augmentation", name, AUGMENTATIONS)
    if name == "none":
        return None
    if name == "shift":
        return partial(_shifted, size=size)
    require(f"the augmentation {name!r}", ("torchvision",))
    from torchvision.transforms import v2

    steps: dict[str, Callable[[], Any]] = {
        "pad": lambda: v2.Pad(_margin(size)),
        "crop": lambda: v2.RandomCrop(size),
        "flip": lambda: v2.RandomHorizontalFlip(),
        "rotate": lambda: v2.RandomRotation(DEGREES, interpolation=v2.InterpolationMode.BILINEAR),
        "zoom": lambda: v2.RandomResizedCrop(size, scale=(0.2, 1.0), antialias=True),
    }
    whole: Callable[[Tensor], Tensor] = v2.Compose([steps[step]() for step in AUGMENTATIONS[name]])
    return whole


def _margin(size: int) -> int:
    """Return the pixels by which an image moves at most."""
    return max(1, size // 8)


def _shifted(image: Tensor, size: int) -> Tensor:
    """Return a random square (C, size, size) of an image (C, H, W) with a margin of zeros; needs no torchvision."""
    margin = _margin(size)
    wide = pad(image, [margin] * 4)
    top, left = (int(torch.randint(side - size + 1, ())) for side in wide.shape[1:])
    return wide[:, top : top + size, left : left + size]


def box_augmentation(name: str) -> BoxView | None:
    """Return a random view of an image and its boxes by name; None for "none".

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
