"""Times against sizes on logarithmic axes, as an SVG picture that needs no library to make or to look at."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

__all__ = ["draw_log_log"]

Points = Sequence[tuple[float, float]]

COLOURS = ("#1b6ca8", "#d1495b", "#2a9d5c", "#8e5ea2", "#c98a1b", "#5b6770")
LEFT, TOP, WIDTH, HEIGHT = 64.0, 40.0, 460.0, 280.0


def draw_log_log(title: str, across: str, curves: Mapping[str, Points]) -> str:
    """One panel of curves with a legend below.

    Args:
        title: above the panel.
        across: what the horizontal axis counts; the vertical one is milliseconds.
        curves: by name, points (size, milliseconds), all above 0.
    """
    points = [point for curve in curves.values() for point in curve]
    first, last = _decades([x for x, _ in points])
    lowest, highest = _decades([y for _, y in points])

    def at(x: float, y: float) -> tuple[float, float]:
        right = (math.log10(x) - first) / (last - first)
        up = (math.log10(y) - lowest) / (highest - lowest)
        return LEFT + WIDTH * right, TOP + HEIGHT * (1 - up)

    bottom = TOP + HEIGHT
    height = bottom + 60 + 18 * len(curves)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 30:g} {height:g}" '
        'font-family="sans-serif" font-size="12" role="img">',
        f'<rect width="{LEFT + WIDTH + 30:g}" height="{height:g}" fill="white"/>',
        f'<text x="{LEFT:g}" y="22" font-size="14" font-weight="bold">{title}</text>',
    ]
    for power in range(first, last + 1):
        x, _ = at(10.0**power, 10.0**lowest)
        parts.append(f'<path d="M{x:.1f} {TOP:g}V{bottom:g}" stroke="#ddd"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 16:g}" text-anchor="middle">{_number(power)}</text>')
    for power in range(lowest, highest + 1):
        _, y = at(10.0**first, 10.0**power)
        parts.append(f'<path d="M{LEFT:g} {y:.1f}h{WIDTH:g}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 6:g}" y="{y + 4:.1f}" text-anchor="end">{_number(power)}</text>')
    parts.append(f'<text x="{LEFT + WIDTH:g}" y="{bottom + 34:g}" text-anchor="end">{across}</text>')
    parts.append(f'<text x="{LEFT - 6:g}" y="{TOP - 8:g}" text-anchor="end">ms</text>')
    for place, (name, curve) in enumerate(curves.items()):
        colour = COLOURS[place % len(COLOURS)]
        places = [at(x, y) for x, y in curve]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        parts.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
        y = bottom + 54 + 18 * place
        parts.append(f'<path d="M{LEFT:g} {y - 4:g}h24" stroke="{colour}" stroke-width="2.5"/>')
        parts.append(f'<text x="{LEFT + 30:g}" y="{y:g}">{name}</text>')
    return "\n".join([*parts, "</svg>\n"])


def _decades(values: Sequence[float]) -> tuple[int, int]:
    """The powers of ten around the values, at least one decade."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return low, max(high, low + 1)


def _number(power: int) -> str:
    return f"{10**power:,}" if 0 <= power <= 5 else f"1e{power}"
