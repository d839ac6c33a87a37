"""A report as one HTML file that needs nothing else: no network, no other file."""

from __future__ import annotations

import os
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from rankwise.files import write_whole
from rankwise.report.content import Figure, Report

__all__ = ["render_report", "write_report", "write_text"]


def write_report(path: str | os.PathLike[str], report: Report) -> Path:
    """Write a report; either the whole file appears or what was there before stays.

    Args:
        path: of the HTML file. Its folder must exist.
        report: what to show.

    Returns:
        The path.
    """
    return write_text(path, render_report(report))


def write_text(path: str | os.PathLike[str], text: str) -> Path:
    """Write a text file; either the whole file appears or what was there before stays.

    Args:
        path: of the file. Its folder must exist.
        text: what to write, in UTF-8.

    Returns:
        The path.
    """
    target = Path(path)
    write_whole(target, text.encode())
    return target


def render_report(report: Report) -> str:
    """The page as text. Everything that comes from data is escaped.

    Example:
        >>> page = render_report(Report("A title", "1 < 2", "", ()))
        >>> "1 &lt; 2" in page
        True
    """
    environment = Environment(
        loader=PackageLoader("rankwise.report", "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.tests["figure"] = lambda block: isinstance(block, Figure)
    has_figures = any(isinstance(block, Figure) for section in report.sections for block in section.blocks)
    script = Markup(get_plotlyjs()) if has_figures else ""  # noqa: S704 (the library itself, nothing from data)
    return environment.get_template("template.html.j2").render(report=report, plotly=script)
