"""RetinaNet: a detector that scores all anchors of an image at once. Needs `pip install "rankwise[vision]"`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from rankwise.checks import check_count
from rankwise.models.anchors import make_anchors, moved
from rankwise.models.detector import Detector, Found, make_pyramid, normalised, strides_of
from rankwise.models.resnet import torchvision_for

__all__ = ["RetinaNetDetector"]


class RetinaNetDetector(Detector):
    """torchvision's RetinaNet for images of one size; scores and boxes of all anchors, without a loss of its own.

    Args:
        classes: C.
        size: height and width of the images in pixels.
        backbone: "conv" (small: three levels, for small images and a CPU), "resnet18" or "resnet50" (five levels).
        channels: of the pyramid and the heads, a multiple of 8.
        levels: of the pyramid, see `make_pyramid`.
        scale, per_cell, ratios: of the anchors, see `make_anchors`.
        weights: of a ResNet: "imagenet", a file with a state dict of torchvision's ResNet, or None to start at random.
        frozen_batch_norm: keep statistics and scales of batch normalisation as the weights have them; without weights
            they are to be loaded later.
        prior: what all scores begin at, as a probability: the logit of it.

    Example:
        >>> detector = RetinaNetDetector(3, (64, 96), channels=16, scale=2)
        >>> detector(torch.rand(2, 3, 64, 96)).shape, detector.anchors.shape
        (torch.Size([2, 126, 7]), torch.Size([126, 4]))

    Paper: Lin et al., Focal Loss for Dense Object Detection, ICCV 2017.
    """

    anchors: Tensor

    def __init__(
        self,
        classes: int,
        size: tuple[int, int],
        *,
        backbone: str = "conv",
        channels: int = 64,
        levels: int | None = None,
        scale: float = 8.0,
        per_cell: int = 1,
        ratios: Sequence[float] = (1.0,),
        weights: str | Path | None = None,
        frozen_batch_norm: bool = False,
        prior: float = 0.01,
    ) -> None:
        torchvision_for("RetinaNet")
        pyramid = make_pyramid(backbone, channels, levels=levels, frozen_batch_norm=frozen_batch_norm)
        super().__init__(backbone, pyramid, weights)
        from torchvision.models.detection.retinanet import RetinaNetClassificationHead, RetinaNetHead

        self.classes = check_count("classes", classes)
        groups = partial(nn.GroupNorm, 8)
        self.head = RetinaNetHead(channels, per_cell * len(ratios), classes, norm_layer=groups)
        self.head.classification_head = RetinaNetClassificationHead(
            channels, per_cell * len(ratios), classes, prior_probability=prior, norm_layer=groups
        )
        grid = make_anchors(size, strides_of(backbone, levels), scale=scale, per_cell=per_cell, ratios=ratios)
        self.register_buffer("anchors", grid.corners, persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Images (B, 3, H, W) of numbers from 0 to 1 to outputs (B, A, C + 4): C logits, and how the anchor moves."""
        maps = list(self.backbone(normalised(images)).values())
        outputs = self.head(maps)
        return torch.cat([outputs["cls_logits"], outputs["bbox_regression"]], 2)

    def find(self, images: Tensor) -> list[Found]:
        """Return the box and scores of every anchor in images (B, 3, H, W)."""
        logits, deltas = self(images).float().split([self.classes, 4], 2)
        corners = moved(self.anchors, deltas)
        return [Found(*each) for each in zip(logits, corners[:, :, None].expand(-1, -1, self.classes, -1), strict=True)]
