"""Elements of a report. The template shows them in order and knows nothing of a particular run."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "Axis",
    "Figure",
    "Frame",
    "Gallery",
    "Listing",
    "Panel",
    "Picture",
    "Report",
    "Section",
    "Series",
    "Strip",
    "Table",
    "Tables",
]

Numbers = tuple[float, ...]


@dataclass(frozen=True)
class Table:
    """A table of text.

    Attributes:
        columns: their heads; the first column names the row, the others are set to the right.
        rows: one cell of text per column.
        caption: how to read it.
        strong: the row to stand out, if any.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""
    strong: int | None = None


@dataclass(frozen=True)
class Tables:
    """Small tables, side by side where there is room."""

    tables: tuple[Table, ...]


@dataclass(frozen=True)
class Axis:
    """An axis from `low` to `high`, logarithmic if `log`, with ticks as (value, text)."""

    title: str
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    log: bool = False


@dataclass(frozen=True)
class Series:
    """Numbers that belong together in a plot.

    Attributes:
        name: in the legend; series of one name in several panels share an entry.
        x, y: where. With `shape` "steps" x has the edges of the bars, one more than y.
        colour: 1 to 5, 6 for ink, 7 for muted ink; each follows the reader's light or dark setting.
        dash: "solid", "dash", "dot", "dashdot" or "longdash": lines are told apart without colour, too.
        shape: "line", "dots", "squares", "line and dots", "steps" (filled bars without gaps), or "text" (labels only).
        low, high: a range around each y; shown as a tint, or as bars at dots.
        labels: a text at each dot, if any.
        titles: what a dot says when it is pointed at; without any, its name and numbers.
    """

    name: str
    x: Numbers
    y: Numbers
    colour: int = 1
    dash: str = "solid"
    shape: str = "line"
    low: Numbers = ()
    high: Numbers = ()
    labels: tuple[str, ...] = ()
    titles: tuple[str, ...] = ()


@dataclass(frozen=True)
class Panel:
    """One pair of axes and what is drawn in it."""

    x: Axis
    y: Axis
    series: tuple[Series, ...]
    title: str = ""


@dataclass(frozen=True)
class Figure:
    """One or more panels: side by side where there is room, else below each other.

    Attributes:
        panels: in order.
        alt: what it shows, for readers who cannot see it.
        caption: how to read it.
        height: of a panel, in pixels.
        numbers: whether the numbers can be opened as a table below it.
    """

    panels: tuple[Panel, ...]
    alt: str
    caption: str = ""
    height: int = 280
    numbers: bool = True


@dataclass(frozen=True)
class Frame:
    """A rectangle in a picture, its sides as shares of the picture; `verdict` is "right", "wrong" or ""."""

    left: float
    top: float
    right: float
    bottom: float
    caption: str
    verdict: str = ""


@dataclass(frozen=True)
class Picture:
    """An image that is part of the file.

    Attributes:
        source: a data URI, see `rankwise.report.examples.data_uri`.
        alt: what it shows, for readers who cannot see it.
        caption: below it.
        verdict: "right", "wrong" or "": the frame around it, with a sign that needs no colour.
        frames: rectangles in it.
        pixelated: whether its pixels are few, to be shown as they are.
    """

    source: str
    alt: str
    caption: str = ""
    verdict: str = ""
    frames: tuple[Frame, ...] = ()
    pixelated: bool = False


@dataclass(frozen=True)
class Strip:
    """A row of pictures with a title and a line of text; `query` stands apart, before the others."""

    title: str
    text: str
    pictures: tuple[Picture, ...]
    query: Picture | None = None


@dataclass(frozen=True)
class Gallery:
    """Rows of pictures; `large` for few big ones, such as drawings, instead of many small ones."""

    strips: tuple[Strip, ...]
    caption: str = ""
    large: bool = False


@dataclass(frozen=True)
class Listing:
    """Text as it is, such as a recipe, folded away behind its title."""

    title: str
    text: str


@dataclass(frozen=True)
class Section:
    """A heading, a paragraph, then what belongs to it."""

    title: str
    text: str
    blocks: tuple[Table | Tables | Figure | Gallery | Listing, ...] = ()


@dataclass(frozen=True)
class Report:
    """A page.

    Attributes:
        title: of the page.
        headline: what was seen, in one sentence.
        summary: a short paragraph below it.
        sections: in order.
        facts: what was run, as pairs of a name and a text.
        details: further texts below the facts.
    """

    title: str
    headline: str
    summary: str
    sections: tuple[Section, ...]
    facts: tuple[tuple[str, str], ...] = ()
    details: tuple[Listing, ...] = ()
