"""A map of the vectors of a retrieval run: some classes in the plane, and the neighbours of one query."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rankwise.problems.inspection import Embedding, Inspection, spread_over
from rankwise.report.content import Axis, Figure, Panel, Section, Series, Table
from rankwise.report.examples import plural
from rankwise.report.lists import lists_by_value
from rankwise.report.plots import axis, plain

__all__ = ["embedding_section", "project"]

# Five colours, each as dots and as squares.
CLASSES, COLOURS = 10, 5
POINTS = 30
NEAREST, IN_TITLE = 5, 3
# Characters of a class in the figure; the legend has the whole name.
LONGEST_NAME = 10


@dataclass(frozen=True)
class Plane:
    """The first two principal components of vectors: their mean (d,), axes (2, d), and shares of the variance."""

    mean: Tensor
    axes: Tensor
    shares: tuple[float, float]

    def of(self, vectors: Tensor) -> Tensor:
        """Return the coordinates (N, 2) of vectors (N, d)."""
        return (vectors.double() - self.mean) @ self.axes.T


def project(vectors: Tensor) -> Plane:
    """Compute the plane of the largest variance of vectors (N, d); a missing second component is 0.

    Example:
        >>> plane = project(torch.tensor([[2.0, 0.0], [-2.0, 0.0], [0.0, 1.0], [0.0, -1.0]]))
        >>> plane.axes.abs().round().int().tolist(), [round(share, 2) for share in plane.shares]
        ([[1, 0], [0, 1]], [0.8, 0.2])
    """
    wide = vectors.double()
    mean = wide.mean(0)
    _, sizes, axes = torch.linalg.svd(wide - mean, full_matrices=False)
    # The sign of a component is arbitrary: its largest number is made positive.
    axes = axes * axes.gather(1, axes.abs().argmax(1, keepdim=True)).sign()
    missing = max(0, 2 - len(axes))
    axes = torch.nn.functional.pad(axes, (0, 0, 0, missing))[:2]
    shares = torch.nn.functional.pad(sizes.square(), (0, missing)) / sizes.square().sum().clamp_min(1e-300)
    return Plane(mean, axes, (float(shares[0]), float(shares[1])))


def embedding_section(inspection: Inspection, metric: str) -> list[Section]:
    """Return the map of up to ten classes and the nearest neighbours of one query; nothing without vectors."""
    embedding = inspection.embedding
    if embedding is None:
        return []
    rows = _chosen_rows(embedding)
    plane = project(embedding.vectors[rows])
    query = _middle_query(inspection, metric, rows)
    nearest = nearest_items(inspection, torch.tensor([query]), NEAREST)
    series = [*_links(embedding, plane, query, nearest), *_points(inspection, embedding, plane, rows)]
    at = plain(plane.of(embedding.vectors[query : query + 1])[0])
    name = inspection.list_name(query)
    series.append(Series("the query", at[:1], at[1:], 6, shape="dots", titles=(name,)))
    across, up = (
        _bare(f"component {number} ({share:.0%} of the variance)", side)
        for number, share, side in zip((1, 2), plane.shares, _sides(series), strict=True)
    )
    panel = Panel(across, up, tuple(series))
    there, shown = len(embedding.labels.unique()), len(embedding.labels[rows].unique())
    hits = float((nearest_items(inspection, rows, 1).labels > 0).double().mean())
    which = "all classes" if there == shown else f"{shown} of {there:,} classes, evenly spread"
    items = plural(inspection.item_word, 2)
    figure = Figure(
        (panel,),
        alt=f"Vectors of {len(rows)} {items} of {shown} classes in the plane of their two main components; "
        f"{hits:.0%} of them have one of their own class as the nearest neighbour.",
        caption=f"{len(rows)} {items} of {which}. Point at one for its name and its nearest neighbours. Lines join the "
        f"query with the median {metric}, {name}, and its {nearest.columns.shape[1]} nearest, dashed if these are of "
        "another class. A plane keeps only a part of the distances: neighbours are those of the whole vectors.",
        height=420,
        numbers=False,
    )
    text = (
        f"How the model arranges {items}: those of a class should lie together, away from the others. "
        f"{hits:.0%} of those shown have one of their own class as the nearest neighbour."
    )
    return [Section("Map of the vectors", text, (figure, _table(inspection, query, nearest)))]


@dataclass(frozen=True)
class Neighbours:
    """The nearest items of some queries: columns, cosines and labels, (B, count) each."""

    columns: Tensor
    scores: Tensor
    labels: Tensor


def nearest_items(inspection: Inspection, rows: Tensor, count: int) -> Neighbours:
    """Return the first items of the lists with these numbers, best first."""
    seen = inspection.look(rows)
    scores = seen.scores if seen.mask is None else seen.scores.masked_fill(~seen.mask, -torch.inf)
    items = scores.shape[1] if seen.mask is None else int(seen.mask.sum(1).min())
    best, columns = scores.topk(min(count, items), 1)
    return Neighbours(columns, best, seen.labels.gather(1, columns))


def _chosen_rows(embedding: Embedding) -> Tensor:
    """Return rows of up to ten classes, of those with at least two rows where there are any, and some of each."""
    classes, counts = embedding.labels.unique(return_counts=True)
    several = classes[counts > 1]
    classes = several if len(several) > 1 else classes
    rows = [
        (embedding.labels == label).nonzero()[:, 0] for label in classes[spread_over(len(classes), CLASSES)].tolist()
    ]
    return torch.cat([each[spread_over(len(each), POINTS)] for each in rows])


def _middle_query(inspection: Inspection, metric: str, rows: Tensor) -> int:
    """Return the row of the median value of the metric among these, so that it is neither the best nor the worst."""
    order = [number for number in lists_by_value(inspection, metric).tolist() if number in set(rows.tolist())]
    return int(order[len(order) // 2]) if order else int(rows[0])


def _points(inspection: Inspection, embedding: Embedding, plane: Plane, rows: Tensor) -> list[Series]:
    """Return one series per class; a point says its name and its nearest neighbours."""
    nearest = nearest_items(inspection, rows, IN_TITLE)
    titles = []
    for row, columns, labels in zip(rows.tolist(), nearest.columns.tolist(), nearest.labels.tolist(), strict=True):
        names = (
            f"{'✓' if label > 0 else '✗'} {inspection.item_name(row, column)}"
            for column, label in zip(columns, labels, strict=True)
        )
        titles.append(f"{inspection.list_name(row)}\nnearest: {', '.join(names)}")
    at, labels = plane.of(embedding.vectors[rows]), embedding.labels[rows]
    series = []
    for number, label in enumerate(labels.unique().tolist()):
        own = (labels == label).nonzero()[:, 0].tolist()
        colour, shape = number % COLOURS + 1, "squares" if number >= COLOURS else "dots"
        name, (x, y) = embedding.class_name(label), at[own].T
        series.append(Series(name, plain(x), plain(y), colour, shape=shape, titles=tuple(titles[row] for row in own)))
        middle = plain(at[own].median(0).values)
        short = name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
        series.append(Series("", middle[:1], middle[1:], 6, shape="text", labels=(short,)))
    return series


def _links(embedding: Embedding, plane: Plane, query: int, nearest: Neighbours) -> list[Series]:
    """Return the lines from a query to its nearest items: those of its class solid, the others dashed."""
    start = plane.of(embedding.vectors[query : query + 1])
    series = []
    for name, dash, wanted in (
        ("nearest to the query, same class", "solid", nearest.labels[0] > 0),
        ("nearest to the query, another class", "dash", nearest.labels[0] <= 0),
    ):
        ends = plane.of(embedding.among[nearest.columns[0][wanted]])
        if len(ends):
            # To each of them and back.
            x, y = torch.stack([start.expand_as(ends), ends], 1).reshape(-1, 2).T
            series.append(Series(name, plain(x), plain(y), 6, dash))
    return series


def _sides(series: list[Series]) -> tuple[list[float], list[float]]:
    return [value for each in series for value in each.x], [value for each in series for value in each.y]


def _bare(title: str, values: list[float]) -> Axis:
    """Return an axis without ticks: only distances mean something here."""
    each = axis(title, values)
    return Axis(title, each.low, each.high, ())


def _table(inspection: Inspection, query: int, nearest: Neighbours) -> Table:
    items = zip(nearest.columns[0].tolist(), nearest.scores[0].tolist(), nearest.labels[0].tolist(), strict=True)
    rows = tuple(
        (f"{index}. {inspection.item_name(query, column)}", f"{score:.3f}", "✓" if label > 0 else "-")
        for index, (column, score, label) in enumerate(items, start=1)
    )
    return Table((f"nearest to {inspection.list_name(query)}", "cosine", "same class"), rows)
