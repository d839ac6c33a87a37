"""FastAP: the histogram average precision of squared distances."""

from __future__ import annotations

from rankwise.checks import check_count
from rankwise.losses.rivals.histogram_ap import HistogramAPLoss
from rankwise.registry import LossRecord

__all__ = ["FastAPLoss"]


class FastAPLoss(HistogramAPLoss):
    """1 - AP from soft histograms of the squared distances 2 - 2 s of unit vectors, over [0, 4].

    The squared distance is a straight line in the cosine s, so this is `HistogramAPLoss` with as many bins as there are
    ends of `intervals`; only the paper's default differs.

    Args:
        intervals: into how many the range of distances is divided.
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
        name="fast-ap",
        summary="histogram average precision with the bins of FastAP",
        build=FastAPLoss,
        role="baseline",
        shift_invariant=False,
        paper="Cakir et al., CVPR 2019",
        advice="as histogram-ap, coarser and smoother",
    ),
)
