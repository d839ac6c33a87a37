"""Anchors: the boxes a detector starts from, and how its outputs move them. Needs `pip install "rankwise[vision]"`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rankwise.checks import check_positive

__all__ = ["Anchors", "make_anchors", "moved"]

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
