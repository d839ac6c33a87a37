"""Access to the lists of a trained model for reports, some at a time, with names and pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from rankwise.metrics import Evaluation

__all__ = [
    "Box",
    "Drawing",
    "Embedding",
    "Inspection",
    "SeenLists",
    "inspect_items",
    "some_classes",
    "spread_over",
]


class SeenLists(NamedTuple):
    """Some lists as a model ranks them.

    Attributes:
        scores: (B, L); labels: (B, L) above 0 is relevant.
        mask: (B, L) False where there is no item; None if there is one everywhere.
    """

    scores: Tensor
    labels: Tensor
    mask: Tensor | None = None


@dataclass(frozen=True)
class Box:
    """A frame around something in a picture: its sides as shares of the picture, a caption, and whether it is right."""

    left: float
    top: float
    right: float
    bottom: float
    caption: str
    correct: bool | None = None


@dataclass(frozen=True)
class Drawing:
    """A picture, uint8 (C, H, W), with a caption and frames in it, for tasks that find things in pictures."""

    picture: Tensor
    caption: str
    boxes: tuple[Box, ...] = ()


@dataclass(frozen=True)
class Embedding:
    """The vectors behind the lists of a retrieval problem, for a map of them.

    Attributes:
        vectors: (Q, d) of the queries, of length 1; labels: (Q,) their classes.
        among: (L, d) vectors of the items, in the order of the columns that `Inspection.look` gives.
        class_name: the name of a class.
    """

    vectors: Tensor
    labels: Tensor
    among: Tensor
    class_name: Callable[[int], str]


@dataclass(frozen=True)
class Inspection:
    """A model on one part of the data: the figures, and ways to look at any of its lists.

    The lists are numbered as in `evaluation.per_query`, the items of a list by their column in what `look` gives.

    Attributes:
        evaluation: the metrics.
        list_word, item_word: what a list and an item are called, in the singular ("query", "document").
        curve: "precision" (against recall) or "position" (NDCG of the first so many), whichever the task is judged by.
        look: the lists with these numbers (B,).
        list_name, item_name: what a list, and an item of a list, is called.
        list_picture, item_picture: what it looks like, uint8 (C, H, W); None where there are no pictures.
        relevant: (Q,) how many relevant items each list has, if some may not be among those scored (objects that a
            detector missed); None counts those scored.
        drawings: pictures with frames in them, if the problem has any.
        scores: (N,) of all rows, for problems that score rows one by one.
        embedding: the vectors, for problems that compare vectors.
    """

    evaluation: Evaluation
    list_word: str
    item_word: str
    curve: str
    look: Callable[[Tensor], SeenLists]
    list_name: Callable[[int], str]
    item_name: Callable[[int, int], str]
    list_picture: Callable[[int], Tensor] | None = None
    item_picture: Callable[[int, int], Tensor] | None = None
    relevant: Tensor | None = None
    drawings: tuple[Drawing, ...] = ()
    scores: Tensor | None = None
    embedding: Embedding | None = None

    def metric_by_list(self, metric: str) -> str:
        """Return `metric` if it has a value per list, else the first that has."""
        return metric if metric in self.evaluation.per_query else next(iter(self.evaluation.per_query))


def inspect_items(
    evaluation: Evaluation,
    scores: Tensor,
    labels: Tensor,
    query_ids: Tensor | None,
    *,
    list_word: str,
    item_word: str,
    curve: str,
    query_names: Sequence[str] | None = None,
    row_name: Callable[[int], str] = lambda row: f"row {row + 1}",
) -> Inspection:
    """Inspect rows with a score each, in lists by `query_ids` (one list if None); `row_name` says what a row is called.

    Lists are called by their id, or by `query_names[id]`.
    """
    ids = torch.zeros(len(scores), dtype=torch.int64) if query_ids is None else query_ids
    # In the order of the ids, as the evaluation has them.
    _, number, counts = ids.unique(return_inverse=True, return_counts=True)
    rows_of = number.argsort(stable=True).split(counts.tolist())

    def look(numbers: Tensor) -> SeenLists:
        chosen = [rows_of[number] for number in numbers.tolist()]
        rows = torch.nn.utils.rnn.pad_sequence(chosen, batch_first=True, padding_value=-1)
        return SeenLists(scores[rows], labels[rows], rows >= 0)

    def list_name(number: int) -> str:
        query = int(evaluation.query_ids[number])
        return f"{list_word} {query if query_names is None else query_names[query]}"

    return Inspection(
        evaluation,
        list_word,
        item_word,
        curve,
        look,
        list_name=list_name,
        item_name=lambda number, column: row_name(int(rows_of[number][column])),
        scores=scores,
    )


def spread_over(count: int, wanted: int) -> Tensor:
    """Return at most `wanted` of the numbers 0 .. count - 1, evenly spread.

    Example:
        >>> spread_over(10, 4).tolist(), spread_over(3, 4).tolist()
        ([0, 3, 6, 9], [0, 1, 2])
    """
    if count <= wanted:
        return torch.arange(count)
    return torch.linspace(0, count - 1, wanted, dtype=torch.float64).round().long()


def some_classes(labels: Tensor, rows: int) -> Tensor:
    """Return at most `rows` rows, of some whole classes, evenly spread; of two classes in part where they are
    larger.
    """
    classes, counts = labels.unique(return_counts=True)
    wanted = max(2, rows // max(1, int(counts.double().mean())))
    chosen = torch.isin(labels, classes[spread_over(len(classes), wanted)]).nonzero().squeeze(1)
    return chosen[spread_over(len(chosen), rows)]
