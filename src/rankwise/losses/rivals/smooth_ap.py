"""Smooth-AP: average precision with sigmoids in place of the steps."""

from __future__ import annotations

from torch import Tensor

from rankwise.lists import Lists, PackedLists
from rankwise.losses.base import ListLoss
from rankwise.losses.links import Link
from rankwise.losses.rivals.soft_ranks import soft_ranks
from rankwise.losses.sides import split_sides
from rankwise.registry import LossRecord
from rankwise.surrogates import Sigmoid

__all__ = ["SmoothAPLoss"]


class SmoothAPLoss(ListLoss):
    """1 - AP with every comparison of two scores made smooth; the mean over the positives i of a list of

        N_i / (1 + P_i + N_i),

    P_i and N_i the sums of sigmoid((s_j - s_i) / temperature) over the other positives and over the negatives. Works
    for rows in any order and classes of any size.

    Args:
        temperature: width of the sigmoid; the paper's .01 is made for cosines.
        link: how scores come to about [-1, 1], see `AUPRCLoss`.
        lists, empty, reduction: see `ListLoss`.

    Example:
        >>> import torch
        >>> SmoothAPLoss()(torch.tensor([0.9, 0.4, 0.6, 0.1]), torch.tensor([1, 1, 0, 0]))
        tensor(0.1667)

    Paper: Brown et al., Smooth-AP: Smoothing the Path Towards Large-Scale Image Retrieval, ECCV 2020.
    """

    remembers = ()

    def __init__(
        self,
        temperature: float = 0.01,
        *,
        link: str = "scale",
        lists: str = "rows",
        empty: str = "skip",
        reduction: str = "mean",
    ) -> None:
        super().__init__(lists=lists, empty=empty, reduction=reduction)
        self.step = Sigmoid(temperature)
        self.link = Link(link)

    def per_list(self, packed: PackedLists, group_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        values, valid = self.link(packed, group_ids).map(self._block_values)
        return values, valid

    def _block_values(self, lists: Lists) -> tuple[Tensor, Tensor]:
        sides = split_sides(lists)
        above, rank = soft_ranks(lists, sides, self.step)
        return (above / rank * sides.share).sum(1), sides.valid


RECORDS = (
    LossRecord(
        name="smooth-ap",
        summary="average precision of the batch, its steps made sigmoids",
        build=SmoothAPLoss,
        role="baseline",
        paper="Brown et al., ECCV 2020",
        advice="retrieval with large batches",
    ),
)
