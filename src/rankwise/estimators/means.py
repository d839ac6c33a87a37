"""The mean score of all positives of a group, followed while the weights move (the estimate of mu in stable AP)."""

from __future__ import annotations

from torch import Tensor

from rankwise.estimators.tracker import GroupTracker

__all__ = ["MeanTracker"]


class MeanTracker(GroupTracker):
    """A running mean of each group, which can be told how far the new weights have moved the batch's own mean.

        mean <- observed + (1 - update_rate) (mean - previous)

    `observed` is the batch's mean now and `previous` the mean of the same items under the weights before the last step.
    What the weights did to the batch is so passed on to the remembered mean at once, and only the noise of sampling is
    averaged; with the whole data set as the batch the error shrinks by exactly 1 - update_rate per step, whatever the
    weights do. Without `previous` it is the plain moving average, which lags behind the weights.

    The first observation of a group starts its row; several of one group in a batch are averaged. Nothing is written in
    eval mode.

    Args:
        update_rate: the weight of the new observation, in (0, 1]; 1 remembers the last batch only.

    Example:
        >>> import torch
        >>> tracker, group, present = MeanTracker(update_rate=0.5), torch.tensor([5]), torch.tensor([True])
        >>> tracker(torch.tensor([0.2]), present, group)
        tensor([0.2000])
        >>> tracker(torch.tensor([0.6]), present, group)
        tensor([0.4000])
        >>> tracker(torch.tensor([0.9]), present, group, previous=torch.tensor([0.6]))  # 0.9 + 0.5 (0.4 - 0.6)
        tensor([0.8000])

    Paper: Wen et al., Generalizable Stochastic Average Precision Learning via Stable Surrogate Loss, Chinese Journal of
    Computers 2025, equation (6).
    """

    def __init__(self, update_rate: float = 0.01) -> None:
        super().__init__(1, update_rate)

    def forward(
        self, observed: Tensor, present: Tensor, group_ids: Tensor | None, previous: Tensor | None = None
    ) -> Tensor:
        """Take note of the mean observed in each list and give that of its group.

        Args:
            observed: (Q,) means of the batch's lists.
            present: (Q,) which lists have anything to take the mean of; the others leave their group as it is.
            group_ids: (Q,) or None: then nothing is remembered, and what was observed is the answer.
            previous: (Q,) means of the same items before the last step, or None.

        Returns:
            (Q,) without gradient.
        """
        observed = observed.detach()
        if previous is not None and group_ids is not None and self.training:
            # The table averages rows with what it is given: (1 - rate) row + rate given. A new row takes it as it is.
            moved = (observed - (1 - self.update_rate) * previous.detach()) / self.update_rate
            known = self.table.read(group_ids)[1]
            given = moved.where(known, observed)
        else:
            given = observed
        return self.remember(given[:, None], present, group_ids)[:, 0]
