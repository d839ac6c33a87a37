"""Draw a picture with frames in it as one SVG file."""

from __future__ import annotations

from html import escape

from rankwise.problems.inspection import Box, Drawing
from rankwise.report.examples import data_uri

__all__ = ["draw_frames"]

# Told apart by people who see red and green alike (Okabe and Ito), and by the line.
STYLES = {True: ("#009e73", ""), False: ("#e69f00", "6 3"), None: ("#56b4e9", "2 3")}
KEY = ((True, "right"), (False, "wrong"), (None, "missed"))


def draw_frames(drawing: Drawing, *, width: int = 640) -> str:
    """Return a picture as SVG, with a frame for each box: solid if right, dashed if wrong, dotted if missed.

    Args:
        drawing: the picture with its boxes.
        width: in pixels.
    """
    height_pixels, width_pixels = drawing.picture.shape[1:]
    height = round(height_pixels * width / width_pixels)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height + 48}" width="{width}" '
        f'font-family="sans-serif" font-size="12" role="img" aria-label="{escape(drawing.caption)}">',
        f'<image href="{data_uri(drawing.picture, width)}" width="{width}" height="{height}" '
        'preserveAspectRatio="none"/>',
    ]
    lines += [_frame(box, width, height) for box in drawing.boxes]
    lines.append(f'<text x="4" y="{height + 18}" fill="#888">{escape(drawing.caption)}</text>')
    for number, (correct, word) in enumerate(KEY):
        left, middle = 4 + 90 * number, height + 34
        lines.append(_line(left, middle, left + 24, middle, correct))
        lines.append(f'<text x="{left + 30}" y="{middle + 4}" fill="#888">{word}</text>')
    return "\n".join([*lines, "</svg>"])


def _frame(box: Box, width: int, height: int) -> str:
    colour, dashes = STYLES[box.correct]
    left, top = box.left * width, box.top * height
    size = f'width="{(box.right - box.left) * width:.1f}" height="{(box.bottom - box.top) * height:.1f}"'
    rectangle = f'<rect x="{left:.1f}" y="{top:.1f}" {size} fill="none"'
    text = f'<text x="{left + 3:.1f}" y="{top + 13:.1f}" fill="{colour}" stroke="#000" stroke-width="2.5"'
    return (
        f'{rectangle} stroke="#000" stroke-width="3.5"/>'
        f'{rectangle} stroke="{colour}" stroke-width="2"{_dashed(dashes)}/>'
        f'{text} paint-order="stroke">{escape(box.caption)}</text>'
    )


def _line(left: float, top: float, right: float, bottom: float, correct: bool | None) -> str:
    colour, dashes = STYLES[correct]
    ends = f'x1="{left}" y1="{top}" x2="{right}" y2="{bottom}"'
    return f'<line {ends} stroke="{colour}" stroke-width="3"{_dashed(dashes)}/>'


def _dashed(dashes: str) -> str:
    return f' stroke-dasharray="{dashes}"' if dashes else ""
