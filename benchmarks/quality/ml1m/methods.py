"""The contenders: scorers and losses, each with the same choice of settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["EASE_LAMBDAS", "METHODS", "SCORERS", "Method"]

EASE_LAMBDAS = (300.0, 1000.0, 3000.0)
SCORERS = {"item-item": 128, "matrix-factorisation": 64}


@dataclass(frozen=True)
class Method:
    """A contender.

    Attributes:
        name: as it stands in tables.
        loss, options: what it minimises.
        ours: whether it is one of the NDCG losses.
        slow: whether it looks at every pair of a chosen and another item, which takes ten times as long here.
    """

    name: str
    loss: str
    options: Mapping[str, Any] = field(default_factory=dict)
    ours: bool = False
    slow: bool = False


METHODS = (
    Method("SONG, shift 30", "song", {"discount_shift": 30}, ours=True),
    Method("softmax (SOLC)", "softmax"),
    Method("SONG", "song", ours=True),
    Method("K-SONG 50, shift 30", "k-song", {"k": 50, "discount_shift": 30}, ours=True),
    Method("BPR", "bpr", slow=True),
    Method("LambdaRank", "lambdarank", slow=True),
    Method("ApproxNDCG", "approx-ndcg", slow=True),
)
