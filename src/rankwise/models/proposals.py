"""The first stage of Faster R-CNN, over torchvision's. Not imported before it is needed: torchvision may be missing."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torchvision.models.detection.rpn import RegionProposalNetwork

from rankwise.models.anchors import on_ignored

__all__ = ["ProposalNetwork"]


class ProposalNetwork(RegionProposalNetwork):  # type: ignore[misc]
    """torchvision's proposals with its usual numbers, from given anchors, and kind to ignored objects.

    Args:
        anchors: (A, 4) of every image.
        head: from maps to scores and moves of the anchors.
        most: proposals that are kept in an image, and before overlapping ones are left out on each level.
    """

    def __init__(self, anchors: Tensor, head: nn.Module, *, most: int) -> None:
        kept = {"training": most, "testing": most}
        super().__init__(_Given(anchors), head, 0.7, 0.3, 256, 0.5, kept, kept, 0.7)

    def assign_targets_to_anchors(
        self, anchors: list[Tensor], targets: list[dict[str, Tensor]]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Return the label of each anchor (1 on an object, 0 on none, -1 ignored) and its target box."""
        labels, boxes = super().assign_targets_to_anchors(anchors, targets)
        for label, grid, target in zip(labels, anchors, targets, strict=True):
            label[(label == 0) & on_ignored(grid, target["ignored"])] = -1
        return labels, boxes


class _Given(nn.Module):
    """Replace torchvision's generator, whose cells are wrong where a stride does not divide the image."""

    corners: Tensor

    def __init__(self, corners: Tensor) -> None:
        super().__init__()
        self.register_buffer("corners", corners, persistent=False)

    def forward(self, images: Any, maps: list[Tensor]) -> list[Tensor]:
        return [self.corners] * len(images.tensors)
