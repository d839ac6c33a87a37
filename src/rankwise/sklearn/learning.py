"""The loop: steps of AdamW on batches, the best weights of each member by its held-out rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rankwise.sklearn.problems import Problem
from rankwise.sklearn.scorer import Members

__all__ = ["Budget", "learn"]

Fetch = Callable[[NDArray[np.intp]], Tensor]


@dataclass(frozen=True)
class Budget:
    """How long and how fast to learn.

    Attributes:
        steps: optimiser steps at most.
        learning_rate: of the first step; it falls to 0 along half a cosine if `cooling`.
        weight_decay: of AdamW.
        check_every: look at the held-out rows after every so many steps; 0 never does.
        patience: stop after so many looks in a row without a better member.
    """

    steps: int
    learning_rate: float
    weight_decay: float
    cooling: bool = True
    check_every: int = 0
    patience: int = 0


@dataclass
class Best:
    """The best weights of each member so far."""

    quality: NDArray[np.float64]
    weights: list[Tensor] = field(default_factory=list)


def learn(
    model: Members,
    loss: nn.Module,
    problem: Problem,
    fetch: Fetch,
    budget: Budget,
    random: np.random.Generator,
) -> list[dict[str, float]]:
    """Train in place and return what was seen on the way: step, loss, quality of the held-out rows.

    Args:
        model: M members; each is left with its best weights by its own held-out rows, or the last if it has none.
        loss: a list loss.
        problem: batches, costs and quality.
        fetch: rows of any shape (...,) to features (..., D).
        budget: see `Budget`.
        random: decides the batches.
    """
    optimiser = torch.optim.AdamW(model.parameters(), lr=budget.learning_rate, weight_decay=budget.weight_decay)
    best = Best(np.full(len(problem.held), -np.inf))
    seen: list[dict[str, float]] = []
    since_better, losses = 0, []
    model.train()
    loss.train()
    for step, batch in zip(range(1, budget.steps + 1), problem.batches(random), strict=False):
        if budget.cooling:
            rate = budget.learning_rate * 0.5 * (1 + np.cos(np.pi * (step - 1) / budget.steps))
            for group in optimiser.param_groups:
                group["lr"] = rate
        value = problem.cost(loss, model(fetch(batch.rows)), batch)
        optimiser.zero_grad()
        value.backward()
        optimiser.step()
        losses.append(value.detach())
        if budget.check_every and (step % budget.check_every == 0 or step == budget.steps):
            quality = _quality(model, problem, fetch)
            better = _keep(best, model, quality)
            mean_loss = float(torch.stack(losses).mean()) / len(problem.held)
            seen.append({"step": step, "loss": mean_loss, "held_out": _mean(quality)})
            since_better, losses = 0 if better else since_better + 1, []
            if since_better >= budget.patience:
                break
    model.eval()
    if best.weights:
        for parameter, kept in zip(model.parameters(), best.weights, strict=True):
            parameter.data.copy_(kept)
    return seen


@torch.no_grad()
def _quality(model: Members, problem: Problem, fetch: Fetch) -> NDArray[np.float64]:
    """The metric of each member on its own held-out rows, (M,)."""
    found = np.full(len(problem.held), np.nan)
    for member, held in enumerate(problem.held):
        rows = np.flatnonzero(held)
        if len(rows):
            found[member] = problem.quality(model(fetch(rows))[member], rows)
    return found


def _mean(quality: NDArray[np.float64]) -> float:
    """Over the members that can be judged."""
    known = quality[~np.isnan(quality)]
    return float(known.mean()) if len(known) else float("nan")


@torch.no_grad()
def _keep(best: Best, model: Members, quality: NDArray[np.float64]) -> bool:
    """Note the weights of members that are at least as good as before; whether any is better."""
    # A member that cannot be judged keeps its last weights.
    take = torch.from_numpy((quality >= best.quality) | np.isnan(quality))
    if not best.weights:
        best.weights = [parameter.detach().clone() for parameter in model.parameters()]
    for kept, parameter in zip(best.weights, model.parameters(), strict=True):
        kept[take] = parameter[take]
    better = bool((quality > best.quality).any())
    best.quality = np.fmax(best.quality, quality)
    return better
