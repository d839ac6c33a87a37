"""Losses for average precision by soft histograms of the scores: histogram AP and FastAP."""

from __future__ import annotations

import torch
from torch import Tensor

from rankwise.checks import check_count
from rankwise.estimators.groups import Link
from rankwise.lists import Lists, PackedLists
from rankwise.losses.base import ListLoss
from rankwise.losses.baselines.shared import item_weights
from rankwise.registry import LossRecord

__all__ = ["FastAPLoss", "HistogramAPLoss"]


class HistogramAPLoss(ListLoss):
    """AP loss of soft histograms: 1 - AP of scores sorted into bins, each item shared by the two nearest bins.

    With h+ and h the soft histograms of the positives and of all items, best bin first, and H+ and H their cumulative
    sums:

        1 - sum_b (h+_b / n+) (H+_b / H_b).

    The bin centres are evenly spaced over [-1, 1], ends included; the share of an item in a bin falls linearly to 0 at
    the next centre.

    Args:
        bins: the number of bins, at least 2.
        link: map of scores to [-1, 1]: "tanh", or "none" for scores in that range, such as cosines.
        lists, empty, reduction: see `ListLoss`.

    Example:
        >>> HistogramAPLoss(link="none")(torch.tensor([0.9, 0.4, 0.6, 0.1]), torch.tensor([1, 1, 0, 0]))
        tensor(0.1819)

    Papers: He et al., Hashing as Tie-Aware Learning to Rank, CVPR 2018; Revaud et al., Learning with Average Precision:
    Training Image Retrieval with a Listwise Loss, ICCV 2019.
    """

    def __init__(
        self,
        bins: int = 20,
        *,
        link: str = "tanh",
        lists: str = "rows",
        empty: str = "skip",
        reduction: str = "mean",
    ) -> None:
        super().__init__(lists=lists, empty=empty, reduction=reduction)
        check_count("bins", bins, least=2)
        if link not in ("tanh", "none"):
            raise ValueError(f'link: expected "tanh" or "none" (bins need scores in [-1, 1]), got {link!r}')
        self.bins = bins
        self.link = Link(link)

    def per_list(self, packed: PackedLists, group_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        if self.link.kind == "none":
            for lists in packed.blocks:
                _check_range(lists.scores.detach())
        values, valid = self.link(packed, group_ids).map(self._block_values)
        return values, valid

    def _block_values(self, lists: Lists) -> tuple[Tensor, Tensor]:
        weights = item_weights(lists)
        positive = weights * (lists.labels == 1)
        position = (1 - lists.scores.clamp(-1, 1)) / 2 * (self.bins - 1)
        hits, all_items = (_soft_histogram(position, kind, self.bins) for kind in (positive, weights))
        above = all_items.cumsum(1)
        precision = hits.cumsum(1) / torch.where(above > 0, above, 1)
        count = positive.sum(1)
        recall = hits / torch.where(count > 0, count, 1)[:, None]
        return 1 - (precision * recall).sum(1), (count > 0) & ((weights - positive).sum(1) > 0)


def _soft_histogram(position: Tensor, weights: Tensor, bins: int) -> Tensor:
    """Compute histograms (Q, bins) of positions (Q, L) in [0, bins - 1], each shared by the two bins around it."""
    lower = position.detach().floor().clamp_max(bins - 2)
    share = (position - lower) * weights
    index = lower.long()
    empty = position.new_zeros(len(position), bins)
    return empty.scatter_add(1, index, weights - share).scatter_add(1, index + 1, share)


def _check_range(scores: Tensor) -> None:
    # A cosine may round to slightly more than 1.
    outside = scores.abs() > 1.001
    if bool(outside.any()):
        raise ValueError(
            f'scores: expected numbers in [-1, 1] with link="none", got {scores[outside][0].item():g} '
            f'({int(outside.sum())} outside); link="tanh" takes any'
        )


class FastAPLoss(HistogramAPLoss):
    """FastAP loss: 1 - AP of soft histograms of the squared distances 2 - 2 s of unit vectors, over [0, 4].

    The squared distance is linear in the cosine s, so this is `HistogramAPLoss` with `intervals` + 1 bins; only the
    paper's default differs.

    Args:
        intervals: number of intervals of the range of distances.
        link, lists, empty, reduction: see `HistogramAPLoss`.

    Example:
        >>> import torch
        >>> FastAPLoss(link="none")(torch.tensor([0.9, 0.4, 0.6, 0.1]), torch.tensor([1, 1, 0, 0]))
        tensor(0.1667)

    Paper: Cakir et al., Deep Metric Learning to Rank, CVPR 2019.
    """

    def __init__(
        self,
        intervals: int = 10,
        *,
        link: str = "tanh",
        lists: str = "rows",
        empty: str = "skip",
        reduction: str = "mean",
    ) -> None:
        check_count("intervals", intervals)
        super().__init__(intervals + 1, link=link, lists=lists, empty=empty, reduction=reduction)


RECORDS = (
    LossRecord(
        name="histogram-ap",
        summary="average precision from soft histograms of the scores",
        build=HistogramAPLoss,
        role="baseline",
        shift_invariant=False,
        paper="Revaud et al., ICCV 2019",
        advice="retrieval with very large batches: linear in the items",
    ),
    LossRecord(
        name="fast-ap",
        summary="histogram average precision with the bins of FastAP",
        build=FastAPLoss,
        role="baseline",
        shift_invariant=False,
        paper="Cakir et al., CVPR 2019",
        advice="as histogram-ap, coarser and smoother",
    ),
)
