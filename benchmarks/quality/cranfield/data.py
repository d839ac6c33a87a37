"""The Cranfield collection: 1,400 abstracts, 225 queries, grades 4 (a complete answer) to 1 (of minimal interest)."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import torch

from benchmarks.find import find_data
from rankwise.data import Judgements, TextCollection

__all__ = ["folds", "load"]

FOLDS = 5


def load() -> TextCollection:
    """Return documents and queries by name, and the judgements of all queries."""
    folder = find_data("cranfield")
    documents = {str(number): text for number, text in enumerate(_records(folder / "cran.all.1400"), start=1)}
    queries = {str(number): text for number, text in enumerate(_records(folder / "cran.qry"), start=1)}
    rows = [line.split() for line in (folder / "cranqrel").read_text().splitlines() if line.strip()]
    # In the file 1 is the best grade, 4 the last, and -1 is not relevant.
    grades = torch.tensor([max(0, 5 - int(code)) if int(code) > 0 else 0 for _, _, code in rows], dtype=torch.float32)
    names = tuple(queries)
    return TextCollection(
        documents,
        queries,
        Judgements(names, torch.tensor([int(row[0]) - 1 for row in rows]), tuple(row[1] for row in rows), grades),
    )


def folds(queries: int) -> list[list[int]]:
    """Return the numbers of the queries of each fold."""
    order = np.random.default_rng(0).permutation(queries)
    return [sorted(each.tolist()) for each in np.array_split(order, FOLDS)]


def _records(path: Path) -> list[str]:
    """Return the text of each record; of a document that has none, its title."""
    records: list[dict[str, list[str]]] = []
    field = ""
    for line in path.read_text(errors="replace").splitlines():
        if line.startswith(".I "):
            records.append({})
        elif re.fullmatch(r"\.[TABW]\s*", line):
            field = line[1]
        else:
            records[-1].setdefault(field, []).append(line)
    return [" ".join(record.get("W") or record.get("T") or []).strip() for record in records]
