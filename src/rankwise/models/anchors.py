"""Anchors: the boxes a detector starts from, their moves, and their assignment to objects (ATSS)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rankwise.checks import check_count, check_positive

__all__ = ["Anchors", "Assigned", "assign_anchors", "make_anchors", "moved", "on_ignored"]

# Beyond this an exponential would overflow; torchvision's.
_WIDEST = math.log(1000 / 16)


@dataclass(frozen=True)
class Anchors:
    """The anchors of an image.

    Attributes:
        corners: (A, 4) left, top, right and bottom edge in pixels, level after level.
        levels: how many of them each level has.
    """

    corners: Tensor
    levels: tuple[int, ...]


def make_anchors(
    size: tuple[int, int],
    strides: Sequence[int],
    *,
    scale: float = 8.0,
    per_cell: int = 1,
    ratios: Sequence[float] = (1.0,),
) -> Anchors:
    """The anchors of torchvision's `AnchorGenerator` for images of one size.

    Args:
        size: height and width of the images in pixels.
        strides: pixels from cell to cell, of each level.
        scale: the side of the smallest anchor, in strides.
        per_cell: sizes in a cell, in equal steps up to twice the smallest; with `ratios` of height to width. The usual
            choices are one anchor of 8 strides in a cell (with ATSS), and 3 x 3 from 4 strides on (RetinaNet's own).

    Example:
        >>> grid = make_anchors((32, 48), (8, 16), scale=2)
        >>> grid.levels, grid.corners.shape
        ((24, 6), torch.Size([30, 4]))
    """
    from torchvision.models.detection.anchor_utils import AnchorGenerator

    check_positive("scale", scale)
    sizes = tuple(tuple(scale * stride * 2 ** (step / per_cell) for step in range(per_cell)) for stride in strides)
    generator = AnchorGenerator(sizes, (tuple(ratios),) * len(sizes))
    cells = [[-(-side // stride) for side in size] for stride in strides]
    levels = generator.grid_anchors(cells, [[torch.tensor(stride)] * 2 for stride in strides])
    return Anchors(torch.cat(levels).float(), tuple(len(level) for level in levels))


def moved(anchors: Tensor, deltas: Tensor) -> Tensor:
    """Anchors (..., 4) moved and stretched by the outputs of a detector (..., 4): corners (..., 4).

    The centre moves by the first two, in widths and heights of the anchor; the sides grow by the exponential of the
    others.

    Example:
        >>> moved(torch.tensor([0.0, 0.0, 10.0, 20.0]), torch.tensor([0.5, 0.0, 0.0, math.log(2)])).round()
        tensor([  5., -10.,  15.,  30.])
    """
    sides = anchors[..., 2:] - anchors[..., :2]
    centre = anchors[..., :2] + sides / 2 + deltas[..., :2] * sides
    half = sides * deltas[..., 2:].clamp_max(_WIDEST).exp() / 2
    return torch.cat([centre - half, centre + half], -1)


@dataclass(frozen=True)
class Assigned:
    """Targets of the anchors of B images.

    Attributes:
        positive: (B, A) anchors that should find an object; object: (B, A) which one, 0 for the others.
        counted: (B, A) False for anchors on objects that are ignored: they are neither right nor wrong.
        unmatched: how many objects have no anchor.
    """

    positive: Tensor
    object: Tensor
    counted: Tensor
    unmatched: int


@torch.no_grad()
def assign_anchors(
    anchors: Anchors, corners: Tensor, mask: Tensor, ignored: Tensor | None = None, *, candidates: int = 9
) -> Assigned:
    """Assign anchors to objects by ATSS.

    On each level, the `candidates` anchors with centres nearest to the centre of an object are its candidates. An
    object gets those whose overlap (intersection over union) is at least the mean of the candidates' overlaps plus
    their standard deviation, and whose centre lies in the object. An anchor that fits several objects is assigned to
    the one it overlaps most.

    Args:
        anchors: the A anchors of an image.
        corners: (B, M, 4) the objects of B images; mask: (B, M) False in the padding.
        ignored: (B, M) objects to ignore; anchors with half of their area on one do not count.
        candidates: number of candidates per level and object.

    Example:
        >>> from rankwise.models.anchors import make_anchors
        >>> grid = make_anchors((64, 64), (8, 16), scale=2)
        >>> assigned = assign_anchors(grid, torch.tensor([[[10.0, 10.0, 30.0, 26.0]]]), torch.tensor([[True]]))
        >>> int(assigned.positive.sum()), assigned.unmatched
        (2, 0)

    Paper: Zhang et al., Bridging the Gap Between Anchor-based and Anchor-free Detection via Adaptive Training Sample
    Selection, CVPR 2020.
    """
    check_count("candidates", candidates)
    boxes = anchors.corners.to(corners.device, corners.dtype)
    images, most = mask.shape
    wanted = mask if ignored is None else mask & ~ignored
    positive = torch.zeros(images, len(boxes), dtype=torch.bool, device=corners.device)
    chosen, counted = torch.zeros_like(positive, dtype=torch.int64), torch.ones_like(positive)
    if not most:
        return Assigned(positive, chosen, counted, 0)
    middles, centres = (boxes[:, :2] + boxes[:, 2:]) / 2, (corners[..., :2] + corners[..., 2:]) / 2
    near = _nearest(centres, middles, anchors.levels, candidates)
    overlap = _overlap(boxes[near], corners[:, :, None])
    threshold = overlap.mean(2, keepdim=True) + overlap.std(2, keepdim=True, correction=1 if near.shape[2] > 1 else 0)
    middle = middles[near]
    inside = ((middle > corners[:, :, None, :2]) & (middle < corners[:, :, None, 2:])).all(3)
    fits = (overlap >= threshold) & inside & wanted[:, :, None]
    # Flat lists of who fits whom; the best overlap wins, the first object of equals.
    image, item, candidate = fits.nonzero(as_tuple=True)
    cell = image * len(boxes) + near[image, item, candidate]
    how_much = overlap[image, item, candidate]
    best = torch.zeros(positive.numel(), dtype=overlap.dtype, device=corners.device)
    best.scatter_reduce_(0, cell, how_much, "amax")
    winner = how_much == best[cell]
    first = torch.full_like(best, most, dtype=torch.int64).scatter_reduce_(0, cell[winner], item[winner], "amin")
    positive = (first < most).view_as(positive)
    chosen = torch.where(positive, first.view_as(chosen), 0)
    if ignored is not None and bool((ignored & mask).any()):
        counted = ~(_on_ignored(boxes, corners, ignored & mask) & ~positive)
    taken = torch.zeros(images, most, dtype=torch.int64, device=corners.device)
    taken.scatter_add_(1, chosen, positive.long())
    return Assigned(positive, chosen, counted, int((wanted & (taken == 0)).sum()))


def on_ignored(boxes: Tensor, ignored: Tensor) -> Tensor:
    """(A,) which of A boxes (A, 4) have half of their area on one of the ignored objects (n, 4) of their image.

    Example:
        >>> on_ignored(torch.tensor([[0.0, 0, 4, 4], [3, 0, 7, 4]]), torch.tensor([[0.0, 0.0, 4.0, 4.0]]))
        tensor([ True, False])
    """
    return _half_on(boxes, ignored).any(0)


def _nearest(centres: Tensor, middles: Tensor, levels: tuple[int, ...], candidates: int) -> Tensor:
    """Return the indices (B, M, K) of the nearest anchors of each level."""
    nearest, start = [], 0
    for size in levels:
        distance = torch.cdist(centres.flatten(0, 1), middles[start : start + size])
        nearest.append(distance.topk(min(candidates, size), largest=False).indices + start)
        start += size
    together = torch.cat(nearest, 1)
    return together.view(*centres.shape[:2], together.shape[1])


def _overlap(left: Tensor, right: Tensor) -> Tensor:
    """Intersection over union of boxes, one by one."""
    shared = _shared(left, right)
    return shared / (_area(left) + _area(right) - shared).clamp_min(torch.finfo(shared.dtype).tiny)


def _on_ignored(boxes: Tensor, corners: Tensor, ignored: Tensor) -> Tensor:
    """(B, A) anchors with half of their area on an object that is ignored."""
    covered = torch.zeros(len(corners), len(boxes), dtype=torch.bool, device=corners.device)
    image, item = ignored.nonzero(as_tuple=True)
    return covered.index_put_((image,), _half_on(boxes, corners[image, item]), accumulate=True)


def _half_on(boxes: Tensor, corners: Tensor) -> Tensor:
    """(n, A) which of A boxes have half of their area on each of n others."""
    return _shared(boxes[None], corners[:, None]) >= _area(boxes) / 2


def _shared(left: Tensor, right: Tensor) -> Tensor:
    low = torch.maximum(left[..., :2], right[..., :2])
    return (torch.minimum(left[..., 2:], right[..., 2:]) - low).clamp_min(0).prod(-1)


def _area(boxes: Tensor) -> Tensor:
    return (boxes[..., 2:] - boxes[..., :2]).prod(-1)
