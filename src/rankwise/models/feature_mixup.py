"""More samples for little cost: mixtures of a class's features, inside the network."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rankwise.checks import check_ids, check_same_shape, check_share

__all__ = ["FeatureMixup"]


class FeatureMixup(nn.Module):
    """Deep feature mixup: adds to every sample one that leans towards a random mean of its class.

        z~_i = keep z_i + (1 - keep) sum_j v_ij z_j,   v_ij uniform on (0, 1] for j of the class of i, of sum 1 over j,

    i itself among the j. The new samples have the labels of the old ones and come after them, so that a batch of B
    leaves as one of 2B. Put it before any stage of a network: only the stages after it have more to do. Before the last
    two stages, as in the paper, it makes the batch four times as large.

    Does nothing in eval mode. Draws from torch's random state, so `torch.manual_seed` makes it repeatable. The one
    sample of a class is mixed with itself: it comes twice.

    Args:
        keep: the share of the sample itself, in (0, 1).

    Example:
        >>> mix = FeatureMixup()
        >>> features, labels = mix(torch.rand(4, 8, 7, 7), torch.tensor([0, 0, 1, 1]))
        >>> features.shape, labels
        (torch.Size([8, 8, 7, 7]), tensor([0, 0, 1, 1, 0, 0, 1, 1]))

    Paper: Wen et al., Generalizable Stochastic Average Precision Learning via Stable Surrogate Loss, Chinese Journal of
    Computers 2025, section 7.1.
    """

    def __init__(self, keep: float = 0.9) -> None:
        super().__init__()
        self.keep = check_share("keep", keep)

    def forward(self, features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Features (B, ...) and integer classes (B,) to (2B, ...) and (2B,) in training, unchanged in evaluation."""
        if not self.training:
            return features, labels
        classes = check_ids("labels", labels)
        check_same_shape("labels", classes, "one class per row of features", features.shape[:1])
        same = classes[:, None] == classes
        # 1 - rand lies in (0, 1]: a weight of 0 for all would leave nothing to divide by.
        weights = (1 - torch.rand(same.shape, device=features.device)) * same
        weights = weights / weights.sum(1, keepdim=True)
        flat = features.flatten(1)
        means = (weights.to(flat.dtype) @ flat).view_as(features)
        mixed = features.lerp(means, 1 - self.keep)
        return torch.cat([features, mixed]), torch.cat([labels, labels])
