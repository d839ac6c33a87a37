"""How far lists are from the margin conditions under which the surrogates of pAp@k vanish."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rankwise.checks import check_choice, check_k, check_labels, check_positive
from rankwise.lists import Lists, pack
from rankwise.losses.pap import SHORT_LISTS, top_negatives
from rankwise.losses.two_sides import in_order, two_sides

__all__ = ["PApMargins", "pap_margins"]


@dataclass(frozen=True)
class PApMargins:
    """Margins of lists, (Q,) each, in units of the margin; NaN where a list is left out.

    A condition holds where its number is at least 1, and then its surrogate is 0.

    Attributes:
        weak: p_(b) - z_1, the b-th best positive above the best negative: "ramp".
        beta: mean(p) - z_1, the mean positive above the best negative: "avg".
        moderate: the smaller of `weak` and 1 + `strong`, so at least 1 where the weak condition holds and no positive
            stands below a negative: "ts", "ts*".
        strong: p_(n) - z_1, the lowest positive above the best negative: "max", "avg+", and all others.
    """

    weak: Tensor
    beta: Tensor
    moderate: Tensor
    strong: Tensor


def pap_margins(
    scores: object,
    labels: object,
    *,
    k: int | None = None,
    margin: float = 1.0,
    query_ids: object = None,
    mask: object = None,
    short_lists: str = "skip",
) -> PApMargins:
    """The margins of each list.

    Args:
        scores: (N,) one list, or many with `query_ids`; or (Q, L) one list per row.
        labels: the shape of `scores`, 0 or 1.
        k: how many positives count at most, as in `PApLoss`; None for as many as there are negatives.
        margin: the unit, as in `PApLoss`.
        query_ids: (N,) which list each item belongs to, or (Q,) ids of the rows.
        mask: the shape of `scores`, False where there is no item.
        short_lists: what becomes of a list with fewer than k negatives: "skip" leaves it out, "clip" takes all its
            negatives as its k.

    Example:
        >>> pap_margins([3.0, 1.5, 1.0, 0.0], [1, 1, 0, 0], k=1).weak
        tensor([2.], dtype=torch.float64)
    """
    k, margin = check_k(k), check_positive("margin", margin)
    check_choice("short_lists", short_lists, SHORT_LISTS)
    packed = pack(scores, labels, query_ids=query_ids, mask=mask)

    def of_block(lists: Lists) -> tuple[Tensor, ...]:
        check_labels(lists.labels, "binary", lists.mask)
        return tuple(_margins(lists, k, margin, short_lists))

    with torch.no_grad():
        return PApMargins(*packed.map(of_block))


def _margins(lists: Lists, k: int | None, margin: float, short_lists: str) -> list[Tensor]:
    positives, negatives = two_sides(lists)
    top, valid = top_negatives(negatives, k, short_lists)
    valid = valid & (positives.size > 0)
    if not bool(valid.any()):
        return [torch.full(valid.shape, torch.nan, dtype=lists.scores.dtype, device=valid.device)] * 4
    positives = in_order(positives, best_first=True)
    count = torch.minimum(positives.size, top.size)
    highest = top.highest()
    weak, strong = (
        (positives.scores.gather(1, (place - 1).clamp_min(0)[:, None])[:, 0] - highest) / margin
        for place in (count, positives.size)
    )
    beta = (positives.mean() - highest) / margin
    return [torch.where(valid, found, torch.nan) for found in (weak, beta, torch.minimum(weak, 1 + strong), strong)]
