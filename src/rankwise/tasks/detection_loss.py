"""What a detector is trained by: a ranking loss over all anchors of a batch, and the overlap of the boxes."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from rankwise.checks import check_positive, check_same_shape
from rankwise.data import Boxes
from rankwise.distributed import gather_rows, world_size
from rankwise.losses import ListLoss
from rankwise.losses.rivals import ALRPLoss
from rankwise.models import Anchors, Assigned, assign_anchors
from rankwise.models.anchors import moved
from rankwise.tasks.class_lists import check_lists, pinned, rank_classes

__all__ = ["DetectionLoss"]


class DetectionLoss(nn.Module):
    """The sum of three losses over the anchors of a batch of images.

        ranking + box_weight * mean over positives (1 - GIoU) + bias_weight * (mean score of the positives)^2

    Anchors are positive for the class of the object that ATSS gives them (see `assign_anchors`), negative for all
    others. The last term pins down scores that a ranking loss leaves free to drift together. `ALRPLoss` takes the
    errors of the boxes, (1 - GIoU) / 2, into the ranking; the second term falls away.

    Args:
        ranking: a loss over lists that takes columns (`lists="columns"`) if `lists` is "classes", or `ALRPLoss`.
        anchors: of an image.
        classes: C.
        lists: "classes" ranks the anchors for each class apart, the negatives of a class being the background and the
            other classes; "all" ranks all pairs of an anchor and a class together, so that frequent classes count most;
            "balanced" does so with every class counting as the root of its positives in the batch.
        box_weight, bias_weight: of the second and third term.

    Called as `loss(outputs, labels, boxes)`: outputs (B, A, C + 4) of a detector, labels (B, M) of the objects and
    their `Boxes`. After a call `unmatched` says how many objects no anchor was for, `skipped` how many lists were left
    out because they had no positive anchor.

    Paper: Wen et al., Generalizable Stochastic Average Precision Learning via Stable Surrogate Loss, Chinese Journal of
    Computers 2025, section 7.2. Printed there are sums where means are taken here: the weights could not fit batches
    of more than one size otherwise.
    """

    corners: Tensor

    def __init__(
        self,
        ranking: nn.Module,
        anchors: Anchors,
        classes: int,
        *,
        lists: str = "classes",
        box_weight: float = 2.0,
        bias_weight: float = 0.001,
    ) -> None:
        super().__init__()
        self.ranking, self.classes = ranking, classes
        self.lists = check_lists(lists, ranking)
        self.box_weight = check_positive("box_weight", box_weight, zero=True)
        self.bias_weight = check_positive("bias_weight", bias_weight, zero=True)
        self.levels, self.unmatched = anchors.levels, 0
        self.register_buffer("corners", anchors.corners, persistent=False)

    @property
    def skipped(self) -> int:
        """How many lists of the last batch had no positive anchor."""
        return self.ranking.skipped if isinstance(self.ranking, ListLoss) else 0

    def forward(self, outputs: Tensor, labels: Tensor, boxes: Boxes, *, previous: Tensor | None = None) -> Tensor:
        """The loss; `previous` (B, A, C + 4) are the outputs under the weights before the last step, if at hand."""
        shape = (*boxes.mask.shape[:1], len(self.corners), self.classes + 4)
        check_same_shape("outputs", outputs, "images, anchors and classes + 4", shape)
        outputs = outputs.float() if outputs.dtype in (torch.float16, torch.bfloat16) else outputs
        logits, deltas = outputs.split([self.classes, 4], 2)
        corners = boxes.corners.to(outputs.dtype)
        given = assign_anchors(Anchors(self.corners, self.levels), corners, boxes.mask, boxes.ignored)
        self.unmatched = given.unmatched
        # Of images without any object the labels are an empty row, which nothing could be taken from.
        own = labels.gather(1, given.object) if labels.shape[1] else given.object
        truth = (one_hot(own, self.classes) * given.positive[..., None]).bool()
        errors = self._errors(deltas, corners, given)
        before = None if previous is None else previous[..., : self.classes].to(outputs.dtype)
        value = self._rank(logits, truth, given, errors, before)
        everywhere = gather_rows(errors)
        if not isinstance(self.ranking, ALRPLoss):
            value = value + self.box_weight * everywhere.sum() / max(1, len(everywhere))
        if self.bias_weight:
            value = value + self.bias_weight * pinned(logits, truth)
        return value

    def _errors(self, deltas: Tensor, corners: Tensor, given: Assigned) -> Tensor:
        """1 - GIoU of each positive anchor's box with its object, from 0 to 2."""
        from torchvision.ops import generalized_box_iou_loss

        image, anchor = given.positive.nonzero(as_tuple=True)
        found = moved(self.corners[anchor], deltas[image, anchor])
        errors: Tensor = generalized_box_iou_loss(found, corners[image, given.object[image, anchor]])
        return errors

    def _rank(self, logits: Tensor, truth: Tensor, given: Assigned, errors: Tensor, previous: Tensor | None) -> Tensor:
        # With several processes all must pass a mask or none, whatever their images hold.
        needed = world_size() > 1 or not bool(given.counted.all())
        mask = given.counted[..., None].expand_as(logits) if needed else None
        if isinstance(self.ranking, ALRPLoss):
            off = torch.zeros_like(logits).masked_scatter(truth, (errors / 2).clamp(0, 1))
            value: Tensor = self.ranking(logits, truth, off, mask=mask)
            return value
        return rank_classes(self.ranking, self.lists, logits, truth, mask=mask, previous=previous)
