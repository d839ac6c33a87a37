"""What the trackers share: one row of moving averages per group."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn

from rankwise.checks import check_share
from rankwise.estimators.table import IdTable
from rankwise.lists import every

__all__ = ["GroupTracker"]


class GroupTracker(nn.Module):
    """Moving averages of what is observed of a group's lists, one row of `width` numbers per group.

    The first observation of a group starts its row; several of one group in a batch are averaged. Nothing is written in
    eval mode. Loading a state that has seen nothing warns: it is hardly what was meant to be saved.

    Args:
        width: how many numbers are kept per group.
        update_rate: the weight of the new observation, in (0, 1].
    """

    def __init__(self, width: int, update_rate: float) -> None:
        super().__init__()
        self.update_rate = check_share("update_rate", update_rate, open_end=False)
        self.table = IdTable(width=width)

    def remember(self, observed: Tensor, present: Tensor, group_ids: Tensor | None) -> Tensor:
        """Take note of what was observed of each list and give the averages of its group.

        Args:
            observed: (Q, width).
            present: (Q,) of which lists anything was observed; the others leave their group as it is.
            group_ids: (Q,) or None: then nothing is remembered, and what was observed is the answer.

        Returns:
            (Q, width) without gradient.
        """
        observed = observed.detach()
        if group_ids is None:
            return observed
        if self.training:
            if every(present):
                return self.table.update(group_ids, observed, self.update_rate).to(observed.dtype)
            self.table.update(group_ids[present], observed[present], self.update_rate)
        remembered, known = self.table.read(group_ids)
        return torch.where(known[:, None], remembered.to(observed.dtype), observed)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        ids = state_dict.get(prefix + "table.ids")
        if ids is not None and not len(ids):
            warnings.warn(
                "the loaded loss state has seen nothing: training continues as if from its first batch", stacklevel=2
            )
        super()._load_from_state_dict(state_dict, prefix, *others)
