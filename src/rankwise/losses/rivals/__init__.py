"""What people train with today, in the same form, to compare with."""

from rankwise.losses.rivals.cross_entropy import BalancedCrossEntropyLoss, CrossEntropyLoss
from rankwise.losses.rivals.greedy_top_k import GreedyTopKLoss
from rankwise.losses.rivals.partial_auc import HingePartialAUCLoss
from rankwise.losses.rivals.precision_at_k import PrecisionAtKLoss

__all__ = [
    "BalancedCrossEntropyLoss",
    "CrossEntropyLoss",
    "GreedyTopKLoss",
    "HingePartialAUCLoss",
    "PrecisionAtKLoss",
]
