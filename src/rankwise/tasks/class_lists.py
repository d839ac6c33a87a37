"""Scores of boxes for classes, as the lists that a ranking loss takes."""

from __future__ import annotations

from torch import Tensor, nn

from rankwise.checks import check_choice
from rankwise.distributed import gather_rows
from rankwise.losses import ListLoss

__all__ = ["check_lists", "pinned", "rank_classes"]


def check_lists(lists: str, ranking: nn.Module) -> str:
    """The layout "classes" or "all", if the loss was made for it."""
    check_choice("lists", lists, ("classes", "all"))
    if isinstance(ranking, ListLoss) and lists == "classes" and ranking.lists != "columns":
        raise ValueError('ranking: expected a loss made with lists="columns", got one of rows')
    return lists


def rank_classes(
    ranking: nn.Module,
    lists: str,
    logits: Tensor,
    truth: Tensor,
    *,
    mask: Tensor | None = None,
    previous: Tensor | None = None,
) -> Tensor:
    """The ranking loss of logits (..., C), right where `truth` (..., C) says so; one list per class, or one of all."""
    rows = [None if each is None else each.flatten(0, -2) for each in (logits, truth, mask, previous)]
    if lists == "all":  # one list, whatever the number of processes
        rows = [None if each is None else each.flatten() for each in rows]
    value: Tensor = ranking(rows[0], rows[1], mask=rows[2], previous_scores=rows[3])
    return value


def pinned(logits: Tensor, truth: Tensor) -> Tensor:
    """(mean score of the positives)^2, over all processes: it pins down scores that could drift together."""
    found = gather_rows(logits[truth])
    return (found.sum() / max(1, len(found))).square()
