"""Text collections with graded judgements: Cranfield, and the pages of numpy's documentation.

Cranfield has 1,400 abstracts, 225 queries, grades 4 (a complete answer) to 1 (of minimal interest). A page of numpy
answers the question that its own first lines are (grade 2), and in part those of the pages that name it (grade 1).
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import torch

from benchmarks.find import find_data
from rankwise.data import Judgements, TextCollection

__all__ = ["COLLECTIONS", "FOLDS", "folds", "load", "load_numpy"]

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


def load_numpy() -> TextCollection:
    """Return the pages of numpy's functions and classes that name others under "See Also"."""
    pages = {name: (getattr(np, name).__doc__ or "").partition("See Also") for name in sorted(np.__all__)}
    pages = {name: page for name, page in pages.items() if len(page[0]) > 400 and page[2]}
    rows = [(name, name, 2.0) for name in pages]
    rows += [
        (name, other, 1.0)
        for name, (_, _, more) in pages.items()
        for other in pages
        if other != name and re.search(rf"\b{other}\b", more[:400])
    ]
    names = tuple(pages)
    return TextCollection(
        {name: page[0][200:] for name, page in pages.items()},
        {name: " ".join(page[0][:200].split()) for name, page in pages.items()},
        Judgements(
            names,
            torch.tensor([names.index(row[0]) for row in rows]),
            tuple(row[1] for row in rows),
            torch.tensor([row[2] for row in rows]),
        ),
    )


COLLECTIONS = {"cranfield": load, "numpy": load_numpy}


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
