"""Lists given by their sizes in a file beside the data, as LightGBM (.query) and XGBoost (.group) have it."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from rankwise.data.files import bad_line, read_text

__all__ = ["find_group_file", "query_ids_beside", "read_group_sizes"]

ENDINGS = (".query", ".group")


def find_group_file(path: str | Path) -> Path | None:
    """Return the file of list sizes beside a data file: its whole name with `.query` or `.group` added; None if
    none.
    """
    path = Path(path)
    return next((file for ending in ENDINGS if (file := path.with_name(path.name + ending)).exists()), None)


def read_group_sizes(path: str | Path) -> Tensor:
    """Return the sizes of the lists, one whole number a line: the first 27 rows are the first list, and so on.

    Returns:
        (Q,) int64.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "train.csv.query")
        ...     _ = path.write_text("2\\n3\\n")
        ...     read_group_sizes(path)
        tensor([2, 3])
    """
    path = Path(path)
    sizes = []
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        if not line.strip():
            continue
        if not (line.strip().isascii() and line.strip().isdigit() and 0 < int(line) < 2**40):
            bad_line(path, number, "the number of rows of a list, at least 1", repr(line))
        sizes.append(int(line))
    return torch.tensor(sizes, dtype=torch.int64)


def query_ids_beside(path: Path, rows: int, query_ids: Tensor | None) -> Tensor | None:
    """Return the list of each row: `query_ids` from the data itself, or 0, 1, 2, ... from the sizes in the file beside
    it.

    Where both exist they must cut the rows in the same way.
    """
    sizes_file = find_group_file(path)
    if sizes_file is None:
        return query_ids
    sizes = read_group_sizes(sizes_file)
    if int(sizes.sum()) != rows:
        raise ValueError(
            f"{sizes_file}: expected sizes that add up to the {rows} rows of {path}, got {int(sizes.sum())}"
        )
    if query_ids is None:
        return torch.repeat_interleave(torch.arange(len(sizes)), sizes)
    own = query_ids.unique_consecutive(return_counts=True)[1]
    if not torch.equal(own, sizes):
        raise ValueError(
            f"{sizes_file}: expected the {len(own)} lists that the query ids in {path} make, got {len(sizes)} others; "
            "remove the one that is wrong"
        )
    return query_ids
