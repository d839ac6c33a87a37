"""Sections of the report of a run: learners that were mixed, how much each column matters, and running estimates beside
their exact values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rankwise.problems.importance import Importance
from rankwise.report.content import Axis, Figure, Panel, Section, Series, Table
from rankwise.report.plots import axis, curve, plain, powers_axis
from rankwise.training import History

__all__ = ["importance_section", "memory_section", "mix_section"]

DRAWN = 20
LISTED = 100
LONGEST = 15  # characters of a name beside the figure
WORDS = {
    "V": "scores of the relevant items, as quantiles",
    "mu": "mean score of the relevant items",
    "u": "ranks of relevant items, smoothed",
    "lambda": "score that separates the first k items",
}


def mix_section(settings: Mapping[str, Any], loss: str) -> list[Section]:
    """Return one section about the learners that were mixed, or none where none were.

    Args:
        settings: chosen by `Problem.complete_model`.
        loss: the name of the loss that the first learner was trained with.
    """
    if "alone" not in settings:
        return []
    alone, shares = settings["alone"], settings["shares"]
    first = next(iter(alone))
    table = Table(
        ("learner", f"{settings['measure']} alone", "weight"),
        tuple((name, f"{value:.4f}", f"{shares[name]:.2f}") for name, value in alone.items()),
        caption=f"alone: on rows that it did not learn from. {first}: trained with {loss}. weight: of its score, on "
        "a common scale, in the sum.",
        strong=max(range(len(alone)), key=lambda row: list(alone.values())[row]),
    )
    rival = "network, cross entropy"
    text = "Several learners were trained, and their scores of rows that they did not learn from decided the mix."
    if rival in alone:
        won = "did better" if alone[first] > alone[rival] else "did not do better"
        text += f" The {first}, trained with {loss}, {won} by itself than the one trained with cross entropy."
    return [Section("What the model is made of", text, (table,))]


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
    return [Section("Which columns matter", text, (_drop_figure(importance, rows[:DRAWN]), table))]


def _drop_figure(importance: Importance, rows: list[tuple[str, float, float, float]]) -> Figure:
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


def memory_section(history: History) -> list[Section]:
    """Return one section, or none where nothing was checked."""
    names = list(dict.fromkeys(check["name"] for check in history.estimates))
    if not names:
        return []
    blocks: list[Figure | Table] = []
    rows = []
    for name in names:
        checks = [check for check in history.estimates if check["name"] == name]
        seen = [check for check in checks if check["known"]]
        if not seen:
            rows.append((name, "-", "-", "-", f"0 of {checks[-1]['checked']:,}"))
            continue
        last = seen[-1]
        numbers = (f"{last['mean_true']:.3g}", f"{last['mean_remembered']:.3g}", f"{last['error']:.2g}")
        rows.append((name, *numbers, f"{last['known']:,} of {last['checked']:,}"))
        blocks.append(_estimate_figure(name, seen, last))
    table = Table(
        ("memory", "true mean", "remembered", "typical error", "known"),
        tuple(rows),
        caption=f"{'; '.join(f'{name}: {_words(name)}' for name in names)}. At the last check, on some whole lists of "
        "the training data. typical error: root mean square. known: lists (for u: items) that the loss has met at all. "
        "The truth is measured on the model as it is used; in training, dropout and batch normalisation make scores a "
        "little different, so a small steady gap is normal.",
    )
    return [
        Section(
            "What the loss remembers",
            "A batch holds a few items only, so the loss keeps running estimates of what it cannot see. They are worth "
            "something only if they follow the truth while the weights move. If they lag behind, raise the update rate "
            "or lower the learning rate.",
            (table, *blocks),
        )
    ]


def _estimate_figure(name: str, seen: list[dict[str, Any]], last: dict[str, Any]) -> Figure:
    steps = [check["step"] for check in seen]
    truth, memory = ([check[key] for check in seen] for key in ("mean_true", "mean_remembered"))
    over_time = Panel(
        axis("step", [0, max(steps)], low=0),
        axis("mean over what was checked", [*truth, *memory]),
        (
            curve(steps, truth, "true", (6, "dot"), markers=True),
            curve(steps, memory, "remembered", (1, "solid"), markers=True),
        ),
        title=f"{name}, along the training",
    )
    panels = [over_time]
    pairs = list(zip(last["true"], last["remembered"], strict=True))
    if len(pairs) > 1:
        numbers = [number for pair in pairs for number in pair]
        wide = min(numbers) > 0 and max(numbers) > 30 * min(numbers)
        sides = [powers_axis(title, numbers) if wide else axis(title, numbers) for title in ("true", "remembered")]
        panels.append(
            Panel(
                sides[0],
                sides[1],
                (
                    Series("as it should be", _ends(sides[0]), _ends(sides[0]), 7, "dash"),
                    Series("one number", plain(last["true"]), plain(last["remembered"]), 1, shape="dots"),
                ),
                title=f"{name}, one by one",
            )
        )
    return Figure(
        tuple(panels),
        alt=f"{_words(name)}: at the last check {memory[-1]:.3g} on average is remembered, {truth[-1]:.3g} is true.",
        caption=f"{name}: {_words(name)}. "
        + ("One by one: dots on the dashed line are remembered exactly." if len(panels) > 1 else ""),
        height=240,
    )


def _words(name: str) -> str:
    return WORDS[name.partition(" ")[0]]


def _ends(axis: Axis) -> tuple[float, float]:
    return axis.low, axis.high
