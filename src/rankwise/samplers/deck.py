"""Dealing items in random order."""

from __future__ import annotations

import numpy as np
import torch

from rankwise.samplers.arguments import Indices

__all__ = ["Deck"]


class Deck:
    """Cards dealt in random order, each once before any comes again, and never the same twice in one hand."""

    def __init__(self, cards: Indices, generator: torch.Generator) -> None:
        self._cards = cards
        self._generator = generator
        self._left = cards[:0]

    def deal(self, count: int) -> Indices:
        hand, self._left = self._left[:count], self._left[count:]
        missing = count - len(hand)
        if missing == 0:
            return hand
        fresh: Indices = self._cards[torch.randperm(len(self._cards), generator=self._generator).numpy()]
        if len(hand) == 0:
            self._left = fresh[missing:]
            return fresh[:missing]
        # Cards still in the hand keep their place further back, so every round deals every card once.
        chosen = np.flatnonzero(np.isin(fresh, hand, invert=True))[:missing]
        self._left = np.delete(fresh, chosen)
        return np.concatenate([hand, fresh[chosen]])
