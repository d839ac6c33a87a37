"""The base class of detectors and their feature pyramids. Needs `pip install "rankwise[vision]"`."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from rankwise.checks import check_choice, check_count
from rankwise.models.resnet import MEAN, SPREAD, load_weights, torchvision_for

__all__ = ["BACKBONES", "Detector", "Found", "load_pyramid", "make_pyramid", "normalised", "strides_of"]

BACKBONES = ("conv", "resnet18", "resnet50")
STRIDES = (8, 16, 32, 64, 128)
STAGES = {"resnet18": (128, 256, 512), "resnet50": (512, 1024, 2048)}


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
        name: of the pyramid, see `make_pyramid`.
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


def strides_of(backbone: str, levels: int | None = None) -> tuple[int, ...]:
    """Return the pixels from cell to cell on each level; of a ResNet there are five, or the first three or four."""
    if check_choice("backbone", backbone, BACKBONES) == "conv":
        if levels not in (None, 3):
            raise ValueError(f"levels: expected 3 for conv, got {levels!r}")
        return STRIDES[:3]
    if levels not in (None, 3, 4, 5):
        raise ValueError(f"levels: expected 3, 4 or 5 for a ResNet, got {levels!r}")
    return STRIDES[:levels]


def make_pyramid(
    backbone: str, channels: int, *, levels: int | None = None, frozen_batch_norm: bool = False
) -> nn.Module:
    """Return a network from normalised images (B, 3, H, W) to a dict of maps (B, channels, h, w), the finest first.

    Args:
        backbone: "conv" (small: three levels, for small images and a CPU), "resnet18" or "resnet50" (five levels).
        channels: of every map, a multiple of 8.
        levels: of a ResNet 3, 4 or 5, the default: its own three and none, one (by pooling) or two (by convolutions)
            beyond.
        frozen_batch_norm: keep statistics and scales of batch normalisation as the weights that are loaded have them.
    """
    count = len(strides_of(backbone, levels))
    if check_count("channels", channels) % 8:
        raise ValueError(f"channels: expected a multiple of 8, got {channels}")
    if backbone == "conv" and frozen_batch_norm:
        raise ValueError("backbone: expected a ResNet with frozen_batch_norm, got conv")
    return _ConvPyramid(channels) if backbone == "conv" else _resnet(backbone, channels, count, frozen_batch_norm)


def load_pyramid(pyramid: nn.Module, backbone: str, weights: str | Path) -> None:
    """Load weights into the ResNet of a pyramid.

    Args:
        pyramid: made by `make_pyramid`.
        backbone: its name.
        weights: "imagenet", or a file with a state dict of torchvision's ResNet.
    """
    if backbone == "conv":
        raise ValueError("backbone: expected a ResNet with weights, got conv")
    load_weights(pyramid.get_submodule("body"), int(backbone.removeprefix("resnet")), weights)


def normalised(images: Tensor) -> Tensor:
    """Return images (B, 3, H, W) of numbers from 0 to 1 with the mean and the spread of colours that ResNets expect."""
    mean, spread = (images.new_tensor(each).view(3, 1, 1) for each in (MEAN, SPREAD))
    return (images - mean) / spread


class _ConvPyramid(nn.Module):
    """Three levels of features, from 8 pixels to a cell on, by a few convolutions."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        from torchvision.ops import FeaturePyramidNetwork

        widths = (channels // 4, channels // 2, channels, channels * 3 // 2, channels * 2)
        stages = [_Stage(before, after) for before, after in zip((3, *widths), widths, strict=False)]
        self.first = nn.Sequential(*stages[:2])
        self.stages = nn.ModuleList(stages[2:])
        self.pyramid = FeaturePyramidNetwork(list(widths[2:]), channels)

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        features, maps = self.first(images), {}
        for level, stage in enumerate(self.stages):
            features = maps[str(level)] = stage(features)
        levels: dict[str, Tensor] = self.pyramid(maps)
        return levels


class _Stage(nn.Module):
    """Half the size: a convolution of stride 2 and a residual one."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.shrink = nn.Sequential(
            nn.Conv2d(before, after, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()
        )
        self.refine = nn.Sequential(nn.Conv2d(after, after, 3, padding=1, bias=False), nn.BatchNorm2d(after))

    def forward(self, features: Tensor) -> Tensor:
        smaller = self.shrink(features)
        return torch.relu(smaller + self.refine(smaller))


def _resnet(name: str, channels: int, count: int, frozen_batch_norm: bool) -> nn.Module:
    from torchvision.models.detection.backbone_utils import BackboneWithFPN
    from torchvision.ops.feature_pyramid_network import LastLevelMaxPool, LastLevelP6P7

    torchvision = torchvision_for("a detector")
    norm = torchvision.ops.FrozenBatchNorm2d if frozen_batch_norm else nn.BatchNorm2d
    body = getattr(torchvision.models, name)(norm_layer=norm)
    body.fc = nn.Identity()
    levels = {"layer2": "0", "layer3": "1", "layer4": "2"}
    pyramid: nn.Module = BackboneWithFPN(body, levels, list(STAGES[name]), channels)
    # Given None, torchvision adds a level of its own.
    beyond = {3: None, 4: LastLevelMaxPool(), 5: LastLevelP6P7(channels, channels)}
    pyramid.fpn.extra_blocks = beyond[count]  # type: ignore[union-attr]
    return pyramid
