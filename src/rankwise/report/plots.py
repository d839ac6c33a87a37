"""Curves, bands and panels, as Plotly takes them."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["Look", "band", "curve", "log_axis", "panel_axes", "panel_titles"]

# (colour, dash): a line is told apart by its dash too, for readers who see no colours.
Look = tuple[str, str]

SOLID = "solid"


def curve(
    x: ArrayLike,
    y: ArrayLike,
    name: str,
    look: Look,
    *,
    markers: bool = False,
    panel: int = 1,
    hover: str = "%{y:.2f}",
) -> dict[str, Any]:
    """A line; one name has one entry in the legend, however many panels it is in."""
    colour, dash = look
    return {
        "x": _plain(x),
        "y": _plain(y),
        "name": escape(name, quote=False),
        "mode": "lines+markers" if markers else "lines",
        "line": {"color": colour, "dash": dash, "width": 3 if dash == SOLID else 2},
        "marker": {"color": colour, "size": 8},
        "hovertemplate": hover,
        "legendgroup": name,
        "showlegend": panel == 1,
        **_place(panel),
    }


def band(x: ArrayLike, low: ArrayLike, high: ArrayLike, name: str, look: Look, *, panel: int = 1) -> dict[str, Any]:
    """A tinted area between two lines; it belongs to the curve of the same name."""
    along = _plain(x)
    return {
        "x": [*along, *reversed(along)],
        "y": [*_plain(high), *reversed(_plain(low))],
        "mode": "lines",
        "line": {"width": 0},
        "fill": "toself",
        "fillcolor": look[0],
        "opacity": 0.16,
        "hoverinfo": "skip",
        "legendgroup": name,
        "showlegend": False,
        **_place(panel),
    }


def log_axis(title: str, ticks: Sequence[float], *, margin: float = 1.1) -> dict[str, Any]:
    """A logarithmic axis with the ticks given."""
    return {
        "title": {"text": title},
        "type": "log",
        "range": [float(np.log10(min(ticks) / margin)), float(np.log10(max(ticks) * margin))],
        "tickvals": list(ticks),
        "ticktext": [f"{tick:g}" for tick in ticks],
    }


def panel_axes(count: int, x: dict[str, Any], y: dict[str, Any]) -> dict[str, Any]:
    """The same axes for panels in a row; what is up and down is named once."""
    axes: dict[str, Any] = {"grid": {"rows": 1, "columns": count, "pattern": "independent", "xgap": 0.18, "ygap": 0.3}}
    for panel in range(1, count + 1):
        suffix = "" if panel == 1 else str(panel)
        axes[f"xaxis{suffix}"] = x
        axes[f"yaxis{suffix}"] = y if panel == 1 else {**y, "title": {"text": ""}}
    return axes


def panel_titles(names: Sequence[str]) -> list[dict[str, Any]]:
    """A name above each panel."""
    return [
        {
            "text": f"<b>{escape(name, quote=False)}</b>",
            "xref": f"x{'' if panel == 0 else panel + 1} domain",
            "yref": f"y{'' if panel == 0 else panel + 1} domain",
            "x": 0,
            "xanchor": "left",
            "y": 1.02,
            "yanchor": "bottom",
            "showarrow": False,
        }
        for panel, name in enumerate(names)
    ]


def _place(panel: int) -> dict[str, str]:
    return {} if panel == 1 else {"xaxis": f"x{panel}", "yaxis": f"y{panel}"}


def _plain(values: ArrayLike) -> list[float]:
    """Five significant digits are more than a plot can show."""
    return [float(f"{value:.5g}") for value in np.asarray(values, dtype=np.float64).tolist()]
