"""What all detectors give: candidates, of which none has been left out yet."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

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
    """A network that finds objects in images."""

    def find(self, images: Tensor) -> list[Found]:
        """What may be in each of the images (B, 3, H, W), numbers from 0 to 1; in evaluation mode."""
        raise NotImplementedError
