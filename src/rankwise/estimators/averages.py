"""Moving averages of what was observed of single items, each known by its list and its own id."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rankwise.checks import check_choice, check_share
from rankwise.estimators.spaces import SPACES
from rankwise.estimators.table import IdTable

__all__ = ["PairAverages"]


class PairAverages(nn.Module):
    """u <- (1 - update_rate) u + update_rate observed, for every (list, item) pair.

    The first observation of a pair starts its average; several of one pair in a batch are averaged. Nothing is written
    in eval mode: the answer is then what an update would have given.

    Args:
        update_rate: the weight of the new observation, in (0, 1].
        space: "linear", or "log" when what is observed and kept are logarithms of the numbers to average.

    Example:
        >>> averages = PairAverages(update_rate=0.5)
        >>> pair = torch.tensor([[3, 8]])
        >>> averages(pair, torch.tensor([2.0])), averages(pair, torch.tensor([4.0]))
        (tensor([2.]), tensor([3.]))
    """

    def __init__(self, update_rate: float = 0.1, space: str = "linear") -> None:
        super().__init__()
        self.update_rate = check_share("update_rate", update_rate, open_end=False)
        self._space = SPACES[check_choice("space", space, SPACES)]
        self.table = IdTable(width=1, columns=2)

    def forward(self, pairs: Tensor, observed: Tensor) -> Tensor:
        """Take note of what was observed (n,) of the pairs (n, 2) and give their averages (n,), without gradient."""
        observed = observed.detach()
        if self.training:
            return self.table.update(pairs, observed[:, None], self.update_rate, self._space)[:, 0].to(observed.dtype)
        remembered, known = self.table.read(pairs)
        _, group, counts = pairs.unique(dim=0, return_inverse=True, return_counts=True)
        observed = self._space.mean(observed[:, None], group, counts)[group, 0]
        blended = self._space.blend(remembered[:, 0].to(observed.dtype), observed, self.update_rate)
        return torch.where(known, blended, observed)
