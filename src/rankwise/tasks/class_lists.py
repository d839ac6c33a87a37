"""Scores of boxes for classes, as the lists that a ranking loss takes."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rankwise.checks import check_choice
from rankwise.distributed import gather_rows
from rankwise.losses import ListLoss
from rankwise.losses.rivals import ALRPLoss

__all__ = ["LISTS", "check_lists", "pinned", "rank_classes"]

LISTS = ("classes", "all", "balanced")


def check_lists(lists: str, ranking: nn.Module) -> str:
    """The layout "classes", "all" or "balanced", if the loss was made for it."""
    check_choice("lists", lists, LISTS)
    if isinstance(ranking, ListLoss) and lists == "classes" and ranking.lists != "columns":
        raise ValueError('ranking: expected a loss made with lists="columns", got one of rows')
    if isinstance(ranking, ALRPLoss) and lists == "balanced":
        raise ValueError("lists: expected classes or all with aLRP, which takes no weights, got balanced")
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
    """The ranking loss of logits (..., C), right where `truth` (..., C) says so, laid out as `lists` says."""
    weights = _balance(truth, logits.dtype) if lists == "balanced" else None
    rows = [None if each is None else each.flatten(0, -2) for each in (logits, truth, mask, previous, weights)]
    if lists != "classes":  # one list, whatever the number of processes
        rows = [None if each is None else each.flatten() for each in rows]
    value: Tensor = ranking(rows[0], rows[1], mask=rows[2], previous_scores=rows[3], weights=rows[4])
    return value


def pinned(logits: Tensor, truth: Tensor) -> Tensor:
    """(mean score of the positives)^2, over all processes: it pins down scores that could drift together."""
    found = gather_rows(logits[truth])
    return (found.sum() / max(1, len(found))).square()


def _balance(truth: Tensor, dtype: torch.dtype) -> Tensor:
    """Weights (..., C) with which every class counts as the root of its positives; the positives weigh 1 on average."""
    counts = gather_rows(truth.flatten(0, -2).sum(0)[None]).sum(0).to(dtype)
    weight = counts.clamp_min(1).rsqrt() * counts.sum() / counts.sqrt().sum().clamp_min(1)
    return torch.where(truth, weight, torch.ones_like(weight))
