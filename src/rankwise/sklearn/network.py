"""Networks trained together, and what brings their scores to one scale."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from rankwise.models.rows import Members
from rankwise.sklearn.learning import Budget, Fetch, learn
from rankwise.sklearn.problems import Problem

__all__ = ["Network"]

Floats = NDArray[np.float64]

_CHUNK = 65_536


class Network:
    """M members; the score of a row is the mean of theirs, each with mean 0 and spread 1 on the rows of training.

    A ranking loss leaves the scale of scores open, so members are brought to one.

    Args:
        model: the members.
        loss: a list loss; keeps its state from one training to the next.
    """

    def __init__(self, model: Members, loss: nn.Module) -> None:
        self.model, self.loss = model, loss
        self._centre: Floats = np.zeros((model.members, 1, 1))
        self._spread: Floats = np.ones((model.members, 1, 1))

    def train(
        self, fetch: Fetch, weights: Floats, problem: Problem, budget: Budget, random: np.random.Generator
    ) -> list[dict[str, float]]:
        """Train in place and return the history; `weights` (N,) are those of the rows that `fetch` gives."""
        history = learn(self.model, self.loss, problem, fetch, budget, random)
        scores = self._raw_scores(fetch, len(weights))
        share = weights[:, None] / weights.sum()
        self._centre = (scores * share).sum(1, keepdims=True)
        spread = np.sqrt(((scores - self._centre) ** 2 * share).sum(1, keepdims=True))
        self._spread = np.where(spread > 0, spread, 1.0)
        return history

    def member_scores(self, fetch: Fetch, rows: int) -> Floats:
        """Return the scores (M, N, C) of all N rows that `fetch` gives."""
        scaled: Floats = (self._raw_scores(fetch, rows) - self._centre) / self._spread
        return scaled

    def _raw_scores(self, fetch: Fetch, rows: int) -> Floats:
        """Compute scores in float64, so that those of a row do not depend on the other rows."""
        model = copy.deepcopy(self.model).double()
        starts = range(0, rows, _CHUNK)
        with torch.no_grad():
            parts: list[Any] = [
                model(fetch(np.arange(start, min(start + _CHUNK, rows))).double()).numpy() for start in starts
            ]
        return np.concatenate(parts, axis=1)
