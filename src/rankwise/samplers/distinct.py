"""Different places of a long row, drawn at a cost that does not depend on its length."""

from __future__ import annotations

import numpy as np
import torch

from rankwise.samplers.arguments import Indices

__all__ = ["draw_distinct"]


def draw_distinct(available: int, count: int, generator: torch.Generator) -> Indices:
    """`count` different numbers below `available`, uniformly at random, in random order.

    Example:
        >>> sorted(draw_distinct(3, 3, torch.Generator()).tolist())
        [0, 1, 2]
    """
    if 3 * count >= available:
        order: Indices = torch.randperm(available, generator=generator)[:count].numpy()
        return order
    # Draw with repetition and keep each the first time it comes.
    drawn: Indices = np.empty(0, dtype=np.int64)
    while len(drawn) < count:
        more = torch.randint(available, (2 * count,), generator=generator).numpy()
        drawn = np.concatenate([drawn, more])
        drawn = drawn[np.sort(np.unique(drawn, return_index=True)[1])]
    return drawn[:count]
