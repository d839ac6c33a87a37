"""BPR: what recommenders are most often trained with."""

from __future__ import annotations

from rankwise.losses.rivals.ranknet import RankNetLoss
from rankwise.registry import LossRecord

__all__ = ["BPRLoss"]


class BPRLoss(RankNetLoss):
    """Bayesian personalised ranking: `-log sigmoid(s_i - s_j)`, i relevant, j not, on average over all such pairs.

    This is `RankNetLoss` for labels of 0 and 1: all relevant items of a list against all its irrelevant ones. The
    paper's single random negative per positive is a matter of which items a batch holds, its L2 penalty one of the
    optimiser (weight decay).

    Example:
        >>> import torch
        >>> BPRLoss()(torch.tensor([0.0, 0.0, 0.0]), torch.tensor([1, 0, 0]))
        tensor(0.6931)

    Paper: Rendle et al., BPR: Bayesian personalized ranking from implicit feedback, UAI 2009.
    """

    label_kind = "binary"


RECORDS = (
    LossRecord(
        name="bpr",
        summary="logistic loss of all pairs of a relevant and an irrelevant item",
        build=BPRLoss,
        role="baseline",
        paper="Rendle et al., UAI 2009",
    ),
)
