"""Results of using a run: scores of rows, ranked lists, detected boxes, as tensors, tables and files."""

from __future__ import annotations

import io
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import torch
from torch import Tensor

from rankwise.data import DetectionPart
from rankwise.extras import require
from rankwise.files import TABLE_SUFFIXES, write_whole
from rankwise.metrics import BoxTable

if TYPE_CHECKING:
    import polars as pl
from rankwise.runs.folder import score_columns

__all__ = ["Detections", "Predictions", "RankedLists", "write_tables"]


@dataclass(frozen=True)
class Predictions:
    """Outputs of a model, in the order of the rows of the source.

    Attributes:
        outputs: scores or probabilities (N,) or (N, C), or vectors (N, d).
        query_ids: (N,) the list of each row, if the source has lists.
        labels: (N,) if the source has labels.
        query_names: names of the lists 0, 1, 2, ... if the source calls them by text.
        row_names, output_names: N and C names, if rows (users, files) or outputs (items, labels, classes) have any.
        name: of one output: "score" or "probability".
        first_row: the number of the first row in the source.
        kept: columns of the source that were asked for.
    """

    outputs: Tensor
    query_ids: Tensor | None = None
    labels: Tensor | None = None
    query_names: tuple[str, ...] | None = None
    row_names: tuple[str, ...] | None = None
    output_names: tuple[str, ...] | None = None
    name: str = "score"
    first_row: int = 1
    kept: Mapping[str, list[Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.outputs)

    def columns(self) -> dict[str, list[Any]]:
        """Return the predictions as columns: `row` (the name, or the number from 1), the kept columns of the source,
        one column per output, `label` and `query` if known."""
        numbers = range(self.first_row, self.first_row + len(self))
        columns: dict[str, list[Any]] = {"row": list(self.row_names or numbers), **self.kept}
        if self.outputs.ndim == 1:
            further = score_columns(self.outputs, self.labels, self.query_ids, name=self.name)
            if self.query_names is not None:
                further["query"] = [self.query_names[query] for query in further["query"]]
            return columns | {name: values for name, values in further.items() if name not in columns}
        names = self.output_names
        if names is None or any(name in columns for name in names):
            names = tuple(f"output {index + 1}" for index in range(self.outputs.shape[1]))
        return columns | dict(zip(names, self.outputs.T.tolist(), strict=True))

    def ranked(self) -> dict[str, list[Any]]:
        """Return the columns with the rows of each list together, best first, and a column `rank` from 1.

        Without lists all rows are one. Rows of equal scores keep their order.
        """
        if self.outputs.ndim != 1:
            raise ValueError(f"expected one score for each row to rank by, got {self.outputs.shape[1]} outputs")
        lists = torch.zeros(len(self), dtype=torch.int64) if self.query_ids is None else self.query_ids
        _, first_seen = _in_order_of_appearance(lists)
        best_first = self.outputs.argsort(descending=True, stable=True)
        order = best_first[first_seen[best_first].argsort(stable=True)]
        sorted_lists = first_seen[order]
        starts = torch.searchsorted(sorted_lists, sorted_lists)
        ranks = (torch.arange(len(order)) - starts + 1).tolist()
        rows = order.tolist()
        sorted_columns = {name: [values[row] for row in rows] for name, values in self.columns().items()}
        return {"rank": ranks, **sorted_columns}

    def frame(self) -> pl.DataFrame:
        """Return the columns as a polars frame."""
        return _frame(self.columns())

    def write(self, path: str | Path) -> None:
        """Write the columns to a CSV, Parquet or JSON lines file."""
        write_tables(path, [self.columns()])


@dataclass(frozen=True)
class RankedLists:
    """The k best of many for each of N: items for users, or neighbours for queries.

    Attributes:
        names: N names of what the lists are for.
        items: (N, k) indices of what is ranked, best first; -1 where a list is shorter.
        item_names: names of all that is ranked.
        scores: (N, k).
        titles: of the columns of `names` and `items`.
    """

    names: tuple[str, ...]
    items: Tensor
    item_names: Sequence[str]
    scores: Tensor
    titles: tuple[str, str] = ("user", "item")

    def __len__(self) -> int:
        return len(self.names)

    def columns(self) -> dict[str, list[Any]]:
        """Return one row for each entry of each list: its list, its rank from 1, its name and its score."""
        rows, ranks = (self.items >= 0).nonzero(as_tuple=True)
        return {
            self.titles[0]: [self.names[row] for row in rows.tolist()],
            "rank": (ranks + 1).tolist(),
            self.titles[1]: [self.item_names[item] for item in self.items[rows, ranks].tolist()],
            "score": self.scores[rows, ranks].tolist(),
        }

    def frame(self) -> pl.DataFrame:
        """Return the columns as a polars frame."""
        return _frame(self.columns())

    def write(self, path: str | Path) -> None:
        """Write the columns to a CSV, Parquet or JSON lines file, or the lists as a TREC run file (.trec)."""
        if Path(path).suffix == ".trec":
            write_whole(Path(path), "".join(self._trec_lines()).encode())
        else:
            write_tables(path, [self.columns()])

    def _trec_lines(self) -> Iterator[str]:
        for query, rank, item, score in zip(*self.columns().values(), strict=True):
            if len(f"{query} {item}".split()) != 2:
                raise ValueError(f".trec: expected names without spaces, got {query!r} and {item!r}")
            yield f"{query} Q0 {item} {rank} {score!r} rankwise\n"


@dataclass(frozen=True)
class Detections:
    """Boxes that were detected in images.

    Attributes:
        boxes: with image, class, corners in pixels of the file, and score from 0 to 1.
        part: the images.
        thresholds: for each class the score from which a box is likely right, learned on the validation part.
    """

    boxes: BoxTable
    part: DetectionPart
    thresholds: tuple[float, ...]

    def __len__(self) -> int:
        return len(self.boxes.image)

    def to_coco(self) -> list[dict[str, Any]]:
        """Return the boxes as COCO's results: x, y, width, height; images by number from 1 and by file."""
        boxes, classes = self.boxes, self.part.classes
        assert boxes.score is not None
        left, top, right, bottom = boxes.corners.unbind(1)
        sides = torch.stack([left, top, right - left, bottom - top], 1).tolist()
        rows = zip(boxes.image.tolist(), boxes.label.tolist(), sides, boxes.score.tolist(), strict=True)
        return [
            {
                "image_id": image + 1,
                "file_name": self.part.truth(image).file.name,
                "category_id": label + 1,
                "category": classes[label],
                "bbox": [round(side, 2) for side in box],
                "score": round(score, 6),
            }
            for image, label, box, score in rows
        ]

    def write(self, path: str | Path) -> None:
        """Write the boxes to a JSON file in the form of COCO's results."""
        write_whole(Path(path), json.dumps(self.to_coco(), indent=1).encode())

    def draw(self, folder: str | Path) -> int:
        """Write each image as a PNG file with the boxes that reach the threshold of their class; return the number."""
        require("drawing boxes", ("torchvision", "PIL"), extra="vision")
        from PIL import Image
        from torchvision.utils import draw_bounding_boxes

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        assert self.boxes.score is not None
        needed = torch.tensor(self.thresholds, dtype=self.boxes.score.dtype)
        shown = self.boxes.take(self.boxes.score >= needed[self.boxes.label])
        assert shown.score is not None
        for number in range(len(self.part)):
            rows, file = shown.image == number, self.part.truth(number)
            image = self.part.picture(number)
            labels = shown.label[rows].tolist()
            if labels:
                factors = torch.tensor([image.shape[2] / file.width, image.shape[1] / file.height] * 2)
                scores = shown.score[rows].tolist()
                texts = [f"{self.part.classes[label]} {score:.2f}" for label, score in zip(labels, scores, strict=True)]
                colours = [COLOURS[label % len(COLOURS)] for label in labels]
                image = draw_bounding_boxes(image, shown.corners[rows] * factors, texts, colors=colours)
            buffer = io.BytesIO()
            Image.fromarray(image.permute(1, 2, 0).numpy()).save(buffer, format="PNG")
            write_whole(folder / f"{file.file.stem}.png", buffer.getvalue())
        return len(self.part)


COLOURS = ("#d62728", "#1f77b4", "#2ca02c", "#ff7f0e", "#9467bd", "#17becf")


def write_tables(path: str | Path, tables: Iterable[Mapping[str, Sequence[Any]]]) -> int:
    """Write tables of the same columns below each other to one file, whole or not at all; return the number of rows.

    Only one table is held at a time, so that what is larger than memory can be written.

    Args:
        path: .csv, .parquet or .jsonl; "-" writes CSV to the standard output.
        tables: columns by name.
    """
    require("writing predictions", ("polars",))
    if str(path) == "-":
        return _write_text(sys.stdout.buffer, tables, ".csv")
    path = Path(path)
    if path.suffix not in TABLE_SUFFIXES:
        raise ValueError(f"path: expected a name that ends with {', '.join(TABLE_SUFFIXES)}, got {path.name!r}")
    with _appearing_whole(path) as temporary:
        if path.suffix == ".parquet":
            return _write_parquet(temporary, tables)
        with open(temporary, "wb") as file:
            return _write_text(file, tables, path.suffix)


def _write_text(file: IO[bytes], tables: Iterable[Mapping[str, Sequence[Any]]], suffix: str) -> int:
    rows = 0
    for columns in tables:
        frame, buffer = _frame(columns), io.BytesIO()
        if suffix == ".csv":
            frame.write_csv(buffer, include_header=rows == 0)
        else:
            frame.write_ndjson(buffer)
        file.write(buffer.getvalue())
        rows += len(frame)
    file.flush()
    return rows


def _write_parquet(path: Path, tables: Iterable[Mapping[str, Sequence[Any]]]) -> int:
    import polars as pl

    rows = 0
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f"{path.name}.") as folder:
        pieces: list[Path] = []
        for columns in tables:
            frame = _frame(columns)
            rows += len(frame)
            pieces.append(Path(folder, f"{len(pieces)}.parquet"))
            frame.write_parquet(pieces[-1])
        # Labels of a LETOR file are whole numbers in one chunk and fractions in another.
        lazy = [pl.scan_parquet(piece, glob=False) for piece in pieces]
        pl.concat(lazy, how="vertical_relaxed").sink_parquet(path)
    return rows


@contextmanager
def _appearing_whole(path: Path) -> Iterator[Path]:
    """Yield a temporary path; rename the file to its own name only if no error is raised."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _frame(columns: Mapping[str, Sequence[Any]]) -> pl.DataFrame:
    require("writing predictions", ("polars",))
    import polars as pl

    return pl.DataFrame({name: pl.Series(name, values, strict=False) for name, values in columns.items()})


def _in_order_of_appearance(ids: Tensor) -> tuple[Tensor, Tensor]:
    """Return the distinct ids in the order they appear, and for each row the position of its id among them."""
    distinct, inverse = ids.unique(return_inverse=True)
    first = torch.full((len(distinct),), len(ids)).scatter_reduce(0, inverse, torch.arange(len(ids)), "amin")
    order = first.argsort()
    position = torch.empty_like(order)
    position[order] = torch.arange(len(order))
    return distinct[order], position[inverse]
