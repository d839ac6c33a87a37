"""Networks for images by name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torch import nn

from rankwise.checks import check_choice
from rankwise.models import ConvEmbedder, ResNetEmbedder

__all__ = ["IMAGE_MODELS", "ImageModel"]

IMAGE_MODELS = ("conv", "resnet18", "resnet50")


@dataclass(frozen=True)
class ImageModel:
    """Which network, and how it starts.

    Attributes:
        name: "conv" (small, for small images), "resnet18" or "resnet50" (colour images; needs torchvision).
        weights, frozen_batch_norm, stem: of a ResNet, see `rankwise.models.ResNetEmbedder`.
        mixup: `FeatureMixup` before the last two stages.

    Example:
        >>> type(ImageModel("conv").build((1, 28, 28), outputs=64)).__name__
        'ConvEmbedder'
    """

    name: str = "conv"
    weights: str | Path | None = None
    frozen_batch_norm: bool = False
    stem: str = "large"
    mixup: bool = False

    def __post_init__(self) -> None:
        check_choice("name", self.name, IMAGE_MODELS)
        if self.name == "conv" and (self.weights or self.frozen_batch_norm or self.stem != "large"):
            raise ValueError("name: expected a ResNet with weights, frozen_batch_norm or a stem, got conv")

    def build(self, shape: tuple[int, int, int], outputs: int, *, normalise: bool = True) -> nn.Module:
        """A new network for images of this shape (C, H, W), with so many outputs."""
        channels, height, width = shape
        if self.name == "conv":
            if height != width:
                raise ValueError(f"size: expected square images for the conv network, got {height} x {width}")
            return ConvEmbedder(channels, height, outputs, mixup=self.mixup, normalise=normalise)
        if channels != 3:
            raise ValueError(f"channels: expected images with 3 channels for {self.name}, got {channels}")
        return ResNetEmbedder(
            int(self.name.removeprefix("resnet")),
            outputs,
            weights=self.weights,
            frozen_batch_norm=self.frozen_batch_norm,
            stem=self.stem,
            mixup=self.mixup,
            normalise=normalise,
        )
