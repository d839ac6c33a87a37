"""Ways to see an image each time a little differently, by name. Needs `pip install "rankwise[vision]"`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from rankwise.checks import check_choice
from rankwise.extras import require

__all__ = ["AUGMENTATIONS", "augmentation"]

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


def augmentation(name: str, size: int) -> Callable[[Tensor], Tensor] | None:
    """A named way, uint8 (C, H, W) to uint8 (C, size, size); None for "none".

    Args:
        name: "none"; "shift" (an eighth of the size at most, for characters); "shift-flip" (the same and mirrored half
            of the time, for small pictures); "crop-flip" (a random square of `size` pixels, mirrored half of the time:
            Wen et al. 2022 with images of 256 and a size of 224); "rotate-crop-flip" (turned by up to 15 degrees as
            well: Wen et al. 2025); "zoom-flip" (a random rectangle of 20 to 100 % of the image).
        size: pixels in height and width.

    Example:
        >>> import torch
        >>> augmentation("crop-flip", 24)(torch.zeros(3, 32, 40, dtype=torch.uint8)).shape
        torch.Size([3, 24, 24])
    """
    check_choice("augmentation", name, AUGMENTATIONS)
    if name == "none":
        return None
    require(f"the augmentation {name!r}", ("torchvision",))
    from torchvision.transforms import v2

    steps: dict[str, Callable[[], Any]] = {
        "pad": lambda: v2.Pad(max(1, size // 8)),
        "crop": lambda: v2.RandomCrop(size),
        "flip": lambda: v2.RandomHorizontalFlip(),
        "rotate": lambda: v2.RandomRotation(DEGREES, interpolation=v2.InterpolationMode.BILINEAR),
        "zoom": lambda: v2.RandomResizedCrop(size, scale=(0.2, 1.0), antialias=True),
    }
    whole: Callable[[Tensor], Tensor] = v2.Compose([steps[step]() for step in AUGMENTATIONS[name]])
    return whole
