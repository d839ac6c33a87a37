"""The contenders: what each minimises for a given k."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rankwise.data import Part
from rankwise.losses import BinaryCrossEntropyLoss, ListLoss, PApLoss
from rankwise.losses.baselines import GreedyTopKLoss, HingePartialAUCLoss, PrecisionAtKLoss

__all__ = ["METHODS", "Method"]


@dataclass(frozen=True)
class Method:
    """A contender.

    Attributes:
        name: as it stands in tables.
        loss: made for k and the part to learn from.
        ours: whether it is a surrogate of pAp@k.
        pooled: whether all users are one list.
        gentle: whether its slopes are small, so that it takes longer steps.
    """

    name: str
    loss: Callable[[int, Part], ListLoss]
    ours: bool
    pooled: bool = False
    gentle: bool = False


def _pap(surrogate: str) -> Method:
    return Method(f"pAp@k {surrogate}", lambda k, part: PApLoss(k, surrogate=surrogate), ours=True)


def _partial_auc(k: int, part: Part) -> ListLoss:
    """As many of the pooled negatives as k per user make."""
    assert part.query_ids is not None
    users, negatives = len(part.query_ids.unique()), int((part.labels == 0).sum())
    return HingePartialAUCLoss(min(1.0, k * users / negatives))


METHODS = (
    *(_pap(surrogate) for surrogate in ("ramp", "avg", "avg+", "max", "ts", "ts*")),
    Method("cross entropy", lambda k, part: BinaryCrossEntropyLoss(), ours=False, gentle=True),
    Method("hinge partial AUC", _partial_auc, ours=False, pooled=True),
    Method("precision@k, average", lambda k, part: PrecisionAtKLoss(k), ours=False),
    Method("greedy top-k hinge", lambda k, part: GreedyTopKLoss(k), ours=False),
)
