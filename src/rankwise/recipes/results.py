"""What a finished run leaves for people and for `rankwise compare`."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

from torch import Tensor

from rankwise.data import Part
from rankwise.files import write_whole
from rankwise.metrics import Evaluation
from rankwise.training import History

__all__ = ["QUERIES", "RESULT", "SCORES", "read_queries", "write_results", "write_scores"]

RESULT, QUERIES, SCORES = "test.json", "test-queries.csv", "test-scores.csv"


def write_results(folder: Path, test: Evaluation, history: History, scores: tuple[Tensor, Part] | None) -> None:
    """Means and intervals, values per query, and scores per item if there are any."""
    write_whole(folder / QUERIES, _table(("query", *test.per_query), _queries(test)))
    if scores is not None:
        write_scores(folder / SCORES, *scores)
    summary: dict[str, Any] = {
        **test.to_dict(),
        "best_step": history.best_step,
        "steps": len(history.losses),
        "stopped_early": history.stopped_early,
        "seconds": round(history.seconds, 2),
    }
    # Last: a run is over when this file is there.
    write_whole(folder / RESULT, json.dumps(summary, indent=2).encode())


def write_scores(path: Path, scores: Tensor, part: Part) -> None:
    """One row per item: its score, its label, and the list it belongs to if there are lists."""
    write_whole(path, _scores(scores, part))


def read_queries(folder: Path) -> dict[str, list[Any]]:
    """The columns of the values per query of a finished run."""
    path = folder / QUERIES
    if not path.is_file():
        raise ValueError(f"{folder}: expected the folder of a finished run, found no {QUERIES} in it")
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    names = list(rows[0]) if rows else ["query"]
    return {name: [row[name] if name == "query" else float(row[name]) for row in rows] for name in names}


def _queries(test: Evaluation) -> list[tuple[Any, ...]]:
    values = [column.tolist() for column in test.per_query.values()]
    return list(zip(test.query_ids.tolist(), *values, strict=True))


def _scores(scores: Tensor, part: Part) -> bytes:
    columns = {"score": [f"{score:.9g}" for score in scores.double().tolist()], "label": part.labels.tolist()}
    if part.query_ids is not None:
        columns["query"] = part.query_ids.tolist()
    return _table(tuple(columns), list(zip(*columns.values(), strict=True)))


def _table(columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue().encode()
