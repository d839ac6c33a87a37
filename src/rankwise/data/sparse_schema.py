"""Schema of sparse examples with many labels: names and numbers of features and labels."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rankwise.data.arff import read_arff
from rankwise.data.multilabel import SparsePart, read_extreme, sparse_rows
from rankwise.data.schema import DataNote, Labels, with_tuples
from rankwise.data.sparse import SparseRows
from rankwise.data.tokens import TokenRows, is_labelled_texts, learn_vocabulary, number_words, read_labelled_texts

__all__ = ["SparseSchema", "read_multilabel"]


@dataclass(frozen=True)
class SparseSchema:
    """Features and labels of sparse examples, in the order of the model's inputs and outputs.

    Attributes:
        features, labels: D and L, their numbers.
        feature_names, label_names: their names; None if the training data had none. The features of texts are the words
            of the vocabulary; D counts padding and unknown words, too.
        longest: words after which a text is cut; None if examples are no texts.
    """

    features: int
    labels: int
    feature_names: tuple[str, ...] | None = None
    label_names: tuple[str, ...] | None = None
    longest: int | None = None

    @classmethod
    def of(cls, part: SparsePart, longest: int | None = None) -> SparseSchema:
        """Return the schema of examples to learn from; texts are cut after `longest` words."""
        return cls(part.features.width, part.labels.width, part.feature_names, part.label_names, longest)

    def read(self, source: Any, *, labels: Labels = "required") -> SparsePart:
        """Read other examples of the same form.

        Features and labels are matched by name, in any order. Features that the training data did not have are ignored
        with a `DataNote`; missing features or labels are an error that names them. Where one of the sources has no
        names, the numbers of features and labels must be equal. Examples without any label at all are unlabelled.

        Args:
            source: see `read_multilabel`.
            labels: "optional" reads unlabelled examples, too.

        Example:
            >>> examples = read_multilabel((np.eye(3), np.eye(3)[:, :2]))
            >>> SparseSchema.of(examples).read(2 * np.eye(3), labels="optional").features.dense()[0]
            tensor([2., 0., 0.])
        """
        name = str(source) if isinstance(source, str | Path) else type(source).__name__
        if self.longest is not None and not isinstance(source, SparsePart):
            part = _read_texts(source, self.longest, vocabulary=self.feature_names, labels=self.label_names)
            if part.targets is None and labels == "required":
                raise ValueError(f"{name}: expected labels, to train or to evaluate, got none")
            return part
        part = read_multilabel(source, labels=self.label_names)
        if isinstance(part.features, TokenRows):
            return part
        features = part.features.select(self._match(name, "features", part.features, part.feature_names))
        targets = part.targets if part.targets is not None and len(part.targets.values) else None
        if targets is not None:
            targets = targets.select(self._match(name, "labels", targets, part.label_names))
        elif labels == "required":
            raise ValueError(f"{name}: expected labels, to train or to evaluate, got none")
        return SparsePart(features, targets, self.feature_names, self.label_names)

    def to_json(self) -> dict[str, Any]:
        """Return the schema as plain values."""
        return asdict(self)

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors that are too large for JSON: none."""
        return {}

    @classmethod
    def from_saved(cls, values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> SparseSchema:
        """Return the schema that `to_json` describes."""
        return cls(**with_tuples(values))

    def _match(self, source: str, what: str, rows: SparseRows, names: tuple[str, ...] | None) -> Tensor:
        """Return the columns of a source in the order of this schema."""
        width, known = (self.features, self.feature_names) if what == "features" else (self.labels, self.label_names)
        if known is None or names is None:
            if rows.width != width:
                raise ValueError(
                    f"{source}: expected {width} {what}, as in the training data, because they have no names, got "
                    f"{rows.width}"
                )
            return torch.arange(width)
        index = {name: number for number, name in enumerate(names)}
        if missing := [name for name in known if name not in index]:
            raise ValueError(f"{source}: expected all {what} of the training data, got none called {_shown(missing)}")
        if extra := sorted(set(names) - set(known)):
            said = f"{source}: ignored {len(extra)} {what} that the training data did not have: {_shown(extra)}"
            warnings.warn(said, DataNote, stacklevel=4)
        return torch.tensor([index[name] for name in known], dtype=torch.int64)


def read_multilabel(
    source: Any, *, labels: tuple[str, ...] | None = None, vocabulary: int = 50_000, longest: int = 500
) -> SparsePart:
    """Read examples with many labels.

    Args:
        source: an ARFF file (Mulan, MEKA), a text file of the extreme classification repository, a file of texts with
            labels (see `read_labelled_texts`), a `SparsePart`, an array (N, D) or scipy matrix of features, or a tuple
            of features and labels (N, L), 0 or 1.
        labels: the names of the labels in an ARFF file, if they are known, see `read_arff`.
        vocabulary: the most frequent words of texts that are known.
        longest: words after which a text is cut.

    Example:
        >>> examples = read_multilabel((np.array([[0.0, 2.0], [1.0, 0.0]]), np.array([[1], [0]])))
        >>> examples.features.dense().tolist(), examples.labels.dense().tolist()
        ([[0.0, 2.0], [1.0, 0.0]], [[1.0], [0.0]])
    """
    if isinstance(source, SparsePart):
        return source
    if isinstance(source, str | Path):
        name = Path(source).name.removesuffix(".gz").removesuffix(".xz")
        if Path(name).suffix.lower() != ".arff" and is_labelled_texts(Path(source)):
            return _read_texts(source, longest, most=vocabulary)
        return read_arff(source, labels=labels) if Path(name).suffix.lower() == ".arff" else read_extreme(source)
    matrices = source if isinstance(source, tuple) else (source,)
    if not 1 <= len(matrices) <= 2 or not all(
        hasattr(each, "tocsr") or hasattr(each, "__array__") for each in matrices
    ):
        raise TypeError(
            "source: expected a path, a SparsePart, a matrix of features, or a tuple of features and labels, got "
            f"{type(source).__name__}"
        )
    features, *targets = (
        _matrix_rows(name, each) for name, each in zip(("features", "labels"), matrices, strict=False)
    )
    if targets and bool((targets[0].values != 1).any()):
        raise ValueError("labels: expected 0 and 1, got other numbers")
    return SparsePart(features, targets[0] if targets else None)


def _read_texts(
    source: Any,
    longest: int,
    *,
    most: int = 0,
    vocabulary: tuple[str, ...] | None = None,
    labels: tuple[str, ...] | None = None,
) -> SparsePart:
    """Read texts; learn the vocabulary (`most` words) and the labels, or take those that were learned before."""
    texts = read_labelled_texts(source)
    words = learn_vocabulary(texts.words, most) if vocabulary is None else vocabulary
    given = dict.fromkeys(label for own in texts.labels for label in own)
    names = tuple(sorted(given)) if labels is None else labels
    features = number_words(texts.words, words, longest)
    if not given:
        return SparsePart(features, None, words, names)
    number = {name: index for index, name in enumerate(names)}
    if extra := sorted(set(given) - set(names)):
        said = f"{source}: ignored {len(extra)} labels that the training data did not have: {_shown(extra)}"
        warnings.warn(said, DataNote, stacklevel=4)
    pairs = [(row, number[label]) for row, own in enumerate(texts.labels) for label in own if label in number]
    rows, columns = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).unbind(1)
    return SparsePart(
        features, SparseRows.of_pairs(rows, columns, height=len(features), width=len(names)), words, names
    )


def _matrix_rows(name: str, matrix: Any) -> SparseRows:
    if hasattr(matrix, "tocsr"):
        compressed = matrix.tocsr(copy=True)
        compressed.sum_duplicates()
        compressed.eliminate_zeros()
        counts, columns, values = np.diff(compressed.indptr), compressed.indices, compressed.data
    else:
        matrix = np.asarray(matrix)
        if matrix.ndim != 2:
            raise ValueError(f"{name}: expected a matrix of one row per example, got shape {matrix.shape}")
        rows, columns = matrix.nonzero()
        counts, values = np.bincount(rows, minlength=len(matrix)), matrix[rows, columns]
    with np.errstate(over="ignore"):  # what float32 cannot hold is refused below
        values = values.astype(np.float32)
    if not np.isfinite(values).all():
        raise ValueError(f"{name}: expected finite numbers (float32), got others")
    return sparse_rows(counts.astype(np.int64), columns.astype(np.int64), values, int(matrix.shape[1]))


def _shown(names: list[str]) -> str:
    return ", ".join(map(repr, names[:10])) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
