"""The loop: steps of AdamW on batches; all members stop at the look that is best for their held-out rows. Threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

from rankwise.models.rows import Members
from rankwise.sklearn.problems import Problem

__all__ = ["Budget", "Fetch", "learn", "one_thread"]

Fetch = Callable[[NDArray[np.intp]], Tensor]
Weights = list[Tensor]

# Numbers in a table for which one thread is quicker than two. Steps are short: threads mostly wait for each other.
_ONE_THREAD = 2_000_000


@dataclass(frozen=True)
class Budget:
    """Length and learning rate of a training.

    Attributes:
        steps: optimiser steps at most.
        learning_rate: of the first step; it falls to 0 along half a cosine if `cooling`.
        weight_decay: of AdamW.
        check_every: look at the held-out rows after every so many steps; 0 never does.
        patience: stop after so many looks in a row without a better one.
        verbose: print loss and metric at each look.
    """

    steps: int
    learning_rate: float
    weight_decay: float
    cooling: bool = True
    check_every: int = 0
    patience: int = 0
    verbose: bool = False


class Best:
    """The weights at the best look, by the mean of a look and its two neighbours; of equal ones the last."""

    def __init__(self) -> None:
        self._qualities: list[float] = []
        self._candidate: Weights = []
        self._quality = -np.inf
        self.weights: Weights = []

    def look(self, quality: float, model: nn.Module) -> None:
        """Note the quality and the weights of a look."""
        self._qualities.append(quality)
        if len(self._qualities) > 1:
            self._judge(self._qualities[-3:])
        self._candidate = [parameter.detach().clone() for parameter in model.parameters()]

    def finish(self) -> Weights:
        """Return the best weights; empty if there was no look."""
        if self._qualities:
            self._judge(self._qualities[-2:])
        return self.weights

    def _judge(self, qualities: list[float]) -> None:
        mean = float(np.mean(qualities))
        # A quality that is not defined (NaN) leaves the last weights.
        if not mean < self._quality:
            self._quality, self.weights = mean, self._candidate


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
        model: M members; left with the weights of the look at which the members did best on their held-out rows, or
            the last if nothing is held out.
        loss: a list loss.
        problem: batches, costs and quality.
        fetch: rows of any shape (...,) to features (..., D).
        budget: see `Budget`.
        random: decides the batches.
    """
    rate, decay = budget.learning_rate, budget.weight_decay
    optimiser = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=decay, fused=True)
    best, highest = Best(), -np.inf
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
            best.look(quality, model)
            mean_loss = float(torch.stack(losses).mean()) / len(problem.held)
            seen.append({"step": step, "loss": mean_loss, "held_out": quality})
            if budget.verbose:
                print(f"step {step}: loss {mean_loss:.4g}, held out {quality:.4f}")
            since_better, losses = 0 if quality > highest else since_better + 1, []
            highest = max(highest, quality)
            if since_better >= budget.patience:
                break
    model.eval()
    for parameter, kept in zip(model.parameters(), best.finish(), strict=False):
        parameter.data.copy_(kept)
    return seen


@torch.no_grad()
def _quality(model: Members, problem: Problem, fetch: Fetch) -> float:
    """Return the metric of members on their own held-out rows, averaged over those on which it is defined."""
    held = [np.flatnonzero(rows) for rows in problem.held]
    width = max(map(len, held))
    if not width:
        return float("nan")
    padded = np.stack([np.pad(rows, (0, width - len(rows))) for rows in held])
    scores = model(fetch(padded))
    values = np.array([problem.quality(own[: len(rows)], rows) for own, rows in zip(scores, held, strict=True)])
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")


@contextmanager
def one_thread(X: Any) -> Iterator[None]:
    """Compute on one thread inside the context, unless the table (N, D) is large."""
    if getattr(X, "nnz", X.size) > _ONE_THREAD:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)
