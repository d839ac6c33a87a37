"""Pictures of what a detector found: images, true and found boxes and captions as plain data, and as SVG."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from torch import nn

from rankwise.metrics import BoxTable, box_thresholds
from rankwise.tasks import DetectionTask

__all__ = ["DetectionPicture", "DrawnBox", "detection_pictures", "draw_detections"]

# One colour for each class, told apart by people who see red and green alike (Okabe and Ito).
COLOURS = ("#e69f00", "#56b4e9", "#009e73", "#f0e442", "#cc79a7", "#d55e00", "#0072b2")

DASHES = ' stroke-dasharray="4 3"'


@dataclass(frozen=True)
class DrawnBox:
    """A box: left, top, right and bottom edge in pixels, its class, and the score of a found one."""

    corners: tuple[float, float, float, float]
    label: str
    score: float | None = None


@dataclass(frozen=True)
class DetectionPicture:
    """An image with its true and found boxes.

    Attributes:
        pixels: (H, W, 3) uint8.
        true, found: the boxes, found ones by falling score.
        classes: what the classes are called, each with a colour of its own.
        caption: what can be seen, in one line.
    """

    pixels: np.ndarray
    true: tuple[DrawnBox, ...]
    found: tuple[DrawnBox, ...]
    classes: tuple[str, ...]
    caption: str


def detection_pictures(
    task: DetectionTask, model: nn.Module, places: Sequence[int], *, part: str = "test"
) -> list[DetectionPicture]:
    """What a detector finds in some images of a part.

    Of each class the boxes are shown whose score reaches the threshold that is best on the validation part, see
    `rankwise.metrics.box_thresholds`.

    Args:
        task, model: the detector.
        places: which images, by their place in the part.
    """
    data, true, known = task.data.part(part), task.true_boxes(part), task.detect(model, "validation")
    size = {"images": len(task.data.validation), "classes": len(task.classes)}
    thresholds = box_thresholds(known, task.true_boxes("validation"), **size)
    found = known if part == "validation" else task.detect(model, part)
    assert found.score is not None
    found = found.take(found.score >= thresholds[found.label])
    return [
        _picture(
            task.classes,
            data.source.image(int(data.rows[place])).permute(1, 2, 0).numpy(),
            (data.truth(place).height, data.truth(place).width),
            true.take(true.image == place),
            found.take(found.image == place),
            data.truth(place).file.name,
        )
        for place in places
    ]


def draw_detections(picture: DetectionPicture, *, width: int = 640) -> str:
    """A picture as SVG that stands alone: true boxes dashed, found ones in the colour of their class."""
    from PIL import Image

    height_pixels, width_pixels = picture.pixels.shape[:2]
    scale = width / width_pixels
    height = round(height_pixels * scale)
    stored = io.BytesIO()
    Image.fromarray(picture.pixels).save(stored, format="PNG")
    colour = {label: COLOURS[number % len(COLOURS)] for number, label in enumerate(picture.classes)}
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height + 28}" width="{width}" '
        f'font-family="sans-serif" font-size="12" role="img" aria-label="{escape(picture.caption)}">',
        f'<image href="data:image/png;base64,{base64.b64encode(stored.getvalue()).decode()}" width="{width}" '
        f'height="{height}" preserveAspectRatio="none"/>',
    ]
    for box in picture.true:
        lines.append(_rectangle(box, scale, "#fff", 3.5) + _rectangle(box, scale, "#000", 1.5, dashed=True))
    for box in picture.found:
        left, top = box.corners[0] * scale, box.corners[1] * scale
        lines.append(_rectangle(box, scale, colour[box.label], 2))
        lines.append(
            f'<text x="{left + 3:.1f}" y="{top + 13:.1f}" fill="{colour[box.label]}" stroke="#000" stroke-width="2.5" '
            f'paint-order="stroke">{escape(box.label)} {box.score:.1f}</text>'
        )
    lines.append(f'<text x="4" y="{height + 19}">{escape(picture.caption)}</text></svg>')
    return "\n".join(lines)


def _picture(
    classes: Sequence[str],
    pixels: np.ndarray,
    size: tuple[int, int],
    true: BoxTable,
    found: BoxTable,
    name: str,
) -> DetectionPicture:
    # Images may be kept smaller than their files, in whose pixels boxes are given.
    down, across = pixels.shape[0] / size[0], pixels.shape[1] / size[1]

    def boxes(table: BoxTable) -> tuple[DrawnBox, ...]:
        scores = [None] * len(table.image) if table.score is None else table.score.tolist()
        rows = zip(table.corners.tolist(), table.label.tolist(), scores, strict=True)
        return tuple(
            DrawnBox((left * across, top * down, right * across, bottom * down), classes[label], score)
            for (left, top, right, bottom), label, score in rows
        )

    shown, real = boxes(found), boxes(true)
    counts = ", ".join(
        f"{label} {sum(box.label == label for box in shown)} / {sum(box.label == label for box in real)}"
        for label in classes
    )
    caption = f"{name}, boxes shown / true ones (dashed): {counts}"
    return DetectionPicture(pixels, real, shown, tuple(classes), caption)


def _rectangle(box: DrawnBox, scale: float, colour: str, width: float, *, dashed: bool = False) -> str:
    left, top, right, bottom = (edge * scale for edge in box.corners)
    return (
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" height="{bottom - top:.1f}" fill="none" '
        f'stroke="{colour}" stroke-width="{width}"{DASHES if dashed else ""}/>'
    )
