"""Figures as shapes: where everything stands, in thousandths of the panel, for the template to write down.

Shapes are stretched to whatever width a reader has, text is not: it is set beside them by the browser. So a figure is
as readable on a phone as on paper, and needs no program to be drawn.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rankwise.report.content import Axis, Figure, Panel, Series, Table
from rankwise.report.plots import thinned

__all__ = ["DrawnPanel", "Key", "Mark", "draw", "numbers_table"]

FULL = 1000.0
MOST_ROWS = 30
# From back to front.
KINDS = ("fill", "line", "bar", "square", "mark")


@dataclass(frozen=True)
class Mark:
    """A shape: `kind` is "line", "fill", "bar" (a range at a dot), "mark" (a dot) or "square"; `path` is SVG, `text` in
    words."""

    kind: str
    path: str
    colour: int
    dash: str
    text: str = ""


@dataclass(frozen=True)
class Tick:
    """A tick: how far along the axis, in percent, and its text."""

    at: float
    text: str


@dataclass(frozen=True)
class DrawnPanel:
    """A panel ready to be written: shapes, ticks, and texts at dots (left %, top %, text)."""

    panel: Panel
    marks: tuple[Mark, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    labels: tuple[tuple[float, float, str], ...]

    @property
    def y_width(self) -> int:
        """Return the number of characters of the longest tick at the side."""
        return max((len(tick.text) for tick in self.y_ticks), default=0)


@dataclass(frozen=True)
class Key:
    """An entry of the legend."""

    name: str
    colour: int
    dash: str
    shape: str


def draw(figure: Figure) -> tuple[list[DrawnPanel], list[Key]]:
    """Return the panels and the legend of a figure; a single series has no legend."""
    panels = [_draw_panel(panel) for panel in figure.panels]
    keys: dict[str, Key] = {}
    for panel in figure.panels:
        for each in panel.series:
            if each.name:
                keys.setdefault(each.name, Key(each.name, each.colour, each.dash, each.shape))
    return panels, list(keys.values()) if len(keys) > 1 else []


def numbers_table(figure: Figure) -> Table:
    """Return the data of a figure as a table; long lines are thinned to about thirty points."""
    several = len(figure.panels) > 1
    rows = []
    for number, panel in enumerate(figure.panels, start=1):
        for each in panel.series:
            for index in thinned(len(each.y), MOST_ROWS):
                at = each.x[index] if each.shape != "steps" else (each.x[index] + each.x[index + 1]) / 2
                name = each.name or panel.y.title
                where = f"{panel.title or number}: {name}" if several else name
                rows.append((where, f"{at:.4g}", f"{each.y[index]:.4g}"))
    first = figure.panels[0]
    titles = (first.x.title or "x", first.y.title or "y") if not several else ("across", "up")
    return Table(("", *titles), tuple(rows))


def _draw_panel(panel: Panel) -> DrawnPanel:
    marks, labels = [], []
    for each in panel.series:
        marks += list(_marks(each, panel))
        for index, text in enumerate(each.labels):
            labels.append((_across(panel.x, each.x[index]) / 10, _down(panel.y, each.y[index]) / 10, text))
    return DrawnPanel(
        panel,
        # Areas lie behind, dots in front.
        tuple(sorted(marks, key=lambda mark: KINDS.index(mark.kind))),
        tuple(Tick(_across(panel.x, at) / 10, text) for at, text in panel.x.ticks),
        tuple(Tick(_down(panel.y, at) / 10, text) for at, text in panel.y.ticks),
        tuple(labels),
    )


def _marks(series: Series, panel: Panel) -> Iterator[Mark]:
    look = (series.colour, series.dash)
    if series.shape == "steps":
        yield Mark("fill", _steps(series, panel) + "Z", *look)
        yield Mark("line", _steps(series, panel), *look)
        return
    along = [_across(panel.x, x) for x in series.x]
    points = [(across, _down(panel.y, y)) for across, y in zip(along, series.y, strict=True)]
    if series.low:
        low, high = ([_down(panel.y, y) for y in side] for side in (series.low, series.high))
        if "dots" in series.shape:
            for across, bottom, top in zip(along, low, high, strict=True):
                yield Mark("bar", f"M{across:.1f} {bottom:.1f}V{top:.1f}", *look)
        else:
            outline = [*zip(along, high, strict=True), *reversed(list(zip(along, low, strict=True)))]
            yield Mark("fill", _path(outline) + "Z", *look)
    if "line" in series.shape:
        yield Mark("line", _path(points), *look)
    if "dots" in series.shape or series.shape == "squares":
        for index, (across, down) in enumerate(points):
            text = f"{series.name}: {series.x[index]:.4g}, {series.y[index]:.4g}"
            kind = "square" if series.shape == "squares" else "mark"
            yield Mark(kind, f"M{across:.1f} {down:.1f}h0", *look, series.titles[index] if series.titles else text)


def _path(points: Sequence[tuple[float, float]]) -> str:
    """Return a line through the points; one without a number breaks it."""
    parts, pen = [], "M"
    for across, down in points:
        if math.isnan(across) or math.isnan(down):
            pen = "M"
            continue
        parts.append(f"{pen}{across:.1f} {down:.1f}")
        pen = "L"
    return "".join(parts)


def _steps(series: Series, panel: Panel) -> str:
    bottom = _down(panel.y, max(0.0, panel.y.low))
    points = [(_across(panel.x, series.x[0]), bottom)]
    for left, right, height in zip(series.x, series.x[1:], series.y, strict=False):
        points += [(_across(panel.x, edge), _down(panel.y, height)) for edge in (left, right)]
    return _path([*points, (_across(panel.x, series.x[-1]), bottom)])


def _across(axis: Axis, value: float) -> float:
    return FULL * _share(axis, value)


def _down(axis: Axis, value: float) -> float:
    return FULL * (1 - _share(axis, value))


def _share(axis: Axis, value: float) -> float:
    """Return the relative position on an axis, clipped a little beyond its ends."""
    if axis.log:
        low, high = math.log(axis.low), math.log(axis.high)
        value = math.log(value) if value > 0 else math.nan
    else:
        low, high = axis.low, axis.high
    if math.isnan(value):
        return value
    return min(1.5, max(-0.5, (value - low) / (high - low)))
