"""Pictures of detections: plain data that says what was found, and SVG that stands alone."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
import torch

from rankwise.report.detections import DetectionPicture, DrawnBox, detection_pictures, draw_detections
from rankwise.tasks import DetectionTask, DetectorModel
from workers.boxed_pictures import HEIGHT, WIDTH, make_split

pytest.importorskip("torchvision")
pytest.importorskip("PIL")

SVG = "{http://www.w3.org/2000/svg}"


def test_a_picture_holds_the_image_its_boxes_and_what_to_say():
    torch.manual_seed(0)
    task = DetectionTask(make_split(6), "stable-ap", model=DetectorModel(channels=8, scale=2))
    first, second = detection_pictures(task, task.build_model(), [4, 1])
    assert first.pixels.shape == (HEIGHT, WIDTH, 3)
    assert (first.pixels == task.data.test.source.image(4).permute(1, 2, 0).numpy()).all()
    assert [box.corners for box in first.true] == [tuple(row) for row in task.data.test.truth(4).corners.tolist()]
    assert all(box.score is None for box in first.true)
    assert [box.score for box in first.found] == sorted((box.score for box in first.found), reverse=True)
    assert second.caption.startswith("scene-1, boxes shown / true ones (dashed): bar ")


def test_the_drawing_has_every_box_and_stands_alone():
    pixels = torch.zeros(20, 40, 3, dtype=torch.uint8).numpy()
    picture = DetectionPicture(
        pixels,
        true=(DrawnBox((1, 2, 11, 12), "a<b"),),
        found=(DrawnBox((3, 2, 13, 12), "a<b", 1.25), DrawnBox((20, 5, 30, 9), "c", -1)),
        classes=("a<b", "c"),
        caption="x & y",
    )
    tree = ElementTree.fromstring(draw_detections(picture, width=80))
    corners = [float(each.get("x")) for each in tree.iter(f"{SVG}rect")]
    assert sorted(corners) == [2, 2, 6, 40]  # a true box is drawn twice: white below black
    texts = [each.text for each in tree.iter(f"{SVG}text")]
    assert texts == ["a<b 1.2", "c -1.0", "x & y"]
    (image,) = tree.iter(f"{SVG}image")
    assert image.get("href").startswith("data:image/png;base64,")
