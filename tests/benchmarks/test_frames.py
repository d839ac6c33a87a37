"""Pictures with frames: which boxes are right, wrong and missed, and SVG that stands alone."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
import torch

from benchmarks.quality.bccd.frames import draw_frames
from rankwise.data import DetectionSchema
from rankwise.metrics import BoxTable
from rankwise.problems import Detection
from rankwise.problems.detection.boxes import draw_boxes, true_boxes
from rankwise.problems.inspection import Box, Drawing
from workers.boxed_pictures import HEIGHT, WIDTH, make_part

pytest.importorskip("torchvision")
pytest.importorskip("PIL")

SVG = "{http://www.w3.org/2000/svg}"
PART = make_part(6, seed=2)


def test_boxes_are_right_wrong_or_missed():
    part, truth = PART, true_boxes(PART)
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
    (drawing,) = draw_boxes(part, found, truth, [0.0] * len(part.classes), [image])
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
    problem = Detection(model={"channels": 8, "scale": 2})
    torch.manual_seed(0)
    model = problem.build_model(DetectionSchema.of(PART))
    thresholds = problem.calibrate(model, PART)["thresholds"]
    first, second = draw_boxes(PART, problem.predict(model, PART), true_boxes(PART), thresholds, [4, 1])
    assert first.caption.startswith("scene-4: ")
    assert second.caption.startswith("scene-1: ")
    drawn = problem.inspect(model, PART, calibration={"thresholds": thresholds}).drawings
    assert [each.caption for each in drawn][4] == first.caption


def test_the_drawing_has_every_box_and_stands_alone():
    boxes = (
        Box(0.1, 0.2, 0.3, 0.6, "a<b 1.2", True),
        Box(0.5, 0.25, 0.75, 0.5, "c -1.0", False),
        Box(0.0, 0.0, 0.1, 0.1, "c, missed"),
    )
    drawing = Drawing(torch.zeros(3, 20, 40, dtype=torch.uint8), "x & y", boxes)
    tree = ElementTree.fromstring(draw_frames(drawing, width=80))
    corners = [float(each.get("x")) for each in tree.iter(f"{SVG}rect")]
    assert corners == [8, 8, 40, 40, 0, 0]  # each is drawn twice: black below its colour
    dashes = [each.get("stroke-dasharray") for each in tree.iter(f"{SVG}rect")][1::2]
    assert len(set(dashes)) == 3
    texts = [each.text for each in tree.iter(f"{SVG}text")]
    assert texts == ["a<b 1.2", "c -1.0", "c, missed", "x & y", "right", "wrong", "missed"]
    (image,) = tree.iter(f"{SVG}image")
    assert image.get("href").startswith("data:image/png;base64,")
