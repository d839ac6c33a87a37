"""The rows of results, kept in a CSV file as they come, and the tables made from them."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from benchmarks.quality.tabular.contenders import BASELINE, CURVE, NEURAL, OURS, Found
from benchmarks.quality.tabular.tables import FOLDS
from rankwise.problems.trials import summarise

__all__ = ["BOOSTING", "Row", "Rows", "tables"]

BOOSTING = "gradient boosting"
HEAD = ("table", "loss", "fold", "seed", "rate", "setting", "validation", "test", *(f"at_{step}" for step in CURVE))


@dataclass(frozen=True)
class Row:
    """One run; (table, loss, fold, seed) tells which."""

    table: str
    loss: str
    fold: int
    seed: int
    found: Found

    @property
    def key(self) -> tuple[str, str, int, int]:
        return self.table, self.loss, self.fold, self.seed


class Rows:
    """The rows of a CSV file; what is added is on disk at once, so an interrupted benchmark goes on where it was."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows = {row.key: row for row in _read(path)}

    def add(self, rows: Sequence[Row]) -> None:
        self.rows.update({row.key: row for row in rows})
        new = not self.path.exists()
        with self.path.open("a", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            if new:
                writer.writerow(HEAD)
            for row in rows:
                figures = (row.found.validation, row.found.test, *row.found.curve)
                writer.writerow([*row.key, row.found.rate, row.found.setting, *(f"{figure:.6f}" for figure in figures)])

    def per_fold(self, table: str, loss: str) -> list[float]:
        """Test AP of each fold, the mean over its seeds; folds not run yet are missing."""
        folds = [
            [row.found.test for row in self.rows.values() if row.key[:3] == (table, loss, fold)]
            for fold in range(FOLDS)
        ]
        return [fmean(values) for values in folds if values]

    def curve(self, table: str, loss: str) -> list[float]:
        """Validation AP at the steps of `CURVE`, the mean over all runs."""
        curves = [row.found.curve for row in self.rows.values() if row.key[:2] == (table, loss)]
        return [fmean(values) for values in zip(*curves, strict=True)]


def tables(rows: Rows, names: Sequence[str]) -> str:
    """Markdown tables: test AP, differences from cross entropy, learning curves, what was chosen."""
    losses = [*(neural.loss for neural in NEURAL), BOOSTING]
    return "\n".join(
        [
            "Test AP, with 95 % intervals (Student's t over the folds, the seeds of a fold averaged); the best network "
            "in bold:",
            "",
            *_grid("loss", names, losses, lambda table, loss: _figure(rows, table, loss)),
            "",
            "Difference from cross entropy, fold by fold:",
            "",
            *_grid(
                "loss",
                names,
                [loss for loss in losses if loss != BASELINE],
                lambda table, loss: _difference(rows, table, loss),
            ),
            "",
            f"Validation AP after {', '.join(map(str, CURVE))} steps, of the chosen candidates:",
            "",
            *_grid(
                "loss",
                names,
                losses[:-1],
                lambda table, loss: " / ".join(f"{value:.3f}" for value in rows.curve(table, loss)),
            ),
            "",
            "The candidate chosen most often:",
            "",
            *_grid("loss", names, losses, lambda table, loss: _chosen(rows, table, loss)),
            "",
            _verdict(rows, names),
        ]
    )


def _figure(rows: Rows, table: str, loss: str) -> str:
    values = rows.per_fold(table, loss)
    if not values:
        return ""
    found = summarise(values)
    text = f"**{found.mean:.3f}**" if loss == _best(rows, table) else f"{found.mean:.3f}"
    return f"{text} [{found.low:.3f}, {found.high:.3f}]"


def _difference(rows: Rows, table: str, loss: str) -> str:
    ours, theirs = rows.per_fold(table, loss), rows.per_fold(table, BASELINE)
    if not ours or len(ours) != len(theirs):
        return ""
    found = summarise([left - right for left, right in zip(ours, theirs, strict=True)])
    return f"{found.mean:+.3f} [{found.low:+.3f}, {found.high:+.3f}]"


def _chosen(rows: Rows, table: str, loss: str) -> str:
    runs = [row.found for row in rows.rows.values() if row.key[:2] == (table, loss)]
    counts = Counter(", ".join(filter(None, (f"rate {found.rate:g}", found.setting))) for found in runs)
    return "".join(f"{words} ({count} of {len(runs)})" for words, count in counts.most_common(1))


def _verdict(rows: Rows, names: Sequence[str]) -> str:
    won = [table for table in names if _best(rows, table) in OURS]
    which = ", ".join(won) or "none"
    return f"SOPRC or stable AP has the highest mean of the networks on {len(won)} of {len(names)} tables: {which}."


def _best(rows: Rows, table: str) -> str | None:
    """The network with the highest mean, if any has run."""
    means = {neural.loss: fmean(rows.per_fold(table, neural.loss) or [-1]) for neural in NEURAL}
    best = max(means, key=means.__getitem__)
    return best if means[best] >= 0 else None


def _grid(head: str, columns: Sequence[str], lines: Sequence[str], cell: Callable[[str, str], str]) -> Iterator[str]:
    yield f"| {head} | " + " | ".join(columns) + " |"
    yield "| --- |" + " --: |" * len(columns)
    for line in lines:
        yield f"| {line} | " + " | ".join(cell(column, line) for column in columns) + " |"


def _read(path: Path) -> list[Row]:
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return [_row(line) for line in csv.DictReader(file)]


def _row(line: dict[str, str]) -> Row:
    curve = tuple(float(line[f"at_{step}"]) for step in CURVE if line[f"at_{step}"])
    found = Found(float(line["rate"]), line["setting"], float(line["validation"]), float(line["test"]), curve)
    return Row(line["table"], line["loss"], int(line["fold"]), int(line["seed"]), found)
