"""The file of results: a row for each encoder, method, fold, seed and query; and tables of it."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rankwise.files import write_whole
from rankwise.metrics import compare

__all__ = ["METRICS", "read_rows", "table", "write_rows"]

METRICS = ("ndcg@10", "map", "recall@100")


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file of results; none if there is no file."""
    return list(csv.DictReader(path.open())) if path.is_file() else []


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write the file of results anew."""
    with io.StringIO(newline="") as text:
        writer = csv.DictWriter(text, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_whole(path, text.getvalue().encode())


def table(rows: list[dict[str, Any]], encoder: str, rivals: Callable[[list[str]], dict[str, str]]) -> str:
    """Return means over queries, of means over seeds, and differences of NDCG@10.

    Args:
        rows: of the file.
        encoder: which of them.
        rivals: from the methods, best first, to those that others are compared with, by the name of the column.
    """
    found: dict[str, dict[str, dict[str, list[float]]]] = {}
    for row in rows:
        if row["encoder"] == encoder:
            own = found.setdefault(row["method"], {}).setdefault(row["query"], {name: [] for name in METRICS})
            for name in METRICS:
                own[name].append(float(row[name]))
    queries = sorted(set.intersection(*(set(each) for each in found.values())))

    def column(method: str, metric: str) -> Tensor:
        lists = [found[method][query][metric] for query in queries]
        return torch.tensor([sum(each) / len(each) for each in lists], dtype=torch.float64)

    methods = sorted(found, key=lambda method: float(column(method, "ndcg@10").mean()), reverse=True)
    others = rivals(methods)
    lines = [f"| method | seeds | {' | '.join(METRICS)} | {' | '.join(f'minus {name}' for name in others)} |"]
    lines.append("|---|" + "--:|" * (1 + len(METRICS) + len(others)))
    for method in methods:
        seeds = len({str(row["seed"]) for row in rows if row["encoder"] == encoder and row["method"] == method})
        cells = [str(seeds), *(f"{float(column(method, name).mean()):.4f}" for name in METRICS)]
        for other in others.values():
            compared = compare(column(method, "ndcg@10"), column(other, "ndcg@10"))
            low, high = compared.interval
            cells.append("" if method == other else f"{compared.difference:+.4f} ({low:+.4f}, {high:+.4f})")
        lines.append(f"| {method} | {' | '.join(cells)} |")
    return f"{len(queries)} queries.\n\n" + "\n".join(lines)
