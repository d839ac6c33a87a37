"""Feature pyramids: what the detectors look at an image through. Needs `pip install "rankwise[vision]"`."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from rankwise.checks import check_choice, check_count
from rankwise.models.resnet import MEAN, SPREAD, load_weights, torchvision_for

__all__ = ["BACKBONES", "make_pyramid", "normalised", "strides_of"]

BACKBONES = ("conv", "resnet18", "resnet50")
STAGES = {"resnet18": (128, 256, 512), "resnet50": (512, 1024, 2048)}


def strides_of(backbone: str) -> tuple[int, ...]:
    """Pixels from cell to cell on each level."""
    return (8, 16, 32) if check_choice("backbone", backbone, BACKBONES) == "conv" else (8, 16, 32, 64, 128)


def make_pyramid(
    backbone: str, channels: int, *, weights: str | Path | None = None, frozen_batch_norm: bool = False
) -> nn.Module:
    """Normalised images (B, 3, H, W) to a dict of maps (B, channels, h, w), the finest first.

    Args:
        backbone: "conv" (small: three levels, for small images and a CPU), "resnet18" or "resnet50" (five levels).
        channels: of every map, a multiple of 8.
        weights: of a ResNet: "imagenet", a file with a state dict of torchvision's ResNet, or None to start at random.
        frozen_batch_norm: keep statistics and scales of batch normalisation as the weights have them.
    """
    check_choice("backbone", backbone, BACKBONES)
    if check_count("channels", channels) % 8:
        raise ValueError(f"channels: expected a multiple of 8, got {channels}")
    if backbone == "conv" and (weights is not None or frozen_batch_norm):
        raise ValueError("backbone: expected a ResNet with weights or frozen_batch_norm, got conv")
    if frozen_batch_norm and weights is None:
        raise ValueError("frozen_batch_norm: expected weights to keep, got None")
    return _ConvPyramid(channels) if backbone == "conv" else _resnet(backbone, channels, weights, frozen_batch_norm)


def normalised(images: Tensor) -> Tensor:
    """Images (B, 3, H, W) of numbers from 0 to 1 with the mean and the spread of colours that ResNets rely on."""
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
        found: dict[str, Tensor] = self.pyramid(maps)
        return found


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


def _resnet(name: str, channels: int, weights: str | Path | None, frozen_batch_norm: bool) -> nn.Module:
    from torchvision.models.detection.backbone_utils import BackboneWithFPN
    from torchvision.ops.feature_pyramid_network import LastLevelP6P7

    torchvision = torchvision_for("a detector")
    norm = torchvision.ops.FrozenBatchNorm2d if frozen_batch_norm else nn.BatchNorm2d
    body = getattr(torchvision.models, name)(norm_layer=norm)
    body.fc = nn.Identity()
    if weights is not None:
        load_weights(body, int(name.removeprefix("resnet")), weights)
    levels = {"layer2": "0", "layer3": "1", "layer4": "2"}
    pyramid: nn.Module = BackboneWithFPN(
        body, levels, list(STAGES[name]), channels, extra_blocks=LastLevelP6P7(channels, channels)
    )
    return pyramid
