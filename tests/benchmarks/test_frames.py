"""Pictures with frames: one SVG file with every box."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
import torch

from benchmarks.quality.bccd.frames import draw_frames
from rankwise.problems.inspection import Box, Drawing

pytest.importorskip("PIL")

SVG = "{http://www.w3.org/2000/svg}"


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
