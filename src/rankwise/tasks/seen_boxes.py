"""Boxes that a detector found, to be looked at: image by image, which are right, which were missed."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rankwise.data import DetectionPart
from rankwise.metrics import BoxTable, Evaluation, right_boxes
from rankwise.tasks.inspection import Box, Drawing, Inspection, SeenLists

__all__ = ["draw_boxes", "inspect_boxes"]

HALF = 0.5


def inspect_boxes(
    part: DetectionPart, found: BoxTable, truth: BoxTable, evaluation: Evaluation, drawings: Sequence[Drawing]
) -> Inspection:
    """The images of a part as lists of the boxes found in them; a box is relevant if it is right at an overlap of .5.

    Args:
        part: the images.
        found, truth: boxes of the part.
        evaluation: of the same boxes.
        drawings: some of the images.
    """
    images = len(part)
    assert found.score is not None
    scores, right = found.score, right_boxes(found, truth, images=images, classes=len(part.classes))
    rows_of = [(found.image == image).nonzero().squeeze(1) for image in range(images)]
    wanted = torch.ones_like(truth.image, dtype=torch.bool) if truth.ignored is None else ~truth.ignored

    def look(numbers: Tensor) -> SeenLists:
        chosen = [rows_of[number] for number in numbers.tolist()]
        rows = torch.nn.utils.rnn.pad_sequence(chosen, batch_first=True, padding_value=-1)
        return SeenLists(scores[rows], right[rows].long(), rows >= 0)

    return Inspection(
        evaluation,
        "image",
        "box",
        "precision",
        look,
        list_name=lambda image: part.truth(image).file.name,
        item_name=lambda image, column: part.classes[int(found.label[rows_of[image][column]])],
        relevant=torch.bincount(truth.image[wanted], minlength=images),
        drawings=tuple(drawings),
    )


def draw_boxes(
    part: DetectionPart, found: BoxTable, truth: BoxTable, thresholds: Tensor, images: Sequence[int]
) -> list[Drawing]:
    """Some images of a part with the boxes found in them, right or wrong, and the objects that were missed.

    Args:
        part: the images.
        found, truth: boxes of the part.
        thresholds: (C,) the score that a box of each class must reach to be shown, see
            `rankwise.metrics.box_thresholds`.
        images: which ones, by their place in the part.
    """
    assert found.score is not None
    shown = found.take(found.score >= thresholds[found.label])
    right = right_boxes(shown, truth, images=len(part), classes=len(part.classes))
    return [_draw(part, image, shown, right, truth) for image in images]


def _draw(part: DetectionPart, image: int, shown: BoxTable, right: Tensor, truth: BoxTable) -> Drawing:
    from torchvision.ops import box_iou

    assert shown.score is not None
    known = part.truth(image)
    size = torch.tensor([known.width, known.height] * 2)
    boxes, missed = [], 0
    for row in (shown.image == image).nonzero().squeeze(1).tolist():
        left, top, right_edge, bottom = (shown.corners[row] / size).clamp(0, 1).tolist()
        caption = f"{part.classes[int(shown.label[row])]} {float(shown.score[row]):.1f}"
        boxes.append(Box(left, top, right_edge, bottom, caption, bool(right[row])))
    for label, corners, ignored in zip(known.labels.tolist(), known.corners, known.ignored.tolist(), strict=True):
        hits = shown.corners[(shown.image == image) & (shown.label == label) & right]
        if not ignored and not bool((box_iou(corners[None].double(), hits.double()) >= HALF).any()):
            missed += 1
            left, top, right_edge, bottom = (corners / size).clamp(0, 1).tolist()
            boxes.append(Box(left, top, right_edge, bottom, f"{part.classes[label]}, missed"))
    correct = sum(box.correct is True for box in boxes)
    wrong = sum(box.correct is False for box in boxes)
    caption = f"{known.file.name}: {correct} right, {wrong} wrong, {missed} missed"
    return Drawing(part.source.image(int(part.rows[image])), caption, tuple(boxes))
