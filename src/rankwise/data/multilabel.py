"""Examples with many labels each, and the text format of the extreme classification repository."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from rankwise.data.files import LineBlock, Progress, bad_line, check_file, is_finite_number, read_line_blocks
from rankwise.data.parts import Batch, require_labels
from rankwise.data.sparse import SparseRows
from rankwise.data.tokens import TokenRows
from rankwise.extras import require

__all__ = ["SparsePart", "cut_multilabel", "read_extreme", "sparse_rows"]

LINE = "`label,label index:value index:value ...`"


@dataclass(frozen=True)
class SparsePart(Dataset[Batch]):
    """N examples with D features, most of them 0, and any number of L labels each.

    Attributes:
        features: N rows of D numbers; or N texts, words by number in order.
        targets: N rows of L, 1 for the labels that an example has; None if the labels are not given.
        feature_names, label_names: of the columns; None if they have none.
    """

    features: SparseRows | TokenRows
    targets: SparseRows | None
    feature_names: tuple[str, ...] | None = None
    label_names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.targets is not None and len(self.targets) != len(self.features):
            raise ValueError(f"labels: expected those of {len(self.features)} examples, got {len(self.targets)}")

    @property
    def labels(self) -> SparseRows:
        """Return the labels; raise an error if they are not given."""
        return require_labels(self.targets)

    @property
    def output_names(self) -> tuple[str, ...] | None:
        """Return the names of the columns of scores: the labels."""
        return self.label_names

    def __len__(self) -> int:
        return len(self.features)

    def __getitem__(self, index: int) -> Batch:
        return self.__getitems__([index])

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        rows = torch.as_tensor(indices, dtype=torch.int64)
        return Batch(self.features.dense(rows), self.labels.dense(rows), rows, rows)

    def take(self, rows: Tensor) -> SparsePart:
        """Return these examples only, in this order."""
        targets = None if self.targets is None else self.targets.take(rows)
        return replace(self, features=self.features.take(rows), targets=targets)

    def join(self, other: SparsePart) -> SparsePart:
        """Return the examples of this part and then those of another, which has the same features and labels."""
        targets = None if self.targets is None else self.targets.join(other.labels)
        features = self.features.join(other.features)  # type: ignore[arg-type]
        return replace(self, features=features, targets=targets)


def cut_multilabel(data: SparsePart, *, shares: Sequence[float], seed: int) -> list[SparsePart]:
    """Cut examples at random into pieces of these shares, which must add up to 1.

    Example:
        >>> rows = SparseRows(torch.arange(11), torch.zeros(10, dtype=torch.int64), torch.ones(10), width=2)
        >>> [len(piece) for piece in cut_multilabel(SparsePart(rows, rows), shares=(0.7, 0.3), seed=0)]
        [7, 3]
    """
    if min(shares) <= 0 or abs(sum(shares) - 1) > 1e-6:
        raise ValueError(f"shares: expected positive numbers that add up to 1, got {tuple(shares)}")
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed))
    ends = [round(float(end) * len(data)) for end in np.cumsum(shares)[:-1]]
    return [data.take(rows.sort().values) for rows in order.tensor_split(ends)]


def read_extreme(path: str | Path, *, on_progress: Progress | None = None) -> SparsePart:
    """Read the sparse text format of the extreme classification repository.

    The first line holds the numbers of examples, features and labels; every other line the labels of an example,
    separated by commas (perhaps none: the line begins with a blank then), and its features; all count from 0. A first
    line with 0 labels says that the labels are not given.

    Args:
        path: the file, plain or compressed by gzip or xz.
        on_progress: called with the share of the file that has been read.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "train.txt")
        ...     _ = path.write_text("2 4 3\\n0,2 1:0.5 3:2\\n 0:1\\n")
        ...     data = read_extreme(path)
        >>> data.features.dense().tolist(), data.labels.dense().tolist()
        ([[0.0, 0.5, 0.0, 2.0], [1.0, 0.0, 0.0, 0.0]], [[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    """
    path = check_file(path)
    sizes: tuple[int, int, int] | None = None
    columns: list[NDArray[np.int64]] = []
    values: list[NDArray[np.float32]] = []
    counts: list[NDArray[np.int64]] = []
    labels: list[NDArray[np.int64]] = []
    label_counts: list[NDArray[np.int64]] = []
    for block in read_line_blocks(path, on_progress=on_progress):
        if sizes is None:
            head, _, text = block.text.partition(b"\n")
            sizes = _sizes(path, head)
            block = LineBlock(text, block.first_line + 1)
        sparse, of_rows = _parse_block(path, block, sizes)
        columns.append(sparse.indices.astype(np.int64))
        values.append(sparse.data)
        counts.append(np.diff(sparse.indptr).astype(np.int64))
        labels.append(np.array([label for row in of_rows for label in row], dtype=np.int64))
        label_counts.append(np.array([len(row) for row in of_rows], dtype=np.int64))
    if sizes is None:
        raise ValueError(f"{path}: expected the numbers of examples, features and labels, got nothing")
    rows = sum(map(len, counts))
    if rows != sizes[0]:
        raise ValueError(f"{path}: expected {sizes[0]} examples, as its first line says, got {rows}")
    features = sparse_rows(np.concatenate(counts), np.concatenate(columns), np.concatenate(values), sizes[1])
    if not sizes[2]:
        return SparsePart(features, None)
    all_labels = np.concatenate(labels)
    ones = np.ones(len(all_labels), dtype=np.float32)
    return SparsePart(features, sparse_rows(np.concatenate(label_counts), all_labels, ones, sizes[2]))


def sparse_rows(
    counts: NDArray[np.int64], columns: NDArray[np.int64], values: NDArray[np.float32], width: int
) -> SparseRows:
    """Return rows from the number of entries of each, and the entries themselves."""
    starts = np.concatenate([np.zeros(1, dtype=np.int64), counts.cumsum()])
    return SparseRows(torch.from_numpy(starts), torch.from_numpy(columns), torch.from_numpy(values), width)


def _sizes(path: Path, head: bytes) -> tuple[int, int, int]:
    fields = head.split()
    if len(fields) != 3 or not all(field.isdigit() and 0 < len(field) < 15 for field in fields):
        bad_line(path, 1, "three whole numbers: examples, features, labels", head)
    examples, features, labels = map(int, fields)
    return examples, features, labels


def _parse_block(path: Path, block: LineBlock, sizes: tuple[int, int, int]) -> tuple[Any, list[tuple[float, ...]]]:
    require("reading this format", ("sklearn",), extra="data")
    from sklearn.datasets import load_svmlight_file

    try:
        sparse, labels = load_svmlight_file(
            BytesIO(block.text), dtype=np.float32, zero_based=True, multilabel=True, n_features=sizes[1]
        )
    except (ValueError, OverflowError, IndexError):
        _find_bad_line(path, block, sizes)
    lines = sum(1 for _, line in block.lines() if line.strip())
    known = all(0 <= label < sizes[2] and label == int(label) for row in labels for label in row)
    different = all(len(set(row)) == len(row) for row in labels)
    if not (known and different and len(labels) == lines and np.isfinite(sparse.data).all()):
        _find_bad_line(path, block, sizes)
    return sparse, labels


def _find_bad_line(path: Path, block: LineBlock, sizes: tuple[int, int, int]) -> NoReturn:
    """Raise the error of the first bad line of a block that is known to hold one: slow, and only then."""
    for number, line in block.lines():
        fields = line.split()
        if fields and b":" not in fields[0]:
            seen = set()
            for label in fields.pop(0).split(b","):
                if not label.isdigit() or int(label) >= sizes[2] or int(label) in seen:
                    known = f"different labels from 0 to {sizes[2] - 1}" if sizes[2] else "no label"
                    bad_line(path, number, f"{LINE} with {known}", label)
                seen.add(int(label))
        last = -1
        for field in fields:
            index, _, value = field.partition(b":")
            if not index.isdigit() or not last < int(index) < sizes[1]:
                bad_line(path, number, f"{LINE} with increasing indices from {last + 1} to {sizes[1] - 1}", field)
            if not is_finite_number(value):
                bad_line(path, number, f"a finite number (float32) as feature {index.decode()}", field)
            last = int(index)
    raise ValueError(f"{path}, line {block.first_line} or later: expected {LINE}, got something else")
