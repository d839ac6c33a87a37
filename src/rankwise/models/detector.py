"""The base class of detectors: networks that give candidate boxes, before overlapping ones are dropped."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from torch import Tensor, nn

from rankwise.models.pyramid import load_pyramid

__all__ = ["Detector", "Found"]


class Found(NamedTuple):
    """The candidates of an image.

    Attributes:
        scores: (K, C) logits of each of K candidates for each of C classes.
        corners: (K, C, 4) the box it would have as an object of that class, in pixels; it may leave the image.
    """

    scores: Tensor
    corners: Tensor


class Detector(nn.Module):
    """A network that finds objects in images, with a feature pyramid as its first part.

    Args:
        name: of the pyramid, see `rankwise.models.pyramid.make_pyramid`.
        backbone: the pyramid.
        weights: to load into it, see `load`; None leaves it as it is.
    """

    def __init__(self, name: str, backbone: nn.Module, weights: str | Path | None = None) -> None:
        super().__init__()
        self.backbone_name, self.backbone = name, backbone
        if weights is not None:
            self.load(weights)

    def load(self, weights: str | Path) -> None:
        """Load "imagenet" or a file with a state dict of torchvision's ResNet into the backbone."""
        load_pyramid(self.backbone, self.backbone_name, weights)

    def find(self, images: Tensor) -> list[Found]:
        """Return the candidates in each of the images (B, 3, H, W), numbers from 0 to 1; in evaluation mode."""
        raise NotImplementedError
