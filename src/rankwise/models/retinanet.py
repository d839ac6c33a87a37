"""RetinaNet: a detector that scores all anchors of an image at once. Needs `pip install "rankwise[vision]"`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from rankwise.checks import check_choice, check_count
from rankwise.models.anchors import make_anchors
from rankwise.models.resnet import MEAN, SPREAD, load_weights, torchvision_for

__all__ = ["BACKBONES", "RetinaNetDetector", "strides_of"]

BACKBONES = ("conv", "resnet18", "resnet50")
STAGES = {"resnet18": (128, 256, 512), "resnet50": (512, 1024, 2048)}


def strides_of(backbone: str) -> tuple[int, ...]:
    """Pixels from cell to cell on each level."""
    return (8, 16, 32) if check_choice("backbone", backbone, BACKBONES) == "conv" else (8, 16, 32, 64, 128)


class RetinaNetDetector(nn.Module):
    """torchvision's RetinaNet for images of one size; scores and boxes of all anchors, without a loss of its own.

    Args:
        classes: C.
        size: height and width of the images in pixels.
        backbone: "conv" (small: three levels, for small images and a CPU), "resnet18" or "resnet50" (five levels).
        channels: of the pyramid and the heads, a multiple of 8.
        scale, per_cell, ratios: of the anchors, see `make_anchors`.
        weights: of a ResNet: "imagenet", a file with a state dict of torchvision's ResNet, or None to start at random.
        frozen_batch_norm: keep statistics and scales of batch normalisation as the weights have them.
        prior: what all scores begin at, as a probability: the logit of it.

    Example:
        >>> detector = RetinaNetDetector(3, (64, 96), channels=16, scale=2)
        >>> detector(torch.rand(2, 3, 64, 96)).shape, detector.anchors.shape
        (torch.Size([2, 126, 7]), torch.Size([126, 4]))

    Paper: Lin et al., Focal Loss for Dense Object Detection, ICCV 2017.
    """

    anchors: Tensor
    mean: Tensor
    spread: Tensor

    def __init__(
        self,
        classes: int,
        size: tuple[int, int],
        *,
        backbone: str = "conv",
        channels: int = 64,
        scale: float = 8.0,
        per_cell: int = 1,
        ratios: Sequence[float] = (1.0,),
        weights: str | Path | None = None,
        frozen_batch_norm: bool = False,
        prior: float = 0.01,
    ) -> None:
        super().__init__()
        torchvision_for("RetinaNet")
        from torchvision.models.detection.retinanet import RetinaNetClassificationHead, RetinaNetHead

        self.classes = check_count("classes", classes)
        if check_count("channels", channels) % 8:
            raise ValueError(f"channels: expected a multiple of 8, got {channels}")
        if backbone == "conv" and (weights is not None or frozen_batch_norm):
            raise ValueError("backbone: expected a ResNet with weights or frozen_batch_norm, got conv")
        if frozen_batch_norm and weights is None:
            raise ValueError("frozen_batch_norm: expected weights to keep, got None")
        strides = strides_of(backbone)
        self.backbone = (
            _ConvPyramid(channels) if backbone == "conv" else _resnet(backbone, channels, weights, frozen_batch_norm)
        )
        normalised = partial(nn.GroupNorm, 8)
        self.head = RetinaNetHead(channels, per_cell * len(ratios), classes, norm_layer=normalised)
        self.head.classification_head = RetinaNetClassificationHead(
            channels, per_cell * len(ratios), classes, prior_probability=prior, norm_layer=normalised
        )
        grid = make_anchors(size, strides, scale=scale, per_cell=per_cell, ratios=ratios)
        self.register_buffer("anchors", grid.corners, persistent=False)
        self.register_buffer("mean", torch.tensor(MEAN).view(3, 1, 1), persistent=False)
        self.register_buffer("spread", torch.tensor(SPREAD).view(3, 1, 1), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Images (B, 3, H, W) of numbers from 0 to 1 to outputs (B, A, C + 4): C logits, and how the anchor moves."""
        maps = list(self.backbone((images - self.mean) / self.spread).values())
        found = self.head(maps)
        return torch.cat([found["cls_logits"], found["bbox_regression"]], 2)


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

    torchvision = torchvision_for("RetinaNet")
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
