"""Importance of each column, as a figure and a table."""

from __future__ import annotations

from rankwise.problems.importance import Importance
from rankwise.report.content import Axis, Figure, Panel, Section, Series, Table
from rankwise.report.plots import axis, plain

__all__ = ["importance_section"]

DRAWN = 20
LISTED = 100
LONGEST = 15  # characters of a name beside the figure


def importance_section(importance: Importance | None) -> list[Section]:
    """Return one section, or none where no importance was measured."""
    if importance is None:
        return []
    cells = importance.table()
    rows = list(zip(cells["column"], cells["importance"], cells["smallest"], cells["largest"], strict=True))
    listed = tuple((name, *(f"{number:.4f}" for number in numbers)) for name, *numbers in rows[:LISTED])
    more = "" if len(rows) <= LISTED else f" The first {LISTED} of {len(rows):,} columns; importance.csv has all."
    table = Table(
        ("column", f"drop of {importance.metric}", "smallest", "largest"),
        listed,
        caption=f"{importance.definition}{more}",
    )
    text = (
        "How much worse does the ranking get if one column tells nothing? Its values are shuffled among the rows, all "
        "else stays. About 0: the model does without it. Columns that say the same share their importance, so that "
        "each alone may look useless. It says what this model uses, not what causes the label."
    )
    return [Section("Which columns matter", text, (_figure(importance, rows[:DRAWN]), table))]


def _figure(importance: Importance, rows: list[tuple[str, float, float, float]]) -> Figure:
    series = [Series("", (0.0, 0.0), (-0.7, len(rows) - 0.4), 7, "dot")]
    for row, (_, mean, low, high) in enumerate(rows):
        at = float(row)
        bar = (0.0, 0.0, mean, mean, 0.0)
        series.append(Series("", plain(bar), (at - 0.25, at + 0.25, at + 0.25, at - 0.25, at - 0.25), 1))
        series.append(Series("", plain([low, high]), (at, at), 6))
        series.append(Series("", plain([mean]), (at,), 1, shape="dots"))
    panel = Panel(
        axis(
            f"drop of {importance.metric} when the column is shuffled",
            [0.0, *(each for row in rows for each in row[1:])],
        ),
        # The first on top.
        Axis("", len(rows) - 0.4, -0.7, tuple((float(row), _short(name)) for row, (name, *_) in enumerate(rows))),
        tuple(series),
    )
    best = ", ".join(f"{name} {mean:.3f}" for name, mean, *_ in rows[:5])
    columns = len(importance.columns)
    return Figure(
        (panel,),
        alt=f"Drop of {importance.metric} when a column is shuffled, largest first: {best}.",
        caption=f"Bars: the mean over {importance.drops.shape[1]} shuffles. Lines: from the smallest to the largest of "
        f"them.{'' if columns <= DRAWN else f' The first {DRAWN} of {columns:,} columns.'}",
        height=60 + 34 * len(rows),
        numbers=False,
    )


def _short(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"
