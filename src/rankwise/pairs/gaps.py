"""Others that are not there: infinitely far below every anchor, where surrogates and their slopes are 0."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from torch import Tensor

__all__ = ["Gaps", "few_gaps"]

# Gaps are written one by one where at most one slot in so many is one, and there are many slots.
_FEW, _MANY = 16, 2**17


class Gaps:
    """The slots of lists (Q, L) outside `mask`; looked for once, for the forward and the backward pass.

    Take `others = gaps.fill(others)`, and `gaps.hide(difference, lists)` of the differences (q, A, L) of some lists:
    few gaps are hidden there, many filled in beforehand. Without a mask there are none.
    """

    def __init__(self, mask: Tensor | None) -> None:
        self._given, self._shape = mask, (0, 0)

    @classmethod
    def at(cls, places: np.ndarray, shape: tuple[int, int]) -> Gaps:
        """Few gaps at these places of lists on the CPU: row * L + column, in rising order."""
        gaps = cls(None)
        gaps._places, gaps._shape = places, shape
        return gaps

    @cached_property
    def mask(self) -> Tensor | None:
        """(Q, L) where there are others, or None when everywhere."""
        if self._given is not None or self._places is None:
            return self._given
        mask = torch.ones(self._shape, dtype=torch.bool)
        mask.view(-1)[torch.from_numpy(self._places)] = False
        return mask

    @cached_property
    def _places(self) -> np.ndarray | None:
        """The gaps, if they are few."""
        if self._given is None or self._given.device.type != "cpu" or not few_gaps(0, self._given.numel()):
            return None
        absent = ~self._given.numpy()
        return np.flatnonzero(absent) if few_gaps(int(np.count_nonzero(absent)), absent.size) else None

    def fill(self, others: Tensor) -> Tensor:
        """The others (Q, L), those that are not there infinitely far below, unless they are few."""
        if self._given is None or self._places is not None:
            return others
        return torch.where(self._given, others, -torch.inf)

    def hide(self, difference: Tensor, lists: slice) -> Tensor:
        """Differences anchor - other (q, A, L) of some lists, in place."""
        places = self._places
        if places is not None and len(places):
            length = difference.shape[2]
            first, last = np.searchsorted(places, (lists.start * length, lists.stop * length))
            rows, columns = np.divmod(places[first:last] - lists.start * length, length)
            difference.numpy()[rows, :, columns] = np.inf
        return difference


def few_gaps(gaps: int, slots: int) -> bool:
    """Whether so few, among so many, that they are best known by their places."""
    return slots >= _MANY and gaps * _FEW <= slots
