"""Faster R-CNN: a detector that looks again at what it proposed. Needs `pip install "rankwise[vision]"`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import smooth_l1_loss

from rankwise.checks import check_count, check_share
from rankwise.models.anchors import make_anchors, on_ignored
from rankwise.models.detector import Detector, Found, make_pyramid, normalised, strides_of
from rankwise.models.resnet import torchvision_for

__all__ = ["FasterRCNNDetector", "Sampled"]

# Proposals that are kept in an image, after those that overlap a better one by more than .7 are left out.
MOST = 1000
# torchvision's: of the sampled proposals at most so many lie on objects.
POSITIVE = 0.25
# Levels of the pyramid that proposals are cut out of; the coarser ones only propose.
CUT_FROM = ("0", "1", "2")
CELLS = 7


class Sampled(NamedTuple):
    """Outputs of Faster R-CNN in training mode, for a loss.

    Attributes:
        logits: (N, C) of the sampled proposals of all images; labels: (N,) the class of the object each lies on, -1 for
            the background.
        box_loss: how far their boxes are off, a scalar; proposal_loss: that of the first stage, a scalar.
        proposals: their regions, (n, 4) for each image.
    """

    logits: Tensor
    labels: Tensor
    box_loss: Tensor
    proposal_loss: Tensor
    proposals: list[Tensor]


class FasterRCNNDetector(Detector):
    """torchvision's Faster R-CNN for images of one size, without a loss of its own for the classes.

    The first stage proposes regions that may hold an object, the second looks at each, says how well it fits every
    class, and moves its box. Boxes of both stages and the first stage's scores are trained as usual (smooth L1 and
    cross entropy over sampled anchors, `Sampled.box_loss` and `Sampled.proposal_loss`). The second stage gives one
    logit per class and none for the background: every class is a ranking of its own, for which a softmax over classes
    would mean nothing.

    Args:
        classes, size, backbone, channels, levels, weights, frozen_batch_norm: see `RetinaNetDetector`.
        scale, per_cell, ratios: of the anchors of the first stage, see `make_anchors`.
        prior: what all scores of the second stage begin at, as a probability: the logit of it.
        sampled: proposals of an image that the second stage learns from, drawn at random, at most a quarter of them on
            objects. There are up to 1,000 in all; each costs memory and, on a CPU, much time.

    Example:
        >>> detector = FasterRCNNDetector(3, (64, 96), channels=16, scale=2).eval()
        >>> boxes = detector.find(torch.rand(2, 3, 64, 96))
        >>> len(boxes), boxes[0].scores.shape[1], boxes[0].corners.shape[1:]
        (2, 3, torch.Size([3, 4]))

    Paper: Ren et al., Faster R-CNN: Towards Real-Time Object Detection with Region Proposal Networks, NeurIPS 2015.
    """

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
        sampled: int = 512,
    ) -> None:
        torchvision_for("Faster R-CNN")
        pyramid = make_pyramid(backbone, channels, levels=levels, frozen_batch_norm=frozen_batch_norm)
        super().__init__(backbone, pyramid, weights)
        from torchvision.models.detection.faster_rcnn import FastRCNNPredictor, TwoMLPHead
        from torchvision.models.detection.roi_heads import RoIHeads
        from torchvision.models.detection.rpn import RPNHead
        from torchvision.ops import MultiScaleRoIAlign

        from rankwise.models.proposals import ProposalNetwork

        self.classes, self.size = check_count("classes", classes), size
        check_share("prior", prior)
        grid = make_anchors(size, strides_of(backbone, levels), scale=scale, per_cell=per_cell, ratios=ratios)
        self.first = ProposalNetwork(grid.corners, RPNHead(channels, per_cell * len(ratios)), most=MOST)
        width = 4 * channels
        predictor = FastRCNNPredictor(width, classes)
        nn.init.normal_(predictor.cls_score.weight, std=0.01)
        nn.init.constant_(predictor.cls_score.bias, math.log(prior / (1 - prior)))
        self.second = RoIHeads(
            MultiScaleRoIAlign(CUT_FROM, CELLS, sampling_ratio=2),
            TwoMLPHead(channels * CELLS**2, width),
            predictor,
            fg_iou_thresh=0.5,
            bg_iou_thresh=0.5,
            batch_size_per_image=check_count("sampled", sampled),
            positive_fraction=POSITIVE,
            bbox_reg_weights=None,
            # The problem drops overlapping boxes, for all detectors alike.
            score_thresh=0.0,
            nms_thresh=1.0,
            detections_per_img=MOST,
        )

    def forward(self, images: Tensor, labels: Tensor, corners: Tensor, mask: Tensor, ignored: Tensor) -> Sampled:
        """Return the outputs for a loss, in training mode.

        Args:
            images: (B, 3, H, W) numbers from 0 to 1.
            labels: (B, M) classes of the objects; corners, mask, ignored: (B, M, ...) see `rankwise.data.Boxes`.
        """
        wanted, unwanted = mask & ~ignored, mask & ignored
        targets = [
            {"boxes": box[keep].float(), "labels": label[keep] + 1, "ignored": box[leave].float()}
            for box, label, keep, leave in zip(corners, labels, wanted, unwanted, strict=True)
        ]
        maps, proposals, losses = self._propose(images, targets)
        # Those on ignored objects are neither right nor wrong.
        proposals = [box[~on_ignored(box, target["ignored"])] for box, target in zip(proposals, targets, strict=True)]
        proposals, _, kinds, goals = self.second.select_training_samples(proposals, targets)
        logits, deltas = self._look(maps, proposals)
        known = torch.cat(kinds) - 1
        on_object = known >= 0
        own = deltas[on_object, known[on_object]]
        # The mean over all proposals, with and without an object.
        off = smooth_l1_loss(own, torch.cat(goals)[on_object], beta=1 / 9, reduction="sum") / max(1, len(known))
        return Sampled(logits, known, off, sum(losses.values(), logits.new_zeros(())), proposals)

    def score_proposals(self, images: Tensor, proposals: list[Tensor]) -> Tensor:
        """Return the logits (N, C) of given proposals, (n, 4) for each of the images (B, 3, H, W)."""
        return self._look(self.backbone(normalised(images)), proposals)[0]

    def find(self, images: Tensor) -> list[Found]:
        """Return scores and boxes of every proposal in images (B, 3, H, W), in evaluation mode."""
        maps, proposals, _ = self._propose(images, None)
        logits, deltas = self._look(maps, proposals)
        corners = self.second.box_coder.decode(deltas.flatten(1), proposals)
        counts = [len(each) for each in proposals]
        return [Found(*each) for each in zip(logits.float().split(counts), corners.float().split(counts), strict=True)]

    def _propose(
        self, images: Tensor, targets: list[dict[str, Tensor]] | None
    ) -> tuple[dict[str, Tensor], list[Tensor], dict[str, Tensor]]:
        from torchvision.models.detection.image_list import ImageList

        maps = self.backbone(normalised(images))
        proposals, losses = self.first(ImageList(images, [self.size] * len(images)), maps, targets)
        return maps, proposals, losses

    def _look(self, maps: dict[str, Tensor], proposals: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Logits (N, C) of all proposals, and how the box of each moves, (N, C, 4)."""
        second: Any = self.second
        cut = second.box_roi_pool(maps, proposals, [self.size] * len(proposals))
        logits, deltas = second.box_predictor(second.box_head(cut))
        return logits, cast(Tensor, deltas).unflatten(1, (self.classes, 4))
