"""Drawings of detections: which boxes are right, wrong and missed."""

from __future__ import annotations

import pytest
import torch

from rankwise.metrics import BoxTable
from rankwise.tasks import DetectionTask, DetectorModel
from rankwise.tasks.seen_boxes import draw_boxes
from workers.boxed_pictures import HEIGHT, WIDTH, make_split

pytest.importorskip("torchvision")
pytest.importorskip("PIL")

TASK = DetectionTask(make_split(6), "stable-ap", model=DetectorModel(channels=8, scale=2))


def test_boxes_are_right_wrong_or_missed():
    part, truth = TASK.data.test, TASK.true_boxes("test")
    image = int(truth.image[0])
    rows = (truth.image == image).nonzero().squeeze(1)
    first = rows[:1]
    aside = torch.tensor([[0.0, 0.0, 2.0, 2.0]], dtype=truth.corners.dtype)
    found = BoxTable(
        truth.image[first].repeat(3),
        truth.label[first].repeat(3),
        torch.cat([truth.corners[first], aside, truth.corners[first]]),
        torch.tensor([2.0, 1.0, -3.0]),
    )
    (drawing,) = draw_boxes(part, found, truth, torch.zeros(len(part.classes)), [image])
    assert torch.equal(drawing.picture, part.source.image(image))
    # The third box is below the threshold.
    assert [box.correct for box in drawing.boxes] == [True, False] + [None] * (len(rows) - 1)
    edges = truth.corners[rows[0]] / torch.tensor([WIDTH, HEIGHT, WIDTH, HEIGHT])
    box = drawing.boxes[0]
    torch.testing.assert_close(torch.tensor([box.left, box.top, box.right, box.bottom]), edges.float())
    name = part.classes[int(truth.label[rows[0]])]
    assert box.caption == f"{name} 2.0"
    assert drawing.caption == f"scene-{image}: 1 right, 1 wrong, {len(rows) - 1} missed"


def test_a_detector_draws_what_it_finds():
    torch.manual_seed(0)
    model = TASK.build_model()
    first, second = TASK.draw(model, "test", [4, 1])
    assert first.caption.startswith("scene-4: ")
    assert second.caption.startswith("scene-1: ")
    assert TASK.inspect(model, "test").drawings
