"""Curves as an SVG picture that needs no library to make or to look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ["draw_curves"]

Points = Sequence[tuple[float, float]]

COLOURS = ("#1b6ca8", "#d1495b", "#2a9d5c", "#8e5ea2", "#c98a1b", "#5b6770")
WIDTH, HEIGHT, MARGIN, GAP, LEGEND = 380.0, 240.0, 56.0, 40.0, 260.0


def draw_curves(panels: Mapping[str, Mapping[str, Points]], *, across: str) -> str:
    """One panel beside the other, the same curves in each, and one legend below.

    Args:
        panels: title to curves by name, each a sequence of (x, y).
        across: what the horizontal axis counts.
    """
    names = list(next(iter(panels.values())))
    total = max(len(panels) * (WIDTH + MARGIN) + GAP, MARGIN + LEGEND * min(3, len(names)))
    bottom = HEIGHT + 90 + 18 * ((len(names) + 2) // 3)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total:g} {bottom:g}" font-family="sans-serif" '
        'font-size="12" role="img">',
        f'<rect width="{total:g}" height="{bottom:g}" fill="white"/>',
    ]
    for place, (title, curves) in enumerate(panels.items()):
        parts += _panel(MARGIN + place * (WIDTH + MARGIN), 36.0, title, curves, across)
    for place, name in enumerate(names):
        x, y = MARGIN + place % 3 * LEGEND, HEIGHT + 92 + place // 3 * 18
        parts.append(f'<path d="M{x:g} {y - 4:g}h24" {_stroke(place)}/>')
        parts.append(f'<text x="{x + 30:g}" y="{y:g}">{name}</text>')
    return "\n".join([*parts, "</svg>\n"])


def _panel(left: float, top: float, title: str, curves: Mapping[str, Points], across: str) -> list[str]:
    points = [point for curve in curves.values() for point in curve]
    lowest, highest = min(y for _, y in points), max(y for _, y in points)
    first, last = min(x for x, _ in points), max(x for x, _ in points)

    def at(x: float, y: float) -> tuple[float, float]:
        return (
            left + WIDTH * (x - first) / ((last - first) or 1),
            top + HEIGHT * (highest - y) / ((highest - lowest) or 1),
        )

    parts = [f'<text x="{left:g}" y="{top - 14:g}" font-weight="bold">{title}</text>']
    for part in range(5):
        value = lowest + (highest - lowest) * part / 4
        _, y = at(first, value)
        parts.append(f'<path d="M{left:g} {y:.1f}h{WIDTH:g}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 6:g}" y="{y + 4:.1f}" text-anchor="end">{value:.3f}</text>')
        step = first + (last - first) * part / 4
        x, _ = at(step, lowest)
        parts.append(f'<text x="{x:.1f}" y="{top + HEIGHT + 18:g}" text-anchor="middle">{step:g}</text>')
    parts.append(f'<text x="{left + WIDTH / 2:g}" y="{top + HEIGHT + 34:g}" text-anchor="middle">{across}</text>')
    for place, curve in enumerate(curves.values()):
        line = " ".join("{:.1f},{:.1f}".format(*at(x, y)) for x, y in curve)
        parts.append(f'<polyline points="{line}" fill="none" {_stroke(place)}/>')
    return parts


def _stroke(place: int) -> str:
    """A colour of its own; where there are more curves than colours, dashed the second time."""
    dashes = ' stroke-dasharray="7 4"' if place >= len(COLOURS) else ""
    return f'stroke="{COLOURS[place % len(COLOURS)]}" stroke-width="2.5"{dashes}'
