"""Losses of detectors: a ranking loss over all anchors or proposals of a batch, and the errors of the boxes."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from rankwise.checks import check_choice, check_positive, check_same_shape
from rankwise.data import Boxes
from rankwise.distributed import gather_rows, world_size
from rankwise.losses import ListLoss
from rankwise.losses.baselines import ALRPLoss
from rankwise.models import Anchors, Assigned, Sampled, assign_anchors
from rankwise.models.anchors import moved

__all__ = ["DetectionLoss", "ProposalLoss"]

LISTS = ("classes", "all", "balanced")


class DetectionLoss(nn.Module):
    """Add up three losses over the anchors of a batch of images.

        ranking + box_weight * mean over positives (1 - GIoU) + bias_weight * (mean score of the positives)^2

    Anchors are positive for the class of the object that ATSS gives them (see `assign_anchors`), negative for all
    others. The last term fixes the level of scores that a ranking loss lets drift together. `ALRPLoss` takes the errors
    of the boxes, (1 - GIoU) / 2, into the ranking; it has no second term.

    Args:
        ranking: a loss over lists that takes columns (`lists="columns"`) if `lists` is "classes", or `ALRPLoss`.
        anchors: of an image.
        classes: C.
        lists: "classes" ranks the anchors for each class apart, the negatives of a class being the background and the
            other classes; "all" ranks all pairs of an anchor and a class together, so that frequent classes count most;
            "balanced" does so with every class counting as the root of its positives in the batch.
        box_weight, bias_weight: of the second and third term.

    Called as `loss(outputs, labels, boxes)`: outputs (B, A, C + 4) of a detector, labels (B, M) of the objects and
    their `Boxes`. After a call `unmatched` is the number of objects without an anchor, `skipped` the number of lists
    that were left out because they had no positive anchor.

    Paper: Wen et al., Generalizable Stochastic Average Precision Learning via Stable Surrogate Loss, Chinese Journal of
    Computers 2025, section 7.2. It prints sums where means are taken here: the weights could not fit batches of more
    than one size otherwise.
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
        self.lists = _check_lists(lists, ranking)
        self.box_weight = check_positive("box_weight", box_weight, zero=True)
        self.bias_weight = check_positive("bias_weight", bias_weight, zero=True)
        self.levels, self.unmatched = anchors.levels, 0
        self.register_buffer("corners", anchors.corners, persistent=False)

    @property
    def skipped(self) -> int:
        """Return the number of lists of the last batch without a positive anchor."""
        return self.ranking.skipped if isinstance(self.ranking, ListLoss) else 0

    def forward(self, outputs: Tensor, labels: Tensor, boxes: Boxes, *, previous: Tensor | None = None) -> Tensor:
        """Return the loss; `previous` (B, A, C + 4): the outputs under the weights before the last step, if known."""
        shape = (*boxes.mask.shape[:1], len(self.corners), self.classes + 4)
        check_same_shape("outputs", outputs, "images, anchors and classes + 4", shape)
        outputs = outputs.float() if outputs.dtype in (torch.float16, torch.bfloat16) else outputs
        logits, deltas = outputs.split([self.classes, 4], 2)
        corners = boxes.corners.to(outputs.dtype)
        given = assign_anchors(Anchors(self.corners, self.levels), corners, boxes.mask, boxes.ignored)
        self.unmatched = given.unmatched
        # Images without any object have an empty row of labels, from which nothing can be gathered.
        own = labels.gather(1, given.object) if labels.shape[1] else given.object
        truth = (one_hot(own, self.classes) * given.positive[..., None]).bool()
        errors = self._errors(deltas, corners, given)
        before = None if previous is None else previous[..., : self.classes].to(outputs.dtype)
        value = self._rank(logits, truth, given, errors, before)
        everywhere = gather_rows(errors)
        if not isinstance(self.ranking, ALRPLoss):
            value = value + self.box_weight * everywhere.sum() / max(1, len(everywhere))
        if self.bias_weight:
            value = value + self.bias_weight * _squared_level(logits, truth)
        return value

    def _errors(self, deltas: Tensor, corners: Tensor, given: Assigned) -> Tensor:
        """Return 1 - GIoU of each positive anchor's box with its object, from 0 to 2."""
        from torchvision.ops import generalized_box_iou_loss

        image, anchor = given.positive.nonzero(as_tuple=True)
        boxes = moved(self.corners[anchor], deltas[image, anchor])
        errors: Tensor = generalized_box_iou_loss(boxes, corners[image, given.object[image, anchor]])
        return errors

    def _rank(self, logits: Tensor, truth: Tensor, given: Assigned, errors: Tensor, previous: Tensor | None) -> Tensor:
        # With several processes all must pass a mask or none, whatever their images hold.
        needed = world_size() > 1 or not bool(given.counted.all())
        mask = given.counted[..., None].expand_as(logits) if needed else None
        if isinstance(self.ranking, ALRPLoss):
            spread = torch.zeros_like(logits).masked_scatter(truth, (errors / 2).clamp(0, 1))
            value: Tensor = self.ranking(logits, truth, spread, mask=mask)
            return value
        return _rank_classes(self.ranking, self.lists, logits, truth, mask=mask, previous=previous)


class ProposalLoss(nn.Module):
    """Add up four losses over the sampled proposals of a batch of images.

        ranking + box_weight * box loss + proposal loss + bias_weight * (mean score of the positives)^2

    A proposal is positive for the class of the object that it overlaps most, if by half at least, and negative for all
    others. The box loss and the loss of the first stage are Faster R-CNN's own, see `FasterRCNNDetector`.

    Args:
        ranking: a loss over lists that takes columns (`lists="columns"`) if `lists` is "classes".
        classes: C.
        lists: see `DetectionLoss`, with proposals for anchors.
        box_weight, bias_weight: of the second and the last term.

    Called as `loss(sampled)`, see `rankwise.models.Sampled`. After a call `skipped` is the number of lists that were
    left out because they had no positive proposal.
    """

    def __init__(
        self,
        ranking: nn.Module,
        classes: int,
        *,
        lists: str = "classes",
        box_weight: float = 2.0,
        bias_weight: float = 0.001,
    ) -> None:
        super().__init__()
        if not isinstance(ranking, ListLoss):
            raise TypeError(f"ranking: expected a list loss, got {type(ranking).__name__}")
        self.ranking, self.classes = ranking, classes
        self.lists = _check_lists(lists, ranking)
        self.box_weight = check_positive("box_weight", box_weight, zero=True)
        self.bias_weight = check_positive("bias_weight", bias_weight, zero=True)

    @property
    def skipped(self) -> int:
        """Return the number of lists of the last batch without a positive proposal."""
        return self.ranking.skipped

    def forward(self, sampled: Sampled, *, previous: Tensor | None = None) -> Tensor:
        """Return the loss, a scalar; `previous` (N, C): logits of the same proposals under the previous weights."""
        # The background, -1, comes first and is no class.
        truth = one_hot(sampled.labels + 1, self.classes + 1)[:, 1:].bool()
        value = _rank_classes(self.ranking, self.lists, sampled.logits, truth, previous=previous)
        value = value + self.box_weight * sampled.box_loss + sampled.proposal_loss
        if self.bias_weight:
            value = value + self.bias_weight * _squared_level(sampled.logits, truth)
        return value


def _check_lists(lists: str, ranking: nn.Module) -> str:
    """Return the layout "classes", "all" or "balanced"; refuse one that the loss was not made for."""
    check_choice("lists", lists, LISTS)
    if isinstance(ranking, ListLoss) and lists == "classes" and ranking.lists != "columns":
        raise ValueError('ranking: expected a loss made with lists="columns", got one of rows')
    if isinstance(ranking, ALRPLoss) and lists == "balanced":
        raise ValueError("lists: expected classes or all with aLRP, which takes no weights, got balanced")
    return lists


def _rank_classes(
    ranking: nn.Module,
    lists: str,
    logits: Tensor,
    truth: Tensor,
    *,
    mask: Tensor | None = None,
    previous: Tensor | None = None,
) -> Tensor:
    """Return the ranking loss of logits (..., C) with labels `truth` (..., C), in the layout `lists`."""
    weights = _balance(truth, logits.dtype) if lists == "balanced" else None
    rows = [None if each is None else each.flatten(0, -2) for each in (logits, truth, mask, previous, weights)]
    if lists != "classes":  # one list, whatever the number of processes
        rows = [None if each is None else each.flatten() for each in rows]
    value: Tensor = ranking(rows[0], rows[1], mask=rows[2], previous_scores=rows[3], weights=rows[4])
    return value


def _squared_level(logits: Tensor, truth: Tensor) -> Tensor:
    """Return (mean score of the positives)^2, over all processes."""
    scores = gather_rows(logits[truth])
    return (scores.sum() / max(1, len(scores))).square()


def _balance(truth: Tensor, dtype: torch.dtype) -> Tensor:
    """Return weights (..., C) with which every class counts as the root of its positives, which weigh 1 on average."""
    counts = gather_rows(truth.flatten(0, -2).sum(0)[None]).sum(0).to(dtype)
    weight = counts.clamp_min(1).rsqrt() * counts.sum() / counts.sqrt().sum().clamp_min(1)
    return torch.where(truth, weight, torch.ones_like(weight))
