"""COCO's average precision of boxes: ranked by score, right if the overlap with a true box is large enough."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from rankwise.checks import check_finite
from rankwise.deprecation import renamed_argument
from rankwise.metrics._evaluate import Evaluation
from rankwise.metrics.bootstrap import draw_items, interval
from rankwise.registry import nearest

__all__ = ["BOX_METRICS", "BoxTable", "box_thresholds", "check_box_metrics", "evaluate_boxes", "right_boxes"]

# By numpy, because torch rounds some of these numbers differently, which decides boxes exactly on a threshold.
_OVERLAPS = torch.from_numpy(np.linspace(0.5, 0.95, 10))
_RECALLS = torch.from_numpy(np.linspace(0.0, 1.0, 101))
_ANY, _SMALL, _LARGE = (0.0, 1e10), 32.0**2, 96.0**2
_CELLS = 2**22


@dataclass(frozen=True)
class _BoxMetric:
    summary: str
    overlaps: tuple[int, ...] = tuple(range(10))
    areas: tuple[float, float] = _ANY


BOX_METRICS = {
    "ap": _BoxMetric("average precision at overlaps of .5, .55, ... .95, the mean of the ten"),
    "ap50": _BoxMetric("average precision at an overlap of .5", (0,)),
    "ap75": _BoxMetric("average precision at an overlap of .75", (5,)),
    "ap-small": _BoxMetric("as ap, of objects of less than 32 x 32 pixels", areas=(0.0, _SMALL)),
    "ap-medium": _BoxMetric("as ap, of objects of 32 x 32 to 96 x 96 pixels", areas=(_SMALL, _LARGE)),
    "ap-large": _BoxMetric("as ap, of objects of more than 96 x 96 pixels", areas=(_LARGE, 1e10)),
}
PER_IMAGE = "ap per image"


class BoxTable(NamedTuple):
    """Table of the boxes of many images.

    Attributes:
        image: (n,) index of the image of each box; label: (n,) its class 0 .. C-1.
        corners: (n, 4) left, top, right and bottom edge in pixels.
        score: (n,) scores of predicted boxes.
        ignored: (n,) true boxes that count neither as missed nor as wrong; None if there are none.
    """

    image: Tensor
    label: Tensor
    corners: Tensor
    score: Tensor | None = None
    ignored: Tensor | None = None

    def take(self, rows: Tensor) -> BoxTable:
        """Return some of the boxes, by a mask (n,) or by indices."""
        score, ignored = (None if column is None else column[rows] for column in (self.score, self.ignored))
        return BoxTable(self.image[rows], self.label[rows], self.corners[rows], score, ignored)


def check_box_metrics(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names; refuse those that are no metrics of boxes."""
    for name in names:
        if name not in BOX_METRICS:
            raise ValueError(f"unknown metric of boxes {name!r}{nearest(name, BOX_METRICS)}")
    return tuple(names)


@renamed_argument("found", "predicted", removed_in="0.3")
def evaluate_boxes(
    predicted: BoxTable,
    truth: BoxTable,
    metrics: Sequence[str] = ("ap", "ap50", "ap75"),
    *,
    images: int,
    classes: Sequence[str],
    most: int = 100,
    confidence: float = 0.95,
    bootstrap: int = 1000,
    seed: int = 0,
) -> Evaluation:
    """Compute COCO's average precision of predicted boxes.

    For each class the predicted boxes of all images are ranked by score. A box is right if its intersection over union
    with a true box of its class and image reaches the threshold, and no better box is matched with that one. Precision,
    made monotone in recall, is averaged over the recalls 0, .01, ... 1. The metric is the mean over classes; classes
    without a true box are left out. The values equal those of pycocotools.

    Args:
        predicted: predicted boxes with scores; truth: the true boxes. Both in pixels of the original images.
        metrics: names, see `BOX_METRICS`.
        images: number of images, including those without boxes; classes: names of the classes.
        most: largest number of boxes per class and image; those of highest score count.
        confidence: level of the intervals; bootstrap: number of replicates, each with images drawn with replacement; 0
            gives no intervals; seed: seed of the replicates.

    Returns:
        An `Evaluation` of the whole data set. Besides the metrics `means` has the first metric of each class, and "ap
        per image", the mean over images of the first metric on each image alone. Only it has a value for each
        image, in `per_query`, for paired comparisons.

    Example:
        >>> true = BoxTable(torch.tensor([0, 0]), torch.tensor([0, 0]), torch.tensor([[0., 0, 9, 9], [20, 0, 29, 9]]))
        >>> seen = BoxTable(true.image, true.label, true.corners + torch.tensor([[0.], [5]]), torch.tensor([.9, .3]))
        >>> result = evaluate_boxes(seen, true, ["ap50"], images=1, classes=["cell"], bootstrap=0)
        >>> round(result.means["ap50"], 4)
        0.505
    """
    names = check_box_metrics(metrics)
    if not names:
        raise ValueError("metrics: expected at least one metric, got none")
    assert predicted.score is not None
    check_finite("score", predicted.score)
    matched = {areas: _Matched(predicted, truth, images, len(classes), areas, most) for areas in _areas(names)}
    weights = torch.ones(1, images, dtype=torch.float64)
    whole = {name: _of(matched, name, weights)[0] for name in names}
    first = names[0]
    per_image = matched[BOX_METRICS[first].areas].per_image(BOX_METRICS[first].overlaps)
    by_class = whole[first].tolist()
    means = {name: float(values.nanmean()) for name, values in whole.items()}
    means.update({f"{first} {name}": value for name, value in zip(classes, by_class, strict=True)})
    means[PER_IMAGE] = float(per_image.nanmean())
    intervals: dict[str, tuple[float, float]] = {}
    if bootstrap and images > 1:
        random = np.random.default_rng(seed)
        drawn = torch.cat(list(draw_items(images, bootstrap, random)))
        for name in names:
            replicates = _of(matched, name, drawn)
            intervals[name] = interval(replicates.nanmean(1), confidence)
            if name == first:
                for index, word in enumerate(classes):
                    intervals[f"{name} {word}"] = interval(replicates[:, index], confidence)
    absent = int(whole[first].isnan().sum())
    return Evaluation(
        means=means,
        intervals={name: bounds for name, bounds in intervals.items() if bounds[0] == bounds[0]},
        per_query={PER_IMAGE: per_image},
        query_ids=torch.arange(images),
        skipped={**dict.fromkeys(means, absent), PER_IMAGE: int(per_image.isnan().sum())},
        tied=0.0,
        definitions=_definitions(names, classes, most, absent),
        confidence=confidence,
    )


def box_thresholds(predicted: BoxTable, truth: BoxTable, *, images: int, classes: int, most: int = 100) -> Tensor:
    """Compute the score threshold of each class (C,) with the best F1 at an overlap of .5.

    Scores of a model that was trained to rank are no probabilities, so there is no natural threshold. Compute it on
    other images than those to be evaluated. It is infinite for a class without a true box or a right one.

    Args:
        predicted, truth, most: see `evaluate_boxes`; images, classes: numbers of images and classes.
    """
    matched = _Matched(predicted, truth, images, classes, _ANY, most)
    label = matched.groups % classes
    thresholds = []
    for number in range(classes):
        own = label == number
        seen = matched.seen[own]
        scores, order = matched.scores[own][seen].sort(descending=True, stable=True)
        hits = matched.right[own, 0][seen][order].double().cumsum(0)
        ranks = torch.arange(1, len(hits) + 1, dtype=torch.float64)
        f1 = 2 * hits / (ranks + matched.counted[own].sum())
        any_right = len(f1) > 0 and bool(f1.max() > 0)
        thresholds.append(float(scores[int(f1.argmax())]) if any_right else float("inf"))
    return torch.tensor(thresholds, dtype=torch.float64)


def right_boxes(predicted: BoxTable, truth: BoxTable, *, images: int, classes: int, most: int = 100) -> Tensor:
    """Return the mask (n,) of predicted boxes that are right at an overlap of .5, as in `evaluate_boxes`.

    Args:
        predicted, truth, most: see `evaluate_boxes`; images, classes: numbers of images and classes.

    Example:
        >>> none, box = torch.tensor([0]), torch.tensor([[0., 0, 9, 9]])
        >>> twice = BoxTable(none.repeat(2), none.repeat(2), box.repeat(2, 1), torch.tensor([1., 2]))
        >>> true = BoxTable(none, none, box)
        >>> right_boxes(twice, true, images=1, classes=1)
        tensor([False,  True])
    """
    matched = _Matched(predicted, truth, images, classes, _ANY, most)
    right = torch.zeros(len(predicted.image), dtype=torch.bool)
    right[matched.rows[matched.seen]] = matched.right[:, 0][matched.seen]
    return right


def _definitions(names: Sequence[str], classes: Sequence[str], most: int, absent: int) -> dict[str, str]:
    end = f"the mean over classes; at most {most} boxes of a class in an image; {absent} classes without a box left out"
    told = {name: f"{BOX_METRICS[name].summary}, as COCO has it; {end}" for name in names}
    told.update({f"{names[0]} {word}": f"{names[0]} of the class {word!r} alone" for word in classes})
    return {**told, PER_IMAGE: f"{names[0]} of each image alone, the mean over images with boxes"}


def _areas(names: Sequence[str]) -> set[tuple[float, float]]:
    return {BOX_METRICS[name].areas for name in names}


def _of(matched: dict[tuple[float, float], _Matched], name: str, weights: Tensor) -> Tensor:
    """Compute a metric of each class for R weightings of the images, (R, C); NaN for classes without a true box."""
    metric = BOX_METRICS[name]
    return matched[metric.areas].per_class(metric.overlaps, weights)


class _Matched:
    """Matches of predicted and true boxes at each overlap, padded per group: the boxes of one class in one image.

    `right` and `wrong` (G, T, D) are sorted by score, `counted` (G,) is the number of true boxes that count, `rows`
    (G, D) the row of each predicted box in its table.
    """

    def __init__(
        self, predicted: BoxTable, truth: BoxTable, images: int, classes: int, areas: tuple[float, float], most: int
    ) -> None:
        self.images, self.classes = images, classes
        assert predicted.score is not None
        order = torch.argsort(predicted.score.double(), descending=True, stable=True)
        group = predicted.image[order] * classes + predicted.label[order]
        true_group = truth.image * classes + truth.label
        ignored = torch.zeros_like(true_group, dtype=torch.bool) if truth.ignored is None else truth.ignored
        self.groups = torch.cat([group, true_group]).unique()
        group_index, true_index = (torch.searchsorted(self.groups, each) for each in (group, true_group))
        seen, index = _pad_groups(group_index, len(self.groups), most)
        # Boxes that count come before those that are ignored, which match only if no other does.
        own_area = _area(truth.corners.double())
        excluded = ignored | (own_area < areas[0]) | (own_area > areas[1])
        true_order = torch.argsort(excluded.long(), stable=True)
        true_seen, true_rows = _pad_groups(true_index[true_order], len(self.groups), None)
        corners = predicted.corners[order].double()
        self.scores = predicted.score[order].double()[index]
        self.rows = order[index]
        self.right, self.wrong = _match(
            corners[index],
            seen,
            truth.corners.double()[true_order][true_rows],
            true_seen,
            excluded[true_order][true_rows],
            ignored[true_order][true_rows],
            areas,
        )
        self.seen = seen
        self.counted = torch.zeros(len(self.groups), dtype=torch.float64)
        self.counted.index_add_(0, true_index, (~excluded).double())

    def per_class(self, overlaps: Sequence[int], weights: Tensor) -> Tensor:
        """Compute the mean AP over overlaps of each class, (R, C), with images weighted by `weights` (R, N)."""
        label, image = self.groups % self.classes, self.groups // self.classes
        columns = []
        for number in range(self.classes):
            own = (label == number).nonzero().squeeze(1)
            counted = weights[:, image[own]] @ self.counted[own]
            seen = self.seen[own]
            scores = self.scores[own][seen]
            order = torch.argsort(scores, descending=True, stable=True)
            of_image = image[own][:, None].expand(seen.shape)[seen][order]
            values = torch.zeros(len(weights), dtype=torch.float64)
            for overlap in overlaps:
                right, wrong = (each[own, overlap][seen][order] for each in (self.right, self.wrong))
                # A box that matches an ignored true box is neither right nor wrong.
                some = right | wrong
                values += _interpolated(right[some], of_image[some], weights, counted) / len(overlaps)
            columns.append(torch.where(counted > 0, values, torch.nan))
        return torch.stack(columns, 1)

    def per_image(self, overlaps: Sequence[int]) -> Tensor:
        """Compute AP of each image alone, (N,), the mean over classes and overlaps; NaN without a true box."""
        right, wrong = (each[:, list(overlaps)].double() for each in (self.right, self.wrong))
        values = _average_precision(right.cumsum(2), wrong.cumsum(2), self.counted[:, None]).mean(1)
        has = self.counted > 0
        image = self.groups // self.classes
        total, count = torch.zeros(2, self.images, dtype=torch.float64)
        total.index_add_(0, image[has], values[has])
        count.index_add_(0, image[has], torch.ones_like(values[has]))
        return torch.where(count > 0, total / count, torch.nan)


def _pad_groups(group: Tensor, groups: int, most: int | None) -> tuple[Tensor, Tensor]:
    """Pad the rows of each group, at most `most`, to (G, D); return the mask and the indices of the rows."""
    by_group = torch.argsort(group, stable=True)
    counts = torch.bincount(group, minlength=groups)
    starts = counts.cumsum(0) - counts
    width = int(counts.max()) if len(counts) else 0
    columns = torch.arange(width if most is None else min(width, most))
    mask = columns < counts[:, None]
    return mask, by_group[torch.where(mask, starts[:, None] + columns, 0)] if len(group) else mask.long()


def _match(
    predicted: Tensor,
    seen: Tensor,
    true: Tensor,
    true_seen: Tensor,
    excluded: Tensor,
    crowd: Tensor,
    areas: tuple[float, float],
) -> tuple[Tensor, Tensor]:
    """Match predicted boxes (G, D) in order of score; return masks (G, T, D) of right and of wrong ones."""
    shape = (len(seen), len(_OVERLAPS), seen.shape[1])
    right, wrong = torch.zeros(shape, dtype=torch.bool), torch.zeros(shape, dtype=torch.bool)
    for rows in _blocks(len(seen), len(_OVERLAPS) * max(1, true_seen.shape[1])):
        overlap = _overlaps(predicted[rows], true[rows], crowd[rows]).masked_fill(~true_seen[rows][:, None], -1)
        # An overlap equal to a threshold passes it despite rounding.
        thresholds = _OVERLAPS.clamp_max(1 - 1e-10)[None, :, None]
        taken = torch.zeros(len(overlap), len(_OVERLAPS), true_seen.shape[1], dtype=torch.bool)
        outside = _outside(predicted[rows], areas)
        for box in range(seen.shape[1]):
            here = overlap[:, box][:, None]
            free = (here >= thresholds) & (~taken | crowd[rows][:, None]) & seen[rows][:, box, None, None]
            chosen, hit = _best(here, free & ~excluded[rows][:, None])
            other, grazed = _best(here, free & excluded[rows][:, None])
            grazed &= ~hit
            right[rows, :, box] = hit
            wrong[rows, :, box] = ~hit & ~grazed & (seen[rows][:, box] & ~outside[:, box])[:, None]
            if true_seen.shape[1]:
                taken.scatter_(2, chosen[..., None], hit[..., None] | taken.gather(2, chosen[..., None]))
                taken.scatter_(2, other[..., None], grazed[..., None] | taken.gather(2, other[..., None]))
    return right, wrong


def _blocks(rows: int, cells: int) -> Iterator[slice]:
    step = max(1, _CELLS // cells)
    for start in range(0, rows, step):
        yield slice(start, start + step)


def _best(overlap: Tensor, free: Tensor) -> tuple[Tensor, Tensor]:
    """Return the free true box (G, T, M) of largest overlap, the last of equals, and whether there is one."""
    if not free.shape[2]:
        return free.new_zeros(free.shape[:2], dtype=torch.int64), free.new_zeros(free.shape[:2])
    last_first = torch.where(free, overlap, -1).flip(2)
    return free.shape[2] - 1 - last_first.argmax(2), free.any(2)


def _overlaps(predicted: Tensor, true: Tensor, crowd: Tensor) -> Tensor:
    """Return the intersection over union of all pairs in a group, (G, D, M); for crowds over the predicted box."""
    low = torch.maximum(predicted[:, :, None, :2], true[:, None, :, :2])
    high = torch.minimum(predicted[:, :, None, 2:], true[:, None, :, 2:])
    shared = (high - low).clamp_min(0).prod(3)
    own = _area(predicted)[:, :, None]
    union = torch.where(crowd[:, None], own, own + _area(true)[:, None] - shared)
    return shared / union.clamp_min(torch.finfo(union.dtype).tiny)


def _outside(corners: Tensor, areas: tuple[float, float]) -> Tensor:
    area = _area(corners)
    return (area < areas[0]) | (area > areas[1])


def _area(corners: Tensor) -> Tensor:
    return (corners[..., 2:] - corners[..., :2]).prod(-1)


def _interpolated(right: Tensor, image: Tensor, weights: Tensor, counted: Tensor) -> Tensor:
    """Compute AP of boxes (n,), sorted by score, for R weightings of their images, (R,)."""
    values = []
    for rows in _blocks(len(weights), max(1, len(right))):
        drawn = weights[rows][:, image]
        hits = (drawn * right).cumsum(1)
        # Precision is highest right after a match, so only those positions are evaluated.
        hits, seen = hits[:, right], drawn.cumsum(1)[:, right]
        values.append(_average_precision(hits, seen - hits, counted[rows]))
    return torch.cat(values)


def _average_precision(hits: Tensor, misses: Tensor, counted: Tensor) -> Tensor:
    """Compute the mean over 101 recalls of the best precision at that recall or more; (..., n) to (...).

    `hits` and `misses` are cumulative.
    """
    recall = hits / counted.clamp_min(torch.finfo(torch.float64).tiny)[..., None]
    precision = hits / (hits + misses).clamp_min(torch.finfo(torch.float64).tiny)
    if not precision.shape[-1]:
        return torch.zeros(precision.shape[:-1], dtype=torch.float64)
    best = precision.flip(-1).cummax(-1).values.flip(-1)
    wanted = _RECALLS.expand(*recall.shape[:-1], -1).contiguous()
    index = torch.searchsorted(recall.contiguous(), wanted)
    padded = torch.nn.functional.pad(best, (0, 1))
    return padded.gather(-1, index).mean(-1)
