"""A report as one HTML file that needs nothing else: no network, no other file, no program."""

from __future__ import annotations

import os
import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from rankwise.files import write_whole
from rankwise.report.content import Figure, Gallery, Listing, Report, Tables
from rankwise.report.drawing import draw, numbers_table

__all__ = ["render_report", "versions", "write_report", "write_text"]


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
    """Write a text file atomically: on an error, an earlier file is unchanged.

    Args:
        path: path of the file. Its folder must exist.
        text: its content, written in UTF-8.

    Returns:
        The path.
    """
    target = Path(path)
    # A name of a file may hold what is no text; it is shown as it can be.
    write_whole(target, text.encode(errors="replace"))
    return target


def render_report(report: Report) -> str:
    """The page as text. Everything that comes from data is escaped.

    Example:
        >>> page = render_report(Report("A title", "1 < 2", "", ()))
        >>> "1 &lt; 2" in page
        True
    """
    return _template().render(report=report).lstrip()


@cache
def _template() -> Template:
    """Return the template of a report, compiled once."""
    environment = Environment(
        loader=PackageLoader("rankwise.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for name, kind in (("figure", Figure), ("gallery", Gallery), ("listing", Listing), ("tables", Tables)):
        environment.tests[name] = lambda block, kind=kind: isinstance(block, kind)
    environment.filters.update(draw=draw, numbers=numbers_table)
    return environment.get_template("template.html.j2")


def versions(*names: str) -> str:
    """Those of Python, rankwise and the distributions named."""
    from rankwise import __version__

    versions = [f"Python {platform.python_version()}", f"rankwise {__version__}"]
    return ", ".join([*versions, *(f"{name} {_version(name)}" for name in names)])


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"
