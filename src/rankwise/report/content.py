"""What a report is made of. The template shows any of these in order; it knows nothing of a particular run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Figure", "Report", "Section", "Table"]


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
class Figure:
    """A plot.

    Attributes:
        traces, layout: as Plotly takes them. A colour may be "var(--series-1)" to "var(--series-5)", "var(--ink)" or
            "var(--muted)": it then follows the reader's light or dark setting. Panels of a `grid` of one row stand one
            below the other on a phone.
        alt: what it shows, for readers who cannot see it.
        caption: how to read it.
        height: in pixels.
    """

    traces: tuple[dict[str, Any], ...]
    layout: dict[str, Any]
    alt: str
    caption: str = ""
    height: int = 380


@dataclass(frozen=True)
class Section:
    """A heading, a paragraph, then tables and figures."""

    title: str
    text: str
    blocks: tuple[Table | Figure, ...] = ()


@dataclass(frozen=True)
class Report:
    """A page.

    Attributes:
        title: of the page.
        headline: what was seen, in one sentence.
        summary: a short paragraph below it.
        sections: in order.
        facts: what was run, as pairs of a name and a text.
    """

    title: str
    headline: str
    summary: str
    sections: tuple[Section, ...]
    facts: tuple[tuple[str, str], ...] = ()
